//! A command as the agent has it: its description, and the function that begins it. The commands of locks, with all of their arguments, are declared in
//! [`palisade_quorum::request`].

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use palisade_quorum::grammar::{Argument, Bounds, Spec};

use crate::refused::Refused;
use crate::reply::Reply;
use crate::session::Session;
use crate::state::State;

/// What is answered.
pub type Answer = Result<Reply, Refused>;

/// An answer that is not there yet.
pub type Later = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A command.
#[derive(Debug)]
pub struct Command {
    /// The arguments and the summary.
    pub spec: Spec,
    /// The options that only a node takes.
    pub of_nodes: &'static [OfNodes],
    /// Says that words may follow which the command reads by itself.
    pub is_open: bool,
    /// How it is begun.
    pub run: Run,
}

/// An option that only a node takes.
#[derive(Debug)]
pub struct OfNodes {
    /// The word.
    pub option: &'static str,
    /// Why the agent refuses it.
    pub why: &'static str,
}

impl OfNodes {
    /// Refuses the option if it `is_given`.
    pub fn refuse(&self, is_given: bool) -> Result<(), Refused> {
        let Self { option, why } = self;
        if is_given {
            Err(Refused::Text(format!("ERR {option} is for a node: {why}, so leave it out")))
        } else {
            Ok(())
        }
    }
}

impl Command {
    /// A command of locks, with all of its options.
    pub const fn of_locks(spec: Spec, run: fn(Call) -> Result<Work, Refused>) -> Self {
        Self { spec, of_nodes: &[], is_open: false, run: Run::OfLocks(run) }
    }

    /// A command of the connection or the agent. It reads its words by itself.
    pub const fn of_connection(
        name: &'static str,
        summary: &'static str,
        run: fn(Asked<'_>) -> Result<Work, Refused>,
    ) -> Self {
        let spec = Spec { name, summary, flags: "fast", key: None, arguments: &[] };
        Self { spec, of_nodes: &[], is_open: true, run: Run::OfConnection(run) }
    }

    /// Returns the arguments that the agent takes.
    pub fn arguments(&self) -> impl Iterator<Item = &'static Argument> {
        let is_of_nodes = |word| self.of_nodes.iter().any(|of_nodes| of_nodes.option == word);
        self.spec.arguments.iter().filter(move |argument| !argument.option.is_some_and(is_of_nodes))
    }

    /// Returns how many words it takes as servers tell it: negative if more may follow.
    pub fn arity(&self) -> i64 {
        if self.is_open { -1 } else { self.spec.arity().into() }
    }

    /// Returns whether it takes so many words, its name counted.
    pub fn takes(&self, words: usize) -> bool {
        let (arity, words) = (self.arity(), words as i64);
        words == arity || words >= -arity && arity < 0
    }
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
    pub words: Vec<Bytes>,
    /// The bounds of the nodes, as far as they have said them.
    pub bounds: Bounds,
}

impl Call {
    /// Returns the words after the key.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().map(AsRef::as_ref)
    }
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
