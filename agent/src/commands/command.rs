//! The form of a command of the agent: its description, and the function that begins it. The lock commands, with all
//! their arguments, are declared in [`palisade_quorum::request`].

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use palisade_quorum::grammar::{Argument, Bounds, Spec};

use crate::refused::Refused;
use crate::reply::Reply;
use crate::session::Session;
use crate::state::State;

/// The answer to a command: a reply, or a refusal.
pub type Answer = Result<Reply, Refused>;

/// An answer that comes later, from the nodes.
pub type Later = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A command of the agent.
#[derive(Debug)]
pub struct Command {
    /// The command's name, arguments and summary.
    pub spec: Spec,
    /// The options that the agent refuses, because only a node accepts them.
    pub of_nodes: &'static [OfNodes],
    /// True if the command parses its words itself. Then more words may follow than its arguments say.
    pub is_open: bool,
    /// The function that begins the command.
    pub run: Run,
}

/// An option that a node accepts and the agent refuses.
#[derive(Debug)]
pub struct OfNodes {
    /// The word of the option.
    pub option: &'static str,
    /// The reason why the agent refuses the option.
    pub why: &'static str,
}

impl OfNodes {
    /// Refuses the option if it `is_given`.
    ///
    /// # Errors
    ///
    /// The option is given.
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
    /// Creates a lock command, with all of its options.
    pub const fn of_locks(spec: Spec, run: fn(Call) -> Result<Work, Refused>) -> Self {
        Self { spec, of_nodes: &[], is_open: false, run: Run::OfLocks(run) }
    }

    /// Creates a command about the connection or the agent, which parses its words itself.
    pub const fn of_connection(
        name: &'static str,
        summary: &'static str,
        run: fn(Invocation<'_>) -> Result<Work, Refused>,
    ) -> Self {
        let spec = Spec { name, summary, flags: "fast", key: None, arguments: &[] };
        Self { spec, of_nodes: &[], is_open: true, run: Run::OfConnection(run) }
    }

    /// Returns the command's arguments, without the options that the agent refuses.
    pub fn arguments(&self) -> impl Iterator<Item = &'static Argument> {
        let is_of_nodes = |word| self.of_nodes.iter().any(|of_nodes| of_nodes.option == word);
        self.spec.arguments.iter().filter(move |argument| !argument.option.is_some_and(is_of_nodes))
    }

    /// Returns the arity as servers write it: the number of words, negative if more may follow.
    pub fn arity(&self) -> i64 {
        if self.is_open { -1 } else { self.spec.arity().into() }
    }

    /// Returns true if the command accepts this number of words, its name included.
    pub fn may_have_words(&self, words: usize) -> bool {
        let (arity, words) = (self.arity(), words as i64);
        words == arity || words >= -arity && arity < 0
    }
}

/// The function that begins a command.
#[derive(Debug)]
pub enum Run {
    /// A lock command, whose answer comes from the nodes.
    OfLocks(fn(Call) -> Result<Work, Refused>),
    /// A command about the connection or the agent, which is answered at once or asks the nodes.
    OfConnection(fn(Invocation<'_>) -> Result<Work, Refused>),
}

/// A call of a lock command, as its function receives it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The state of the agent.
    pub state: Arc<State>,
    /// The number of the client's connection.
    pub connection: u64,
    /// The key of the lock; empty if the command has none.
    pub key: Bytes,
    /// The words after the key.
    pub words: Vec<Bytes>,
    /// The bounds of arguments that the nodes have reported, or the largest possible ones.
    pub bounds: Bounds,
}

impl Call {
    /// Returns the words after the key.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().map(AsRef::as_ref)
    }
}

/// A call of a command about the connection or the agent.
pub struct Invocation<'a> {
    /// The state of the agent.
    pub state: &'a Arc<State>,
    /// The record of the client's connection.
    pub session: &'a mut Session,
    /// The table of all commands.
    pub commands: &'static [Command],
    /// The words after the command's name.
    pub words: &'a [Bytes],
}

/// The work that is left of a command that has begun.
pub enum Work {
    /// Nothing: this is the reply.
    Done(Reply),
    /// Changes a lock on the nodes. This is completed even if the client disconnects.
    Does(Later),
    /// Asks the nodes for something that only this client needs. This is dropped when the client disconnects.
    Asks(Later),
    /// Waits for other clients. This is dropped when the client disconnects, and when the agent ends.
    Waits(Later),
}

impl Work {
    /// Creates the work of a command that changes something on the nodes.
    pub fn change(later: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self::Does(Box::pin(later))
    }

    /// Creates the work of a command that only reads from the nodes.
    pub fn read(later: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self::Asks(Box::pin(later))
    }

    /// Creates the work of a command that waits for other clients.
    pub fn wait(later: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self::Waits(Box::pin(later))
    }
}

/// Returns the index in the table of the command with this name.
pub fn find(commands: &[Command], name: &[u8]) -> Option<usize> {
    commands.iter().position(|command| command.spec.name.as_bytes().eq_ignore_ascii_case(name))
}
