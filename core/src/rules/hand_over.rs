//! Hands a lock over to the first waiting request in its queue, because it became free, or because the request is
//! compatible with the holders.

use crate::lock::grant::GrantId;
use crate::lock::modes::Modes;
use crate::lock::{Lock, live};
use crate::node::Node;
use crate::queue::leaving::Next;
use crate::queue::of_key::{Search, Want};
use crate::refusal::Refusal;
use crate::request::{Acquire, Owner, Patience};
use crate::rules::grant::{Given, grant};
use crate::values::key::Key;
use crate::values::time::Now;

/// The outcome of a hand-over.
#[derive(Debug, PartialEq, Eq)]
pub enum HandedOver {
    /// The lock was free and is granted to the first waiting request. The driver has to store this lock in the key.
    Granted(Box<Lock>),
    /// The first waiting request got this grant: it joined the holders of a joint lock.
    Joined(GrantId),
    /// The lock is reserved for the first waiting request, whose answer is ready.
    Told,
    /// Nobody gets the lock. Nobody waits, or the first request is incompatible with the holders or with the
    /// reservations of others.
    Stays,
    /// The owner that holds the lock alone had repeated its request in the queue. This grant, the owner's own, now has a
    /// longer lease.
    Prolonged(GrantId),
    /// Nobody got the lock, but requests were answered whose owner already holds it, or the search for such requests is
    /// not finished. Another request may be next now, so the caller calls again.
    Answered,
}

/// Passes the lock of `key` to the first request in its queue whose time is not over, if it is free at `now`, or joint
/// in a compatible mode. `held` is the key's content: nothing if its lock has just ended. If more requests may get the
/// lock, the caller calls again. Answers are stored in [`crate::Waiting`].
///
/// A refusal changes nothing except for requests whose time is over. [`Node::postpone`] handles the waiting requests
/// then.
pub fn hand_over(key: Key<'_>, held: Option<&mut Lock>, node: &mut Node, now: Now) -> Result<HandedOver, Refusal> {
    let mut holders = None;
    if let Some(lock) = live(held, now.boot) {
        // This comes first: until the guard ends, no request gets the lock.
        node.guard.ensure_open(now.boot)?;
        if let Some(answered) = answer_holder(key, lock, node, now)? {
            return Ok(answered);
        }
        match lock {
            Lock::Exclusive(_) => return Ok(leave_as_is(key, node, now)),
            Lock::Joint(joint) => holders = Some(&mut **joint),
        }
    }
    let modes = holders.as_ref().map_or(Modes::free(), |holders| holders.modes());
    let (first, mode) = match node.queues().next(key, modes, now.boot) {
        Next::Request(first, mode) => (first, mode),
        Next::Blocked => return Ok(leave_as_is(key, node, now)),
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

/// Leaves the lock as it is, because nobody gets it now. Answers the requests that waited for the disk alone.
fn leave_as_is(key: Key<'_>, node: &mut Node, now: Now) -> HandedOver {
    let told = node.queues().answer_at_once(key, now.boot);
    node.count_contended(key, told);
    HandedOver::Stays
}

/// Answers the waiting requests of one owner that already holds the lock. The owner counts on its ttl from the end of
/// its wait, so its lease may become longer. Returns nothing if there are none, or if the lock has one holder, which has
/// its lease for long enough.
fn answer_holder(key: Key<'_>, lock: &mut Lock, node: &mut Node, now: Now) -> Result<Option<HandedOver>, Refusal> {
    let own = match lock {
        Lock::Exclusive(_) => lock.first_id(),
        Lock::Joint(joint) => {
            let holds = |owner: Owner<'_>| joint.find(owner).filter(|&id| !joint.grant(id).is_expired(now.boot));
            match node.waiting.find_holder(key, now.boot, holds) {
                Search::Found(own) => own,
                Search::Nobody => return Ok(None),
                Search::Unfinished => return Ok(Some(HandedOver::Answered)),
            }
        }
    };
    let grant = lock.grant(own);
    let trusted = node.ensure_trusted(grant, now.boot);
    let vouched = trusted.and_then(|()| node.slots.ensure_vouched(key.name, now.boot));
    let held_as = (lock.mode(own), grant.token(), grant.granted());
    let owner = Owner::new(grant.owner())?;
    let repeated = node.queues().held_by(key, owner, held_as, vouched, now.boot);
    node.keepalives.end_of_another(key, grant);
    if repeated.is_some_and(|ttl| lock.prolong(own, now.boot, ttl)) {
        return Ok(Some(HandedOver::Prolonged(own)));
    }
    Ok(matches!(lock, Lock::Joint(_)).then_some(HandedOver::Answered))
}
