//! What anybody may ask of a lock: CHECK, INFO, WATCH; and what an operator may do to it: BREAK.

use palisade_client::by_owner::{Shown, ShownGrant, ShownWaiter};
use palisade_core::request::{NoteSequence, Patience};
use palisade_core::{Mode, Refusal, Token};

use super::command::{Call, Command, Run, Work};
use crate::refused::Refused;
use crate::reply::Reply;
use crate::spec::Spec;
use crate::values::{KnownToken, ListedHolders, ListedWaiters, ms};
use crate::words::arguments;

arguments! {
    /// What CHECK is asked.
    struct Check {
        token: Token,
    }
}

arguments! {
    /// What INFO is asked.
    struct Info {
        [HOLDERS n] holders: ListedHolders,
        [WAITERS n] waiters: ListedWaiters,
    }
}

arguments! {
    /// What WATCH is asked.
    struct Watch {
        ms: Patience,
        [TOKEN t as token] token: KnownToken,
        [SEQ n] seq: NoteSequence,
    }
}

arguments! {
    /// What BREAK is asked.
    struct Break {
        [TOKEN t as token] token: Token,
    }
}

/// Is this token the current grant?
pub const CHECK: Command = Command {
    spec: Spec {
        name: "LOCK.CHECK",
        summary: "Answers how many milliseconds are left of the grant with exactly this token; Null if it is not the current one.",
        has_key: true,
        writes: false,
        is_open: false,
        arguments: Check::ARGUMENTS,
    },
    run: Run::OfLocks(check),
};

/// Who holds the lock?
pub const INFO: Command = Command {
    spec: Spec {
        name: "LOCK.INFO",
        summary: "Answers who holds a lock, with which token, since when and for how long, of several holders the first; all of them and the first \
                  who wait for it if asked; Null if it is free.",
        has_key: true,
        writes: false,
        is_open: false,
        arguments: Info::ARGUMENTS,
    },
    run: Run::OfLocks(info),
};

/// Tells when a lock is not what the caller knows.
pub const WATCH: Command = Command {
    spec: Spec {
        name: "LOCK.WATCH",
        summary: "Waits until no grant has this token, or its note is newer; without TOKEN until somebody holds the lock. Answers as LOCK.INFO what \
                  it is then, with token 0 if it is free; Null if nothing happened in time.",
        has_key: true,
        writes: false,
        is_open: false,
        arguments: Watch::ARGUMENTS,
    },
    run: Run::OfLocks(watch),
};

/// Takes the lock from whoever holds it.
pub const BREAK: Command = Command {
    spec: Spec {
        name: "LOCK.BREAK",
        summary: "Frees a lock whoever holds it, or ends the grants with one token, and answers the largest broken token; Null if there is none. \
                  For operators: the holder goes on until it hears of that.",
        has_key: true,
        writes: true,
        is_open: false,
        arguments: Break::ARGUMENTS,
    },
    run: Run::OfLocks(break_lock),
};

fn check(Call { state, key, words, .. }: Call) -> Result<Work, Refused> {
    let Check { token } = Check::read(words)?;
    Ok(Work::asks(async move {
        let left = state.locks.check(&key, token.get()).await?;
        Ok(Reply::or_null(left.map(|left| left.as_millis() as u64)))
    }))
}

fn info(Call { state, key, words, .. }: Call) -> Result<Work, Refused> {
    let Info { holders, waiters } = Info::read(words)?;
    Ok(Work::asks(async move {
        let listed = waiters.as_ref().map(|ListedWaiters(count)| *count);
        let Some(shown) = state.locks.info(&key, listed).await? else { return Ok(Reply::Null) };
        let mut fields = fields(&shown);
        if let Some(ListedHolders(count)) = holders {
            fields.push(("grants", Reply::List(shown.grants.iter().take(count).map(grant).collect())));
        }
        if let Some(count) = listed {
            fields.push(("queue", Reply::List(shown.queue.iter().take(count).map(waiter).collect())));
            let (owner, left) = shown.reserved.unwrap_or_default();
            fields.push(("reserved", Reply::Bytes(owner)));
            // Rounded up, as a node does: none is left of it only when it is over.
            fields.push(("reserved_ms", Reply::Integer(left.as_micros().div_ceil(1_000) as u64)));
        }
        Ok(Reply::Map(fields))
    }))
}

fn watch(Call { state, key, words, .. }: Call) -> Result<Work, Refused> {
    let Watch { ms: patience, token, seq } = Watch::read(words)?;
    let known = match (token, seq) {
        (Some(KnownToken(Some(token))), seq) => (token.get(), seq.map(NoteSequence::get)),
        (None | Some(KnownToken(None)), None) => (0, None),
        (_, Some(_)) => return Err(Refusal::Needs { option: "SEQ", needs: "TOKEN" }.into()),
    };
    Ok(Work::waits(async move {
        let differs = state.locks.watch(&key, known, ms(patience.ms())).await?;
        Ok(differs.map_or(Reply::Null, |shown| Reply::Map(fields(&shown))))
    }))
}

fn break_lock(Call { state, key, words, .. }: Call) -> Result<Work, Refused> {
    let Break { token } = Break::read(words)?;
    Ok(Work::does(async move { Ok(Reply::or_null(state.locks.break_lock(&key, token.map(Token::get)).await?)) }))
}

/// What the lock looks like, as a node shows it: of several grants those of the oldest; of a free lock texts are empty, and numbers 0.
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

/// One of several holders, as a node shows it.
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

/// One who waits, as a node shows it.
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
