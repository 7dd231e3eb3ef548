//! Requests that wait in the node's queues, each on a connection of its own.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use palisade_quorum::NodeId;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::link::Waiter;
use super::{Node, State};
use crate::net::bounds::CONNECT_TIMEOUT;
use crate::net::lease::Lease;
use crate::net::line::Before;
use crate::values::failure::Why;

/// Maximum number of idle connections kept for waiting.
const IDLE_WAITERS: usize = 16;

/// The number of requests on connections of their own from which on further ones wait through a listener, if the node
/// accepts listeners.
const BLOCKED_FEW: usize = IDLE_WAITERS;

impl Node {
    /// Sends `command`, which may wait in the node's queue, on a connection of its own; it should be answered within
    /// `patience`. If the future is dropped, the connection closes, and the request leaves the queue. For `asking` see
    /// [`Node::ask_as`].
    pub async fn ask_waiting(
        &self,
        command: &Cmd,
        patience: Duration,
        about: Option<&Lease>,
        asking: bool,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        // The time to connect is part of the wait. A node that is known to be down is not waited for.
        let connect_by = Instant::now() + CONNECT_TIMEOUT.min(patience);
        let now = match self.link(connect_by).await {
            Ok(link) => link,
            Err(failure) => return (None, self.counted(Err(failure))),
        };
        about.inspect(|lease| lease.mark_sent(self.place));
        let _blocked = self.blocked.begin();
        let idle = {
            let mut idle = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            // Connections to a server that is no longer the master are useless.
            idle.retain(|link| Arc::ptr_eq(&link.way, &now.way));
            idle.pop()
        };
        if let Some(link) = idle {
            let (id, reply) = self.ask_on(link, command, patience, asking).await;
            // An idle connection may have been closed by the server: then another one is tried.
            if !matches!(reply, Err(Why::Broken(_))) {
                return (id, reply);
            }
        }
        match timeout_at(connect_by, self.connect_to_wait()).await.unwrap_or(Err(Why::Silent)) {
            Ok(link) => self.ask_on(link, command, patience, asking).await,
            Err(failure) => (None, self.counted(Err(failure))),
        }
    }

    /// Returns whether a further request should wait through a listener: many already wait here on connections of their
    /// own, and the node accepts listeners.
    pub fn has_many_blocked(&self) -> bool {
        self.may_listen() && self.blocked.count() >= BLOCKED_FEW
    }

    async fn ask_on(
        &self,
        mut link: Waiter,
        command: &Cmd,
        patience: Duration,
        asking: bool,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        let mut states = self.state.subscribe();
        let sent = async {
            match asking {
                false => link.connection.send_packed_command(command).await,
                true => send_asking(&mut link.connection, command.clone()).await,
            }
        };
        let reply = tokio::select! {
            reply = timeout(patience, sent) => match reply {
                Ok(reply) => Why::or_value(reply),
                Err(_) => Err(Why::Silent),
            },
            // The other connection to the node broke, so this one may be half open.
            _ = states.wait_for(|state| matches!(state, State::Down(_))) => {
                Err(Why::Unreachable("the node is down".to_owned()))
            }
        };
        let id = link.id;
        if reply.as_ref().err().is_none_or(Why::is_answer) {
            let mut idle = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE_WAITERS {
                idle.push(link);
            }
        }
        (Some(id), self.counted(reply))
    }
}

/// Sends `command` with ASKING, for a key whose slot is migrating to the server.
async fn send_asking(connection: &mut MultiplexedConnection, command: Cmd) -> Result<Value, RedisError> {
    let mut both = redis::pipe();
    both.add_command(Before::Asking.command()).add_command(command);
    let replies = connection.send_packed_commands(&both, 1, 1).await?;
    Ok(replies.into_iter().next().unwrap_or(Value::Nil))
}
