//! Whose a lock is that got free: the first in its queue.

use crate::lock::{Lock, live};
use crate::node::Node;
use crate::queue::of_key::Want;
use crate::queue::waiting::Next;
use crate::refusal::Refusal;
use crate::request::{Acquire, Owner};
use crate::values::time::Now;
use crate::values::token::Token;

/// What came of a hand-over.
#[derive(Debug, PartialEq, Eq)]
pub enum HandedOver {
    /// It passes to the first who waits and is now this one: store it.
    Granted(Lock),
    /// It stays free: nobody waits, or it is kept for somebody who was told.
    Free,
    /// It is held.
    Held,
    /// It is held by an owner whose repeated request waited: its lease lasts longer now, store the lock.
    Prolonged,
}

/// Passes the lock `name` of `db`, if it is free at `now`, to the first live request in its queue; `held` is what the
/// key holds, nothing if its lock has just ended. Answers are left in [`crate::Waiting`].
///
/// While it is refused nothing changes but for those whose time is up. [`crate::Waiting::postpone`] says what comes of
/// those who wait.
pub fn hand_over(
    db: u32,
    name: &[u8],
    held: Option<&mut Lock>,
    node: &mut Node,
    now: Now,
) -> Result<HandedOver, Refusal> {
    if let Some(lock) = live(held, now.boot) {
        // Nobody gets it before the guard ends, whatever its holder does.
        node.guard.ensure_open(now.boot)?;
        let vouched = node.ensure_trusted(lock, now.boot);
        let owner = Owner::new(lock.owner())?;
        let repeated = node.waiting.held_by(db, name, owner, lock.token(), vouched, now.boot);
        node.counters.contended += node.waiting.answer_at_once(db, name, now.boot);
        // Its owner counts on the ttl from the moment at which its wait ends.
        let prolonged = repeated.is_some_and(|ttl| lock.prolong(now.boot, ttl));
        return Ok(if prolonged { HandedOver::Prolonged } else { HandedOver::Held });
    }
    let first = match node.waiting.next(db, name, now.boot) {
        Next::Request(first) => first,
        Next::KeptUntil(until) => {
            node.counters.contended += node.waiting.answer_at_once(db, name, now.boot);
            node.waiting.wake_at(db, name, until.plus_us(1));
            return Ok(HandedOver::Free);
        }
        Next::Nobody => return Ok(HandedOver::Free),
    };
    node.guard.ensure_open(now.boot)?;
    node.slots.ensure_open(name, now.boot)?;
    node.evicted.ensure_open(db, name, first.owner(), now.boot)?;
    let owner = first.owner();
    match first.want {
        Want::Lock { ttl, fence, retry } => {
            let token = node.tokens.issue(name, fence, now, node.skew_ms)?;
            node.counters.hand_overs += 1;
            let patience = crate::request::Patience::NONE;
            let ask = Acquire { owner, ttl, retry, fence, note: first.note(), patience };
            Ok(HandedOver::Granted(grant(db, name, &ask, token, node, now)))
        }
        Want::Turn => {
            node.counters.turns += 1;
            node.waiting.reserve(db, name, owner, now.boot);
            node.counters.contended += node.waiting.answer_at_once(db, name, now.boot);
            Ok(HandedOver::Free)
        }
    }
}

/// The lock that `ask` is granted with `token`, and what the node remembers of it.
pub(crate) fn grant(db: u32, name: &[u8], ask: &Acquire<'_>, token: Token, node: &mut Node, now: Now) -> Lock {
    node.evicted.forget(db, name);
    node.counters.grants += 1;
    // All requests of its owner are answered, so the lease is the longest that any of them was told of.
    let longest = node.waiting.longest_ttl(db, name, ask.owner).into_iter().chain([ask.ttl]).max_by_key(|ttl| ttl.ms());
    node.waiting.granted(db, name, ask.owner, token, now.boot);
    node.counters.contended += node.waiting.answer_at_once(db, name, now.boot);
    Lock::new(ask.owner, ask.note, token, now.boot, longest.unwrap_or(ask.ttl))
}
