//! `LOCK.LOG [KEY key] [COUNT n] | RESET`

use palisade_core::limits::LOG_LISTED_DEFAULT;
use palisade_core::request::{self, ListedEntries};
use palisade_core::{About, Entry, Mode, Now, Refusal, Wanted};

use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, state};

/// LOCK.LOG: shows which grants took long, and which waits failed.
pub struct Log;

impl Command for Log {
    const SPEC: Spec = Spec::new(request::Log::SPEC, AclGroup::Admin, "1.0.0", "O(N) where N is the number of entries");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Log { key, count, reset } = request::Log::read(call.words(), config::bounds())?;
        if reset {
            return match (key, count) {
                (None, None) => Ok(forget()),
                (Some(_), _) => Err(Refusal::Excludes { options: "RESET and KEY" }),
                (None, Some(_)) => Err(Refusal::Excludes { options: "RESET and COUNT" }),
            };
        }
        let count = count.map_or(LOG_LISTED_DEFAULT, |ListedEntries(count)| count);
        let now = clock::now();
        let entries = state::with(|node| {
            let log = node.history().log();
            match key {
                Some(name) => log.of(name).take(count).map(|entry| describe(entry, now)).collect(),
                None => log.entries().take(count).map(|entry| describe(entry, now)).collect(),
            }
        });
        Ok(Reply::List(entries))
    }
}

fn forget() -> Reply {
    state::with(|node| node.history_mut().reset_log());
    Reply::Ok
}

/// Describes one entry. Its time is calculated from the present wall clock. If that clock was set since, the times of
/// all entries move with it.
fn describe(entry: &Entry, now: Now) -> Reply {
    let ago_us = now.boot.us_since(entry.at);
    let (token, mode, (number, limit)) = match entry.about {
        About::Grant(token, mode) => (token.get(), mode.word(), permit_of(mode)),
        About::Wait(wanted) => (0, wanted.word(), wanted_permit(wanted)),
    };
    Reply::Map(vec![
        ("id", Reply::Integer(entry.id)),
        ("time", Reply::Integer(now.wall_us.saturating_sub(ago_us) / 1_000)),
        ("db", Reply::Integer(entry.db.into())),
        ("key", Reply::Bytes(entry.name.to_vec())),
        ("owner", Reply::Bytes(entry.owner.to_vec())),
        ("token", Reply::Integer(token)),
        ("mode", Reply::Bytes(mode.into())),
        ("permit", Reply::Integer(number.into())),
        ("limit", Reply::Integer(limit.into())),
        ("note", Reply::Bytes(entry.note.to_vec())),
        ("waited", Reply::Integer(entry.waited_ms)),
        ("held", Reply::Integer(entry.held_ms)),
        ("ended", Reply::Bytes(entry.ending.word().into())),
        ("error", Reply::Bytes(entry.ending.code().into_bytes())),
        ("waiters", Reply::Integer(entry.waiters as u64)),
    ])
}

/// Returns the number and the limit of a permit; 0 for another mode.
fn permit_of(mode: Mode) -> (u16, u16) {
    match mode {
        Mode::Permit(permit) => (permit.number(), permit.limit()),
        Mode::Exclusive | Mode::Shared => (0, 0),
    }
}

/// Returns the number and the limit of a requested permit; 0 for another mode.
fn wanted_permit(wanted: Wanted) -> (u16, u16) {
    match wanted {
        Wanted::Permit { limit, number } => (number.unwrap_or(0), limit),
        Wanted::Exclusive | Wanted::Shared => (0, 0),
    }
}
