//! `CLIENT`: data about a connection that client libraries set and read.

use super::command::{Command, Invocation, Work};
use crate::limits::NAME_BYTES_MAX;
use crate::refused::{Refused, wrong_number};
use crate::reply::{Protocol, Reply};
use crate::session::Session;

/// CLIENT, with the subcommands that client libraries send.
pub const CLIENT: Command = Command::of_connection(
    "CLIENT",
    "Names and describes the connection: SETNAME, GETNAME, SETINFO, ID, INFO, NO-EVICT, NO-TOUCH.",
    client,
);

fn client(Invocation { session, words, .. }: Invocation<'_>) -> Result<Work, Refused> {
    let Some((word, words)) = words.split_first() else { return Err(wrong_number("client")) };
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let ok = Ok(Work::Done(Reply::Word("OK")));
    match words {
        [] if is("ID") => Ok(Work::Done(Reply::Integer(session.id))),
        [] if is("GETNAME") && session.name.is_empty() => Ok(Work::Done(Reply::Null)),
        [] if is("GETNAME") => Ok(Work::Done(Reply::Bytes(session.name.to_vec()))),
        [] if is("INFO") => Ok(Work::Done(Reply::Bytes(info(session)))),
        [name] if is("SETNAME") => {
            check_name(name)?;
            session.name = name.clone();
            ok
        }
        [what, value] if is("SETINFO") => {
            let kept = match () {
                () if what.eq_ignore_ascii_case(b"LIB-NAME") => &mut session.library,
                () if what.eq_ignore_ascii_case(b"LIB-VER") => &mut session.library_version,
                () => return Err(Refused::Text(format!("ERR Unrecognized option '{}'", what.escape_ascii()))),
            };
            check_name(value)?;
            *kept = value.clone();
            ok
        }
        // This is accepted without an effect, because the agent evicts nothing.
        [_] if is("NO-EVICT") || is("NO-TOUCH") => ok,
        _ if ["ID", "GETNAME", "INFO", "SETNAME", "SETINFO", "NO-EVICT", "NO-TOUCH"].into_iter().any(is) => {
            Err(wrong_number(&format!("client|{}", word.escape_ascii()).to_lowercase()))
        }
        _ if is("TRACKING") || is("CACHING") => Err(Refused::text(
            "ERR CLIENT TRACKING is for a node: palisade agent tells nobody of changes by itself; use LOCK.WATCH",
        )),
        _ => Err(Refused::text(
            "ERR unknown subcommand: CLIENT takes SETNAME, GETNAME, SETINFO, ID, INFO, NO-EVICT and NO-TOUCH here",
        )),
    }
}

/// Checks that this is a valid name, which can be shown in lines that people read.
///
/// # Errors
///
/// The name is too long, or has characters that lines must not have.
pub fn check_name(name: &[u8]) -> Result<(), Refused> {
    match name {
        _ if name.len() > NAME_BYTES_MAX => {
            Err(Refused::Text(format!("ERR a client's name must be at most {NAME_BYTES_MAX} bytes long")))
        }
        _ if name.iter().all(u8::is_ascii_graphic) => Ok(()),
        _ => Err(Refused::text("ERR Client names cannot contain spaces, newlines or special characters.")),
    }
}

fn info(session: &Session) -> Vec<u8> {
    let mut line = format!("id={} addr={} name=", session.id, session.peer).into_bytes();
    line.extend_from_slice(&session.name);
    let protocol = if session.protocol == Protocol::Resp3 { 3 } else { 2 };
    line.extend_from_slice(
        format!(" age={} db=0 resp={protocol} lib-name=", session.since.elapsed().as_secs()).as_bytes(),
    );
    line.extend_from_slice(&session.library);
    line.extend_from_slice(b" lib-ver=");
    line.extend_from_slice(&session.library_version);
    line.push(b'\n');
    line
}
