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
    /// The time at which the connection began, or a RESET made it need the password again.
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

    /// Makes the connection as it was when it began. With `is_known` it needs no password.
    pub fn reset(&mut self, is_known: bool) {
        self.protocol = Protocol::Resp2;
        self.name = Bytes::new();
        // A connection that has not given the password gets no more time for it.
        if self.is_known && !is_known {
            self.since = Instant::now();
        }
        self.is_known = is_known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PASSWORD_TIME;

    #[test]
    fn a_reset_connection_has_time_for_its_password_once() {
        let began = Instant::now() - PASSWORD_TIME;
        let mut session = Session::new(1, "me".to_owned(), false);
        (session.since, session.is_known) = (began, true);
        session.reset(false);
        assert!(!session.is_known && session.since > began);
        session.since = began;
        session.reset(false);
        assert_eq!(session.since, began);
    }
}
