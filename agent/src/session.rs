//! The agent's record of one connection.

use bytes::Bytes;
use tokio::time::Instant;

use crate::reply::Protocol;

/// The record of a connection.
#[derive(Debug)]
pub struct Session {
    /// The connection's unique number.
    pub id: u64,
    /// The protocol that the client speaks.
    pub protocol: Protocol,
    /// True if the connection has given the password, or needs none.
    pub is_known: bool,
    /// The name that the client set (CLIENT SETNAME).
    pub name: Bytes,
    /// The library that the client named.
    pub library: Bytes,
    /// The library's version, as the client named it.
    pub library_version: Bytes,
    /// The time at which the connection began.
    pub since: Instant,
    /// The client's address.
    pub peer: String,
    /// True if leases are kept alive as long as the connection is open.
    pub keeps: bool,
    /// True if the connection ends after the current answer.
    pub ends: bool,
}

impl Session {
    /// Returns the session of a connection that has just begun.
    pub fn new(id: u64, peer: String, is_known: bool) -> Self {
        Self {
            id,
            protocol: Protocol::Resp2,
            is_known,
            name: Bytes::new(),
            library: Bytes::new(),
            library_version: Bytes::new(),
            since: Instant::now(),
            peer,
            keeps: false,
            ends: false,
        }
    }
}
