//! A server that is asked directly, over a separate connection that states no version of a set and carries no lock of
//! this client.

use std::time::Duration;

use palisade_quorum::NodeId;
use redis::aio::MultiplexedConnection;
use redis::cluster_routing::Slot;
use redis::{AsyncConnectionConfig, Cmd, Value, cmd};
use tokio::time::timeout;

use crate::net::access::Way;
use crate::net::bounds::CONNECT_TIMEOUT;
use crate::net::cluster::map::{REDIRECTIONS_MAX, Redirection};
use crate::net::wire;
use crate::values::failure::Why;

/// A connection for one request after the other. The caller limits the time of each answer.
#[derive(Clone, Debug)]
pub struct Line(MultiplexedConnection);

impl Line {
    /// Connects to the server at the end of `way`.
    pub async fn open(way: &Way) -> Result<Self, Why> {
        let config = AsyncConnectionConfig::new();
        let config = config.set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
        way.connect(config).await.map(Self)
    }

    /// Sends `command`, and returns the server's answer.
    pub async fn ask(&mut self, command: &Cmd) -> Result<Value, Why> {
        Why::or_value(self.0.send_packed_command(command).await)
    }

    /// Sends `commands` at once, and returns the server's answer to each.
    pub async fn ask_each(&mut self, commands: &[Cmd]) -> Result<Vec<Result<Value, Why>>, Why> {
        let mut all = redis::pipe();
        for command in commands {
            all.add_command(command.clone());
        }
        let replies = self.0.send_packed_commands(&all, 0, commands.len()).await;
        let replies = replies.map_err(|error| Why::of(&error))?;
        Ok(replies.into_iter().map(|reply| Why::or_value(Ok(reply))).collect())
    }
}

/// A server that is a node, or belongs to one.
#[derive(Clone, Debug)]
pub struct Server {
    /// The number of the server's node in the list, from 1.
    pub number: usize,
    pub(crate) way: Way,
    /// The slots that a master of a cluster serves, first and last of each range; `None` for any other server.
    pub slots: Option<Vec<(u16, u16)>>,
}

impl Server {
    /// Creates the server to which `way` leads.
    pub fn new(number: usize, way: Way) -> Self {
        Self { number, way, slots: None }
    }

    /// Returns the address, without passwords.
    pub fn name(&self) -> &str {
        self.way.name()
    }

    /// Returns whether connections use TLS.
    pub fn is_encrypted(&self) -> bool {
        self.way.is_encrypted()
    }

    /// Returns another server, with the same settings.
    pub fn to(&self, host: &str, port: u16) -> Self {
        Self::new(self.number, self.way.to(host, port))
    }

    /// Returns whether it is the server of its node that serves `key`.
    pub fn has_slot_of(&self, key: &[u8]) -> bool {
        let slot = Slot::for_key(key);
        let Some(slots) = &self.slots else { return true };
        slots.iter().any(|&(first, last)| (first..=last).any(|number| Slot::new(number) == Some(slot)))
    }

    /// Connects to the server, which need not be a lock node.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub async fn reach(&self) -> Result<ServerLink, Why> {
        let line = timeout(CONNECT_TIMEOUT, Line::open(&self.way)).await.unwrap_or_else(|_| Err(Why::late()))?;
        Ok(ServerLink { line, server: self.clone(), node: Value::Nil, patience: CONNECT_TIMEOUT })
    }

    /// Connects to the server, which has to be a lock node.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub async fn connect(&self) -> Result<ServerLink, Why> {
        let mut link = self.reach().await?;
        // A server without the module would answer other commands too, and have no locks.
        link.node = link.send(&cmd("LOCK.NODE")).await.unwrap_or_else(|| Err(Why::late()))?;
        wire::ensure_no_agent(&link.node)?;
        Ok(link)
    }
}

/// A connection to a server, with a time limit for each answer.
#[derive(Clone, Debug)]
pub struct ServerLink {
    line: Line,
    /// The server at the other end.
    pub server: Server,
    /// The answer to LOCK.NODE on connection; Null if it was not asked.
    pub node: Value,
    /// The time limit for an answer.
    pub patience: Duration,
}

impl ServerLink {
    /// Returns the server's id; `None` if the server was not asked for it, or has none.
    pub fn id(&self) -> Option<NodeId> {
        wire::node_id(&self.node)
    }

    /// Returns whether the server was a master on connection.
    pub fn is_master(&self) -> bool {
        wire::is_master(&self.node)
    }

    /// Returns the milliseconds for which the server is guarded, and the reason, as it reported on connection.
    pub fn guard(&self) -> Option<(u64, String)> {
        let guard_ms = wire::number(&self.node, "guard_ms").filter(|guard_ms| *guard_ms > 0)?;
        Some((guard_ms, wire::text(&self.node, "guard_reason").unwrap_or_default()))
    }

    /// Sends `command`, and returns the answer. After a redirection, the link leads to the server that it named.
    ///
    /// # Errors
    /// The error that the server answers, or the reason why there is no answer.
    pub async fn ask(&mut self, command: &Cmd) -> Result<Value, Why> {
        let reply = self.send(command).await.unwrap_or(Err(Why::Silent));
        self.follow(command, reply).await
    }

    /// Sends `commands` at once, and returns each answer with the name of its server, which a redirection may have
    /// named.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn ask_each(&mut self, commands: &[Cmd]) -> Result<Vec<(String, Result<Value, Why>)>, Why> {
        if commands.is_empty() {
            return Ok(vec![]);
        }
        let replies = timeout(self.patience, self.line.ask_each(commands)).await.unwrap_or(Err(Why::Silent))?;
        let mut answers = vec![];
        for (command, reply) in commands.iter().zip(replies) {
            let (mut name, mut reply) = (self.server.name().to_owned(), reply.map_err(Why::of_node));
            if reply.is_err() {
                let mut link = self.clone();
                reply = link.follow(command, reply).await;
                link.server.name().clone_into(&mut name);
            }
            answers.push((name, reply));
        }
        Ok(answers)
    }

    /// Follows redirections: if `reply` is one, sends `command` to the server that it names, and so on.
    async fn follow(&mut self, command: &Cmd, mut reply: Result<Value, Why>) -> Result<Value, Why> {
        for _ in 0..REDIRECTIONS_MAX {
            let host = self.server.way.host().unwrap_or_default();
            let (place, is_once) = match reply.as_ref().err().and_then(|why| Redirection::of(why, host)) {
                Some(Redirection::Moved(place)) => (place, false),
                Some(Redirection::Ask(place)) => (place, true),
                Some(Redirection::TryAgain) | None => break,
            };
            *self = self.server.to(&place.host, place.port).connect().await?;
            if is_once {
                self.send(&cmd("ASKING")).await.unwrap_or(Err(Why::Silent))?;
            }
            reply = self.send(command).await.unwrap_or(Err(Why::Silent));
        }
        reply
    }

    /// Sends `command`, and returns the server's answer; `None` if there is none in time.
    async fn send(&mut self, command: &Cmd) -> Option<Result<Value, Why>> {
        let answer = timeout(self.patience, self.line.ask(command)).await;
        answer.ok().map(|reply| reply.map_err(Why::of_node))
    }
}
