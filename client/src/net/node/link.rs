//! A connection to a node, with the server's description of itself.

use std::sync::Arc;

use palisade_quorum::NodeId;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::inbox::{By, Sink};
use crate::net::access::Way;
use crate::net::line::Line;

/// A connection on which requests wait in the node's queues.
#[derive(Debug)]
pub struct Waiter {
    pub(super) connection: MultiplexedConnection,
    /// The address of the server.
    pub(super) way: Arc<Way>,
    /// The id of the server.
    pub(super) id: NodeId,
}

/// The connection for requests, and the server at its other end.
#[derive(Clone, Debug)]
pub struct Link {
    pub(super) line: Arc<Line<Sink>>,
    /// The address of the server.
    pub(super) way: Arc<Way>,
    /// The number of the connection, from 1 for each node.
    pub(super) number: u64,
    /// The id of the server.
    pub id: NodeId,
    /// True if the server reports changes of keys that were read over this connection.
    pub(super) tracks: bool,
    /// True if the node knows the options BEHIND (the number of callers behind a request), and NOTE of LOCK.WAIT.
    pub(super) knows_behind: bool,
    /// True if the node knows LOCK.HEAR, so that one connection can receive the outcome of many waits.
    pub(super) hears: bool,
}

impl Link {
    /// Returns the server and the connection, as the source of an answer.
    pub(super) fn by(&self) -> By {
        By { way: Arc::clone(&self.way), id: self.id, over: self.number }
    }
}

/// Marks the connection with this number as dead, so that another one is opened.
pub(super) fn give_up(broken: &watch::Sender<u64>, number: u64) {
    broken.send_if_modified(|last| {
        let news = number > *last;
        *last = number.max(*last);
        news
    });
}
