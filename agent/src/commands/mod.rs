//! The commands. A lock command turns its arguments into a call of `palisade_client::by_owner`, and the result into a
//! reply. The other commands are about the connection.

mod acquire;
mod client;
mod command;
mod described;
mod elsewhere;
mod handshake;
mod held;
mod info;
mod looks;
pub mod node;

use std::sync::Arc;

use bytes::Bytes;
use palisade_quorum::Refusal;

pub use self::command::{Answer, Later, Work};
use self::command::{Call, Command, Invocation, Run, find};
use crate::refused::{Refused, wrong_number};
use crate::requests::Request;
use crate::session::Session;
use crate::state::State;

/// Every command. The lock commands come in the order in which HELP shows them.
const COMMANDS: &[Command] = &[
    acquire::ACQUIRE,
    held::RELEASE,
    held::EXTEND,
    held::REENTER,
    held::CONVERT,
    held::NOTE,
    looks::CHECK,
    looks::INFO,
    looks::WATCH,
    looks::BREAK,
    node::NODE,
    described::HELP,
    handshake::HELLO,
    handshake::AUTH,
    handshake::PING,
    handshake::ECHO,
    handshake::RESET,
    handshake::QUIT,
    handshake::SELECT,
    client::CLIENT,
    info::INFO,
    described::COMMAND,
    handshake::CONFIG,
    handshake::READONLY,
    handshake::READWRITE,
];

/// Returns the names of the commands, in the order of the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.spec.name)
}

/// A command that has begun.
pub struct Begun {
    /// The command's index in the table, by which its result is counted; `None` for a command that is not there.
    pub place: Option<usize>,
    /// The work that is left of the command, or its refusal.
    pub work: Result<Work, Refused>,
}

/// Begins the command in `request`.
pub fn begin(state: &Arc<State>, session: &mut Session, mut request: Request) -> Begun {
    let Some(place) = find(COMMANDS, &request[0]) else {
        state.counts.unknown.up();
        let refused =
            if session.is_known { Refused::text(elsewhere::refusal(&request[0])) } else { handshake::no_auth() };
        return Begun { place: None, work: Err(refused) };
    };
    let command = &COMMANDS[place];
    state.counts.commands[place].calls.up();
    let work = if !session.is_known && !handshake::is_for_all(command) {
        Err(handshake::no_auth())
    } else if !command.may_have_words(request.len()) {
        Err(wrong_number(command.spec.name))
    } else {
        match command.run {
            Run::OfConnection(run) => run(Invocation { state, session, commands: COMMANDS, words: &request[1..] }),
            Run::OfLocks(run) => {
                let key = if command.spec.key.is_some() { request.remove(1) } else { Bytes::new() };
                request.remove(0);
                session.keeps |= request.iter().any(|word| word.eq_ignore_ascii_case(acquire::KEEPALIVE.as_bytes()));
                let (connection, bounds) = (session.id, state.bounds());
                let call = Call { state: Arc::clone(state), connection, key, words: request, bounds };
                of_locks(run, call)
            }
        }
    };
    Begun { place: Some(place), work }
}

/// Begins a lock command. If it refuses a lease as too long, this first asks the nodes for the longest lease, because
/// they may allow a longer one than they last reported.
fn of_locks(run: fn(Call) -> Result<Work, Refused>, call: Call) -> Result<Work, Refused> {
    let again = call.clone();
    match run(call) {
        Err(Refused::Rule(Refusal::Ttl { .. })) => Ok(Work::wait(async move {
            let _ = again.state.nodes().await;
            let bounds = again.state.bounds();
            match run(Call { bounds, ..again })? {
                Work::Done(reply) => Ok(reply),
                Work::Does(later) | Work::Asks(later) | Work::Waits(later) => later.await,
            }
        })),
        work => work,
    }
}
