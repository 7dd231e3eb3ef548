//! The preconditions of a rule: everything that must be done or known before the rule is called. A new precondition
//! gets its variant here, and a stage of [`super::run`] that establishes it.

use super::step::Request;
use crate::lock::Lock;
use crate::node::Node;
use crate::values::key::Key;
use crate::values::time::Now;

/// The preconditions, in the order in which they are established.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Precondition {
    /// The lock has no ended grant beside live ones. (Ended grants are removed first.)
    NoneIsOver,
    /// The queue has been served: waiting requests come before the present one.
    QueueServed,
    /// The node has read that it serves the key's slot, so it knows what it may grant there.
    SlotKnown,
    /// The disk has everything that a later incarnation must know.
    OnDisk,
}

/// Returns the first precondition of `request`, from `from` on, that is not yet met for `key` and its content `held`.
/// `None` if the rule can be called.
// Inlined: little of it is left for a usual ACQUIRE or RELEASE (`make instructions`).
#[inline(always)]
pub(super) fn unmet(
    from: Precondition,
    (request, key): (&Request<'_>, Key<'_>),
    held: Option<&Lock>,
    node: &Node,
    now: Now,
) -> Option<Precondition> {
    use Precondition::{NoneIsOver, OnDisk, QueueServed, SlotKnown};
    let needs = |precondition| from <= precondition && is_needed(precondition, request);
    if needs(NoneIsOver) && matches!(held, Some(lock @ Lock::Joint(_)) if lock.ended(now.boot).is_some()) {
        Some(NoneIsOver)
    } else if needs(QueueServed) && node.waiting.has_queue(key) {
        Some(QueueServed)
    } else if needs(SlotKnown) && must_read_slots(request, key, node, now) {
        Some(SlotKnown)
    } else if needs(OnDisk) && !node.ledger.is_ready() {
        Some(OnDisk)
    } else {
        None
    }
}

/// Returns whether the slots have to be read before this request is decided. A request about a present grant promises
/// nothing new in a slot that the node serves.
#[inline(always)]
fn must_read_slots(request: &Request<'_>, key: Key<'_>, node: &Node, now: Now) -> bool {
    match request.is_about_own_grant() {
        true => node.slots.may_be_elsewhere(key.name, now.boot),
        false => node.slots.must_read_slots(key.name),
    }
}

#[inline(always)]
fn is_needed(precondition: Precondition, request: &Request<'_>) -> bool {
    match request {
        Request::Acquire(_) => true,
        Request::Convert(_) => precondition != Precondition::QueueServed,
        Request::Wait(_) => precondition >= Precondition::SlotKnown,
        Request::Extend(_) | Request::Reenter(_) | Request::Fence(..) | Request::Note(_) => {
            precondition >= Precondition::SlotKnown
        }
        // The slots were read a moment ago, and reading them for each of thousands of leases would take long.
        Request::Renew(_) => precondition == Precondition::OnDisk,
        Request::Expire(_) | Request::Look => precondition == Precondition::NoneIsOver,
        Request::Release(_) | Request::Break(_) | Request::BreakOn(_) => false,
    }
}
