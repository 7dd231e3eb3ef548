//! Whose a lock is that got free, or that more may join: the first in its queue.

use crate::lock::grant::GrantId;
use crate::lock::modes::Modes;
use crate::lock::{Lock, live};
use crate::node::Node;
use crate::queue::leaving::Next;
use crate::queue::of_key::Want;
use crate::refusal::Refusal;
use crate::request::{Acquire, Owner, Patience};
use crate::rules::grant::{Given, grant};
use crate::values::key::Key;
use crate::values::time::Now;

/// What came of a hand-over.
#[derive(Debug, PartialEq, Eq)]
pub enum HandedOver {
    /// It passes to the first who waits and is now this one: store it.
    Granted(Box<Lock>),
    /// This grant, of the first who waited, joined those who hold it together.
    Joined(GrantId),
    /// It is kept for the first who waited, who was told.
    Told,
    /// Nobody gets it: nobody waits, or what is held or kept for others does not go with what the first wants.
    Stays,
    /// It is held by an owner whose repeated request waited: the lease of this grant lasts longer now.
    Prolonged(GrantId),
    /// Owners that hold it together with others were answered: somebody else may be next now.
    Answered,
}

/// Passes the lock of `key` to the first live request in its queue, if it is free at `now` or held together in a mode that
/// goes with the one that is wanted; `held` is what the key holds, nothing if its lock has just ended. Where more than one may get
/// it, it is asked again. Answers are left in [`crate::Waiting`].
///
/// While it is refused nothing changes but for those whose time is up. [`Node::postpone`] says what comes of
/// those who wait.
pub fn hand_over(key: Key<'_>, held: Option<&mut Lock>, node: &mut Node, now: Now) -> Result<HandedOver, Refusal> {
    let mut holders = None;
    if let Some(lock) = live(held, now.boot) {
        // Nobody gets it before the guard ends, whatever its holders do.
        node.guard.ensure_open(now.boot)?;
        let waited = node.waiting.len_of(key);
        if let Some(prolonged) = answer_holders(key, lock, node, now)? {
            return Ok(HandedOver::Prolonged(prolonged));
        }
        if matches!(lock, Lock::Joint(_)) && node.waiting.len_of(key) < waited {
            return Ok(HandedOver::Answered);
        }
        match lock {
            Lock::Exclusive(_) => return Ok(stays(key, node, now)),
            Lock::Joint(joint) => holders = Some(&mut **joint),
        }
    }
    let modes = holders.as_ref().map_or(Modes::free(), |holders| holders.modes());
    let (first, mode) = match node.queues().next(key, modes, now.boot) {
        Next::Request(first, mode) => (first, mode),
        Next::Blocked => return Ok(stays(key, node, now)),
        Next::Nobody => return Ok(HandedOver::Stays),
    };
    let owner = first.owner();
    node.ensure_may_grant(key, owner, true, now.boot)?;
    match first.want {
        Want::Lock { ttl, fence, retry } => {
            let wanted = first.wanted;
            let ask = Acquire {
                owner,
                ttl,
                wanted,
                retry,
                fence,
                note: first.note(),
                patience: Patience::NONE,
                behind: first.behind,
            };
            let given = grant(key, holders, &ask, mode, node, now)?;
            node.counters.hand_overs += 1;
            Ok(match given {
                Given::Anew(lock) => HandedOver::Granted(lock),
                Given::Joined(id) => HandedOver::Joined(id),
            })
        }
        Want::Turn => {
            node.counters.turns += 1;
            node.queues().reserve(key, owner, mode, now.boot);
            Ok(HandedOver::Told)
        }
    }
}

/// Nobody gets it now: those are told who want their answer at once.
fn stays(key: Key<'_>, node: &mut Node, now: Now) -> HandedOver {
    let told = node.queues().answer_at_once(key, now.boot);
    node.contended(key, told);
    HandedOver::Stays
}

/// Owners that hold the lock already need not wait for it: answers their requests. The grant whose lease got longer by that, as
/// its owner counts on the ttl from the moment at which its wait ends.
fn answer_holders(key: Key<'_>, lock: &mut Lock, node: &mut Node, now: Now) -> Result<Option<GrantId>, Refusal> {
    loop {
        let own = match lock {
            Lock::Exclusive(_) => Some(lock.first_id()),
            Lock::Joint(joint) => node.waiting.owners_at_hand(key).find_map(|owner| joint.find(owner)),
        };
        let Some(own) = own.filter(|&own| !lock.grant(own).is_expired(now.boot)) else { return Ok(None) };
        let grant = lock.grant(own);
        let vouched = node.ensure_trusted(grant, now.boot);
        let held_as = (lock.mode(own), grant.token());
        let owner = Owner::new(grant.owner())?;
        let repeated = node.queues().held_by(key, owner, held_as, vouched, now.boot);
        node.keepalives.end_earlier(key, owner, grant.granted());
        if repeated.is_some_and(|ttl| lock.prolong(own, now.boot, ttl)) {
            return Ok(Some(own));
        }
        if matches!(lock, Lock::Exclusive(_)) {
            return Ok(None);
        }
    }
}
