//! LOCK.WAIT: who wants to be told when a lock is free.

use crate::lock::Lock;
use crate::node::Node;
use crate::queue::of_key::Claim;
use crate::refusal::Refusal;
use crate::request::Wait;
use crate::values::time::Now;

/// What came of a LOCK.WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It is free for this owner now, and kept so for a moment, or its own already.
    Turn,
    /// Not yet: it takes its place in the queue.
    Queues,
    /// It is not free, and there is no patience to wait.
    TimedOut,
}

/// Whether the lock `name` of `db` is free for this owner at `now`; `held` is what the key holds. It changes no lock.
/// Of a refusal that passes before the request's patience ends, [`Refusal::or_queue`] makes a place in the queue.
pub fn wait(
    db: u32,
    name: &[u8],
    held: Option<&Lock>,
    ask: &Wait<'_>,
    node: &mut Node,
    now: Now,
) -> Result<Waited, Refusal> {
    let held = held.filter(|lock| !lock.is_expired(now.boot));
    if held.is_some_and(|lock| lock.is_of(ask.owner)) {
        return Ok(Waited::Turn);
    }
    node.guard.ensure_open(now.boot)?;
    node.slots.ensure_open(name, now.boot)?;
    if held.is_none() {
        node.evicted.ensure_open(db, name, ask.owner, now.boot)?;
        match node.waiting.claim(db, name, ask.owner, now.boot) {
            Claim::Nobody => {
                node.waiting.room()?;
                node.waiting.reserve(db, name, ask.owner, now.boot);
                return Ok(Waited::Turn);
            }
            // Kept for it already: no longer than until its end, or it could keep it for ever.
            Claim::Own => return Ok(Waited::Turn),
            Claim::Others => {}
        }
    }
    if ask.patience.ms() == 0 {
        return Ok(Waited::TimedOut);
    }
    node.waiting.room_for(db, name, ask.owner).map(|()| Waited::Queues)
}
