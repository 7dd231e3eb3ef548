//! The commands about a lock that any client may send: CHECK, INFO, WATCH; and the operator's BREAK.

use std::time::Duration;

use palisade_client::by_owner::{Shown, ShownGrant, ShownWaiter};
use palisade_quorum::request::{self, Known, ListedHolders, ListedWaiters, NoteSequence};
use palisade_quorum::{Mode, Token};

use super::command::{Call, Command, Work};
use crate::refused::Refused;
use crate::reply::Reply;

/// LOCK.CHECK: shows whether a grant has exactly this token now.
pub const CHECK: Command = Command::of_locks(request::Check::SPEC, check);

/// LOCK.INFO: shows the lock and its holders.
pub const INFO: Command = Command::of_locks(request::Info::SPEC, info);

/// LOCK.WATCH: answers when the lock is no longer in the state that the caller knows.
pub const WATCH: Command = Command::of_locks(request::Watch::SPEC, watch);

/// LOCK.BREAK: ends the grants of a lock.
pub const BREAK: Command = Command::of_locks(request::Break::SPEC, break_lock);

fn check(call: Call) -> Result<Work, Refused> {
    let request::Check { token } = request::Check::read(call.words(), call.bounds)?;
    Ok(Work::read(async move {
        let left = call.state.locks.check(&call.key, token.get()).await?;
        Ok(Reply::or_null(left.map(|left| left.as_millis() as u64)))
    }))
}

fn info(call: Call) -> Result<Work, Refused> {
    let request::Info { holders, waiters } = request::Info::read(call.words(), call.bounds)?;
    Ok(Work::read(async move {
        let listed = waiters.map(|ListedWaiters(count)| count);
        let Some(shown) = call.state.locks.info(&call.key, listed).await? else { return Ok(Reply::Null) };
        let mut fields = fields(&shown);
        if let Some(ListedHolders(count)) = holders {
            fields.push(("grants", Reply::List(shown.grants.iter().take(count).map(grant).collect())));
        }
        if let Some(count) = listed {
            fields.push(("queue", Reply::List(shown.queue.iter().take(count).map(waiter).collect())));
            let (owner, left) = shown.reserved.unwrap_or_default();
            fields.push(("reserved", Reply::Bytes(owner)));
            // This is rounded up, as on a node: it is zero only when the reservation is over.
            fields.push(("reserved_ms", Reply::Integer(left.as_micros().div_ceil(1_000) as u64)));
        }
        Ok(Reply::Map(fields))
    }))
}

fn watch(call: Call) -> Result<Work, Refused> {
    let request::Watch { known, patience } = request::Watch::read(call.words(), call.bounds)?;
    let known = match known {
        Known::Free => (0, None),
        Known::Grant(token, sequence) => (token.get(), sequence.map(NoteSequence::get)),
    };
    Ok(Work::wait(async move {
        let patience = Duration::from_millis(patience.ms().into());
        let differs = call.state.locks.watch(&call.key, known, patience).await?;
        Ok(differs.map_or(Reply::Null, |shown| Reply::Map(fields(&shown))))
    }))
}

fn break_lock(call: Call) -> Result<Work, Refused> {
    let request::Break { token } = request::Break::read(call.words(), call.bounds)?;
    Ok(Work::change(
        async move { Ok(Reply::or_null(call.state.locks.break_lock(&call.key, token.map(Token::get)).await?)) },
    ))
}

/// Returns the fields of the lock, as a node's reply to LOCK.INFO has them. If the lock has several grants, they
/// describe the oldest. If it is free, texts are empty and numbers are 0.
fn fields(shown: &Shown) -> Vec<(&'static str, Reply)> {
    let first = shown.grants.first();
    let number = |of: fn(&ShownGrant) -> u64| Reply::Integer(first.map_or(0, of));
    let bytes = |of: fn(&ShownGrant) -> &Vec<u8>| Reply::Bytes(first.map(of).cloned().unwrap_or_default());
    vec![
        ("owner", bytes(|grant| &grant.owner)),
        ("token", number(|grant| grant.token)),
        ("holds", number(|grant| grant.holds.into())),
        ("ttl", number(|grant| grant.ttl.as_millis() as u64)),
        ("held", number(|grant| grant.held.as_millis() as u64)),
        ("note", bytes(|grant| &grant.note)),
        ("waiters", Reply::Integer(shown.waiters)),
        ("suspect", number(|grant| grant.is_suspect.into())),
        ("mode", Reply::text(first.map_or("", |grant| grant.mode.word()))),
        ("holders", Reply::Integer(shown.holders)),
        ("seq", number(|grant| grant.sequence)),
        ("keepalive", number(|grant| grant.keepalive.as_millis() as u64)),
        ("waiters_behind", Reply::Integer(shown.waiters_behind)),
    ]
}

/// Returns one of several holders, in the fields that a node's reply to LOCK.INFO has.
fn grant(grant: &ShownGrant) -> Reply {
    let (number, limit) = match grant.mode {
        Mode::Permit(permit) => (permit.number(), permit.limit()),
        Mode::Exclusive | Mode::Shared => (0, 0),
    };
    Reply::Map(vec![
        ("owner", Reply::Bytes(grant.owner.clone())),
        ("token", Reply::Integer(grant.token)),
        ("mode", Reply::text(grant.mode.word())),
        ("permit", Reply::Integer(number.into())),
        ("limit", Reply::Integer(limit.into())),
        ("holds", Reply::Integer(grant.holds.into())),
        ("ttl", Reply::Integer(grant.ttl.as_millis() as u64)),
        ("held", Reply::Integer(grant.held.as_millis() as u64)),
        ("note", Reply::Bytes(grant.note.clone())),
        ("suspect", Reply::Integer(grant.is_suspect.into())),
        ("seq", Reply::Integer(grant.sequence)),
        ("keepalive", Reply::Integer(grant.keepalive.as_millis() as u64)),
        ("extended", Reply::Integer(grant.extended.as_millis() as u64)),
    ])
}

/// Returns one waiter, in the fields that a node's reply to LOCK.INFO has.
fn waiter(waiter: &ShownWaiter) -> Reply {
    Reply::Map(vec![
        ("owner", Reply::Bytes(waiter.owner.clone())),
        ("waited", Reply::Integer(waiter.waited.as_millis() as u64)),
        ("wants", Reply::text(if waiter.is_turn { "turn" } else { "lock" })),
        ("note", Reply::Bytes(waiter.note.clone())),
        ("mode", Reply::text(waiter.mode.clone())),
        ("behind", Reply::Integer(waiter.behind)),
    ])
}
