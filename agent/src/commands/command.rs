//! What a command is to the agent: what is told of it, and how it is begun.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::refused::Refused;
use crate::reply::Reply;
use crate::session::Session;
use crate::spec::Spec;
use crate::state::State;
use crate::words::Words;

/// What is answered.
pub type Answer = Result<Reply, Refused>;

/// An answer that is not there yet.
pub type Later = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A command.
#[derive(Debug)]
pub struct Command {
    /// What is told of it.
    pub spec: Spec,
    /// How it is begun.
    pub run: Run,
}

/// How a command is begun.
#[derive(Debug)]
pub enum Run {
    /// Of a lock: it is asked of the nodes.
    OfLocks(fn(Call) -> Result<Work, Refused>),
    /// Of the connection or the agent.
    OfConnection(fn(Asked<'_>) -> Result<Work, Refused>),
}

/// A command of a lock that is run.
#[derive(Clone, Debug)]
pub struct Call {
    /// The agent.
    pub state: Arc<State>,
    /// The number of the connection.
    pub connection: u64,
    /// The lock; empty of a command that has none.
    pub key: Bytes,
    /// What follows.
    pub words: Words,
}

/// A command of a connection that is run.
pub struct Asked<'a> {
    /// The agent.
    pub state: &'a Arc<State>,
    /// The connection.
    pub session: &'a mut Session,
    /// All commands that there are.
    pub commands: &'static [Command],
    /// What follows the command's name.
    pub words: &'a [Bytes],
}

/// What a command that was begun has come to.
pub enum Work {
    /// It is done.
    Done(Reply),
    /// The nodes are asked to change what the client has: that is done also if it does not wait for the answer.
    Does(Later),
    /// The nodes are asked, for this client alone: it is given up when that hangs up.
    Asks(Later),
    /// The same, and somebody else has to do something first: it is given up when the agent ends, too.
    Waits(Later),
}

impl Work {
    /// The nodes are asked to change something.
    pub fn does(later: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self::Does(Box::pin(later))
    }

    /// The nodes are asked.
    pub fn asks(later: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self::Asks(Box::pin(later))
    }

    /// Somebody else has to do something first.
    pub fn waits(later: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self::Waits(Box::pin(later))
    }
}

/// The place of the command with this name in the table.
pub fn find(commands: &[Command], name: &[u8]) -> Option<usize> {
    commands.iter().position(|command| command.spec.name.as_bytes().eq_ignore_ascii_case(name))
}
