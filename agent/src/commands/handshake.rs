//! Commands that clients send before and between lock commands: HELLO, AUTH, SELECT, PING and the like, answered as
//! servers answer them.

use bytes::Bytes;
use palisade_quorum::parse_integer;

use super::command::{Command, Invocation, Work};
use crate::password::USER;
use crate::refused::{NO_AUTH, NO_PROTOCOL, Refused, WRONG_PASSWORD, wrong_number};
use crate::reply::{Protocol, Reply};
use crate::session::Session;
use crate::state::State;

/// The server version that the agent reports to client libraries: the oldest one that the module supports.
pub const AS_SERVER: &str = "7.0.0";

/// HELLO: begins a connection in RESP2 or RESP3, and describes the agent.
pub const HELLO: Command =
    Command::of_connection("HELLO", "Begins a connection in RESP2 or RESP3, and describes the agent.", hello);
/// AUTH: gives the password.
pub const AUTH: Command = Command::of_connection("AUTH", "Gives the password.", auth);
/// PING: answers PONG, or its argument.
pub const PING: Command = Command::of_connection("PING", "Returns PONG, or its argument.", ping);
/// ECHO: answers with its argument.
pub const ECHO: Command = Command::of_connection("ECHO", "Returns its argument.", echo);
/// RESET: makes the connection as it was when it began.
pub const RESET: Command = Command::of_connection("RESET", "Resets the connection.", reset);
/// QUIT: ends the connection.
pub const QUIT: Command = Command::of_connection("QUIT", "Ends the connection.", quit);
/// SELECT: accepts database 0, the only one that an agent has.
pub const SELECT: Command = Command::of_connection("SELECT", "Accepts 0 alone: an agent has one database.", select);
/// CONFIG: answers that there are no parameters, for client libraries that ask.
pub const CONFIG: Command = Command::of_connection("CONFIG", "Returns an empty list to GET.", config);
/// READONLY, which clients of a cluster send before they read from a replica: refused.
pub const READONLY: Command = Command::of_connection("READONLY", "Refused: an agent has no replicas.", read_only);
/// READWRITE, which ends READONLY: refused.
pub const READWRITE: Command = Command::of_connection("READWRITE", "Refused: an agent has no replicas.", read_only);

fn hello(Invocation { state, session, words, .. }: Invocation<'_>) -> Result<Work, Refused> {
    let mut words = words.iter();
    let protocol = match words.next() {
        None => session.protocol,
        Some(version) => match parse_integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(Refused::text(NO_PROTOCOL)),
            None => return Err(Refused::text("ERR Protocol version is not an integer or out of range")),
        },
    };
    let (mut given, mut name) = (None, None);
    while let Some(option) = words.next() {
        let wrong = || Refused::Text(format!("ERR Syntax error in HELLO option '{}'", option.escape_ascii()));
        if option.eq_ignore_ascii_case(b"AUTH") {
            given = Some((words.next().ok_or_else(wrong)?, words.next().ok_or_else(wrong)?));
        } else if option.eq_ignore_ascii_case(b"SETNAME") {
            name = Some(words.next().ok_or_else(wrong)?);
        } else {
            return Err(wrong());
        }
    }
    // The name is checked before anything changes, so that a refused HELLO changes nothing.
    if let Some(name) = name {
        super::client::check_name(name)?;
    }
    if let Some((user, password)) = given {
        log_in(state, session, user, password)?;
    }
    if !session.is_known {
        return Err(Refused::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be \
             used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        session.name = name.clone();
    }
    session.protocol = protocol;
    Ok(Work::Done(Reply::Map(vec![
        ("server", Reply::text("redis")),
        ("version", Reply::text(AS_SERVER)),
        ("proto", Reply::Integer(if protocol == Protocol::Resp3 { 3 } else { 2 })),
        ("id", Reply::Integer(session.id)),
        ("mode", Reply::text("standalone")),
        ("role", Reply::text("master")),
        ("modules", Reply::List(vec![])),
    ])))
}

fn auth(Invocation { state, session, words, .. }: Invocation<'_>) -> Result<Work, Refused> {
    let (user, password) = match words {
        [password] => (None, password),
        [user, password] => (Some(user), password),
        _ => return Err(wrong_number("auth")),
    };
    if state.password.is_none() && user.is_none() {
        return Err(Refused::text(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        ));
    }
    log_in(state, session, user.unwrap_or(&Bytes::from_static(USER)), password)?;
    Ok(Work::Done(Reply::Word("OK")))
}

/// Notes that the connection has given the password, if it is right. If the agent has none, any password is accepted,
/// as on a server.
fn log_in(state: &State, session: &mut Session, user: &[u8], password: &[u8]) -> Result<(), Refused> {
    let is_right = state.password.as_ref().is_none_or(|known| known.is(password));
    if user == USER && is_right {
        session.is_known = true;
        return Ok(());
    }
    state.counts.wrong_passwords.up();
    Err(Refused::text(WRONG_PASSWORD))
}

fn ping(Invocation { words, .. }: Invocation<'_>) -> Result<Work, Refused> {
    match words {
        [] => Ok(Work::Done(Reply::Word("PONG"))),
        [text] => Ok(Work::Done(Reply::Bytes(text.to_vec()))),
        _ => Err(wrong_number("ping")),
    }
}

fn echo(Invocation { words, .. }: Invocation<'_>) -> Result<Work, Refused> {
    match words {
        [text] => Ok(Work::Done(Reply::Bytes(text.to_vec()))),
        _ => Err(wrong_number("echo")),
    }
}

fn reset(Invocation { state, session, .. }: Invocation<'_>) -> Result<Work, Refused> {
    session.reset(state.password.is_none());
    Ok(Work::Done(Reply::Word("RESET")))
}

fn quit(Invocation { session, .. }: Invocation<'_>) -> Result<Work, Refused> {
    session.ends = true;
    Ok(Work::Done(Reply::Word("OK")))
}

fn select(Invocation { words, .. }: Invocation<'_>) -> Result<Work, Refused> {
    match words {
        [number] if parse_integer(number) == Some(0) => Ok(Work::Done(Reply::Word("OK"))),
        [_] => Err(Refused::text(
            "ERR DB index is out of range: the locks of palisade agent are those of database 0 of its nodes; name locks apart in place of that",
        )),
        _ => Err(wrong_number("select")),
    }
}

fn config(Invocation { words, .. }: Invocation<'_>) -> Result<Work, Refused> {
    match words.first() {
        Some(word) if word.eq_ignore_ascii_case(b"GET") => Ok(Work::Done(Reply::Map(vec![]))),
        _ => Err(Refused::text(
            "ERR palisade agent has no parameters that can be set while it runs: see palisade help agent; a node has its own",
        )),
    }
}

fn read_only(_: Invocation<'_>) -> Result<Work, Refused> {
    Err(Refused::text("ERR This instance has cluster support disabled"))
}

/// Returns true if this command may be sent before the password.
pub fn is_for_all(command: &Command) -> bool {
    ["HELLO", "AUTH", "QUIT", "RESET"].contains(&command.spec.name)
}

/// Returns the error for a command that may only be sent after the password.
pub fn no_auth() -> Refused {
    Refused::text(NO_AUTH)
}
