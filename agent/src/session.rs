//! What is known of one connection.

use bytes::Bytes;
use tokio::time::Instant;

use crate::reply::Protocol;

/// A connection.
#[derive(Debug)]
pub struct Session {
    /// Its number, which no other one has.
    pub id: u64,
    /// What it speaks.
    pub protocol: Protocol,
    /// Whether it has given the password, or need not.
    pub is_known: bool,
    /// The name that it gave itself.
    pub name: Bytes,
    /// The library that it told of.
    pub library: Bytes,
    /// The version of that.
    pub library_version: Bytes,
    /// Since when it is there.
    pub since: Instant,
    /// Where it comes from.
    pub peer: String,
    /// Whether leases are kept for as long as it is there.
    pub keeps: bool,
    /// Whether it ends after the answer.
    pub ends: bool,
}

impl Session {
    /// Of a connection that has just begun.
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
