//! LOCK.WAIT: waits for an owner's turn.

use crate::lock::Lock;
use crate::lock::modes::Modes;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::Wait;
use crate::values::key::Key;
use crate::values::time::Now;

/// The outcome of a LOCK.WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The lock is free for this owner now, and reserved for it for a moment, if there is room for a reservation. Or
    /// the owner holds it already. The number is that of the permit; 0 for another mode.
    Turn(u16),
    /// The owner cannot have the lock now. The request takes a place in the queue.
    Queues,
    /// The owner cannot have the lock now, and the request does not wait.
    TimedOut,
}

/// Decides whether the requesting owner could have the lock of `key` at `now`. `held` is the key's content; no lock is
/// changed. If the request is refused for a reason that passes before its wait ends, [`Refusal::or_queue`] queues it.
pub fn wait(key: Key<'_>, held: Option<&Lock>, ask: &Wait<'_>, node: &mut Node, now: Now) -> Result<Waited, Refusal> {
    let held = held.filter(|lock| !lock.is_expired(now.boot));
    if let Some(lock) = held
        && let Some(own) = lock.find(ask.owner).filter(|&own| !lock.grant(own).is_expired(now.boot))
    {
        // The owner holds the lock already; in the queue it would wait for itself.
        return if ask.wanted.is(lock.mode(own)) {
            Ok(Waited::Turn(lock.mode(own).number()))
        } else {
            Err(Refusal::Owned)
        };
    }
    node.ensure_may_grant(key, ask.owner, !matches!(held, Some(Lock::Exclusive(_))), now.boot)?;
    let modes = match held {
        None => Some(Modes::free()),
        Some(Lock::Joint(holders)) => Some(holders.modes()),
        Some(Lock::Exclusive(_)) => None,
    };
    if let Some(mode) = modes.and_then(|modes| node.waiting.claim(key, ask.owner, ask.wanted, modes, now.boot)) {
        // An existing reservation is not made longer, for it could then last forever. If there is no room for a
        // reservation, the owner gets its turn all the same, since the lock is free for it now.
        if node.waiting.turn_of(key, ask.owner) != Some(mode) && node.has_room_for_turn(key, ask.owner) {
            node.queues().reserve(key, ask.owner, mode, now.boot);
        }
        return Ok(Waited::Turn(mode.number()));
    }
    if ask.patience.ms() == 0 {
        return Ok(Waited::TimedOut);
    }
    node.waiting.room_for(key, ask.owner).map(|()| Waited::Queues)
}
