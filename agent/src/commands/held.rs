//! The commands of a lock's owner: RELEASE, EXTEND, REENTER, CONVERT, NOTE.

use std::time::Duration;

use palisade_quorum::Token;
use palisade_quorum::grammar::Spec;
use palisade_quorum::request::{self, Conversion, Level, NoteSequence};

use super::command::{Call, Command, OfNodes, Work};
use crate::refused::Refused;
use crate::reply::Reply;

/// The error for a reader that wants to become a writer: the agent cannot do that.
const EXCLUSIVE: &str = "ERR CONVERT to EXCLUSIVE is for a node: two readers who ask it of a quorum at once would each get a part of the nodes \
                         and wait for the other. Release the lock and acquire it alone";

const ADOPT: OfNodes =
    OfNodes { option: "ADOPT", why: "the agent adopts by itself what another process took for an owner" };

/// LOCK.RELEASE: gives back holds.
pub const RELEASE: Command = Command::of_locks(request::Release::SPEC, release);

/// LOCK.EXTEND: extends the lease.
pub const EXTEND: Command = Command::of_locks(request::Extend::SPEC, extend);

/// LOCK.REENTER: adds a hold.
pub const REENTER: Command = Command { of_nodes: &[ADOPT], ..Command::of_locks(request::Reenter::SPEC, reenter) };

/// LOCK.CONVERT: makes a writer a reader.
pub const CONVERT: Command = Command::of_locks(
    Spec {
        summary: "Makes an exclusive grant shared. Never waits. Returns the token, which may have risen by a late grant; Null if \
                  this owner does not hold the lock alone. EXCLUSIVE is for a node.",
        ..request::Convert::SPEC
    },
    convert,
);

/// LOCK.NOTE: replaces the note.
pub const NOTE: Command = Command::of_locks(request::Annotate::SPEC, note);

fn release(call: Call) -> Result<Work, Refused> {
    let request::Release { owner, level, token } = request::Release::read(call.words(), call.bounds)?;
    let owner = owner.bytes().to_vec();
    Ok(Work::change(async move {
        let (level, token) = (level.map(Level::holds), token.map(Token::get));
        let left = call.state.locks.release(&call.key, &owner, level, token).await?;
        Ok(Reply::or_null(left.map(u64::from)))
    }))
}

fn extend(call: Call) -> Result<Work, Refused> {
    let request::Extend { owner, ttl, token } = request::Extend::read(call.words(), call.bounds)?;
    let (owner, ttl) = (owner.bytes().to_vec(), Duration::from_millis(ttl.ms().into()));
    Ok(Work::change(async move {
        Ok(Reply::or_null(call.state.locks.extend(&call.key, &owner, ttl, token.map(Token::get)).await?))
    }))
}

fn reenter(call: Call) -> Result<Work, Refused> {
    let request::Reenter { owner, level, ttl, adopts } = request::Reenter::read(call.words(), call.bounds)?;
    ADOPT.refuse(adopts)?;
    let owner = owner.bytes().to_vec();
    Ok(Work::change(async move {
        let ttl = ttl.map(|ttl| Duration::from_millis(ttl.ms().into()));
        let holds = call.state.locks.reenter(&call.key, &owner, level.map(Level::holds), ttl).await?;
        Ok(Reply::or_null(holds.map(u64::from)))
    }))
}

fn convert(call: Call) -> Result<Work, Refused> {
    let request::Convert { owner, to, token } = request::Convert::read(call.words(), call.bounds)?;
    if to == Conversion::Exclusive {
        return Err(Refused::text(EXCLUSIVE));
    }
    let owner = owner.bytes().to_vec();
    Ok(Work::change(async move {
        Ok(Reply::or_null(call.state.locks.share(&call.key, &owner, token.map(Token::get)).await?))
    }))
}

fn note(call: Call) -> Result<Work, Refused> {
    let request::Annotate { owner, note, sequence, token } = request::Annotate::read(call.words(), call.bounds)?;
    let (owner, note) = (owner.bytes().to_vec(), note.bytes().to_vec());
    Ok(Work::change(async move {
        let (sequence, token) = (sequence.map(NoteSequence::get), token.map(Token::get));
        Ok(Reply::or_null(call.state.locks.note(&call.key, &owner, &note, sequence, token).await?))
    }))
}
