//! Grants a lock, to a requester or to a waiting request.

use crate::history::ending::Ending;
use crate::lock::Lock;
use crate::lock::grant::{Grant, GrantId};
use crate::lock::holders::Holders;
use crate::lock::phase::Past;
use crate::lock::waited::Waited;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::Acquire;
use crate::values::key::Key;
use crate::values::limits::HOLDERS_MAX;
use crate::values::mode::Mode;
use crate::values::time::Now;
use crate::values::token::Token;

/// A grant that was just made, and what the caller has to do with it.
pub(crate) enum Given {
    /// The lock was free and is now granted; the caller has to store it. It is created on the heap, where the key needs
    /// it. Otherwise it would be copied from call to call, in pieces for which the processor has to wait.
    Anew(Box<Lock>),
    /// The grant joined the holders of a joint lock.
    Joined(GrantId),
}

/// Grants the lock of `key` to `ask` in `mode`. If other owners hold the lock, the grant joins its `holders`.
#[inline(always)]
pub(crate) fn grant(
    key: Key<'_>,
    holders: Option<&mut Holders>,
    ask: &Acquire<'_>,
    mode: Mode,
    node: &mut Node,
    now: Now,
) -> Result<Given, Refusal> {
    node.prepare_token(key, ask.fence, now)?;
    let Some(holders) = holders else {
        let past = match mode {
            Mode::Exclusive => Past::default(),
            // A reader's token need not be larger than those of earlier readers.
            Mode::Shared => Past { last: node.tokens.last_ordered(key.name), swaps: node.swaps },
            Mode::Permit(_) => node.past(key),
        };
        let token = match mode {
            Mode::Shared => node.tokens.issue_above(past.last, key.name, mode, ask.fence, now, node.skew_ms)?,
            _ => node.tokens.issue(key.name, ask.fence, now, node.skew_ms)?,
        };
        let lock = Lock::of(mode, given(key, ask, mode, token, node, now), past);
        return Ok(Given::Anew(node.spare.put(lock)));
    };
    let past = node.past(key);
    if holders.len() >= HOLDERS_MAX {
        return Err(Refusal::HoldersExhausted);
    }
    let floor = holders.phase(past).floor_of(mode, past.last).max(node.tokens.floor());
    let token = node.tokens.issue_above(floor, key.name, mode, ask.fence, now, node.skew_ms)?;
    // An earlier grant of this owner ends here: its lease is over, but it was not removed yet. Others hold the lock, so
    // it is one of several grants.
    if let Some(own) = holders.find(ask.owner) {
        let was = holders.mode(own);
        node.record_grant_end(key, (was, &holders.take(own)), Ending::Expired, now.boot);
        node.counters.expiries += 1;
    }
    Ok(Given::Joined(holders.join(mode, given(key, ask, mode, token, node, now))))
}

/// Creates the grant with `token`, and updates what the node remembers of the key.
// Inlined with the functions that it calls, so that no grant is copied on its way. That saves a hundred instructions
// per ACQUIRE (`make instructions`).
#[inline(always)]
fn given(key: Key<'_>, ask: &Acquire<'_>, mode: Mode, token: Token, node: &mut Node, now: Now) -> Grant {
    // If a lease of this owner is kept alive, it belongs to an earlier grant, which has ended.
    node.keepalives.on_grant_ended(key, ask.owner.bytes());
    node.counters.grants += 1;
    match mode {
        Mode::Exclusive => {}
        Mode::Shared => node.counters.shared_grants += 1,
        Mode::Permit(_) => node.counters.permit_grants += 1,
    }
    let (mut ttl, mut waited) = (ask.ttl, Waited::default());
    if node.waiting.has_queue(key) {
        // The owner may have further requests in the queue. All are answered with this grant, so its lease is the
        // longest that any of them asks for.
        let asked = node.waiting.longest_ttl(key, ask.owner, mode);
        ttl = asked.filter(|asked| asked.ms() > ttl.ms()).unwrap_or(ttl);
        let since = node.queues().answer_granted(key, ask.owner, (mode, token), now.boot);
        waited = Waited::of_ms(now.boot.ms_since(since));
        if mode == Mode::Exclusive {
            let told = node.queues().answer_at_once(key, now.boot);
            node.count_contended(key, told);
        }
    }
    Grant::new(ask.owner, ask.note, token, now.boot, ttl).after(waited)
}
