//! A connection to a node, and what its server says of itself.

use std::sync::Arc;

use palisade_quorum::NodeId;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::inbox::{By, Sink};
use crate::net::access::Way;
use crate::net::line::Line;

/// A connection for what waits at its other end.
#[derive(Debug)]
pub struct Waiter {
    pub(super) connection: MultiplexedConnection,
    /// Where it leads to.
    pub(super) way: Arc<Way>,
    /// The server.
    pub(super) id: NodeId,
}

/// The connection for requests, and which server is at its other end.
#[derive(Clone, Debug)]
pub struct Link {
    pub(super) line: Arc<Line<Sink>>,
    /// Where it leads to.
    pub(super) way: Arc<Way>,
    /// Connections of this node are numbered from 1.
    pub(super) number: u64,
    /// The server.
    pub id: NodeId,
    /// It tells over this connection when a key changes that is looked at.
    pub(super) tracks: bool,
    /// It takes a note with LOCK.WAIT, and how many wait behind a request.
    pub(super) knows_behind: bool,
    /// One connection can hear what became of many that wait.
    pub(super) hears: bool,
}

impl Link {
    /// Who answers over it.
    pub(super) fn by(&self) -> By {
        By { way: Arc::clone(&self.way), id: self.id, over: self.number }
    }
}

/// The connection with this number is of no use any more: another one is made.
pub(super) fn give_up(broken: &watch::Sender<u64>, number: u64) {
    broken.send_if_modified(|last| {
        let news = number > *last;
        *last = number.max(*last);
        news
    });
}
