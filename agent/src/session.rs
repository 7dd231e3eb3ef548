//! The data that the agent keeps about one connection.

use bytes::Bytes;
use tokio::time::Instant;

use crate::reply::Protocol;

/// The data of one connection.
#[derive(Debug)]
pub struct Session {
    /// The number of the connection, which no other has had.
    pub id: u64,
    /// The version of the protocol in which the client receives answers.
    pub protocol: Protocol,
    /// True if the connection has given the password, or needs none.
    pub is_known: bool,
    /// The name that the client gave itself (CLIENT SETNAME); empty if none.
    pub name: Bytes,
    /// The name of the client library, as it said itself; empty if it did not.
    pub library: Bytes,
    /// The version of the client library, as it said itself.
    pub library_version: Bytes,
    /// The time at which the connection began.
    pub since: Instant,
    /// The client's address, for people.
    pub peer: String,
    /// True if a lease is kept alive while this connection is open.
    pub keeps: bool,
    /// True if the connection has to end after the present answer.
    pub ends: bool,
}

impl Session {
    /// Creates the record of a connection that has just begun. With `is_known` it needs no password.
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
