//! A way into the node for checkers that break one of its rules on purpose, to see whether they notice.

use crate::durability::ledger::Ledger;
use crate::guard::Guard;
use crate::guard::slots::Slots;
use crate::members::Membership;
use crate::node::Node;
use crate::queue::waiting::Waiting;
use crate::tokens::Tokens;
use crate::values::time::BootTime;

/// What the rules keep, to be changed against them.
#[derive(Debug)]
pub struct Tamper<'a> {
    /// Highest tokens and ceilings.
    pub tokens: &'a mut Tokens,
    /// The guard of the whole node.
    pub guard: &'a mut Guard,
    /// What is known of a cluster's slots.
    pub slots: &'a mut Slots,
    /// Requests that wait.
    pub waiting: &'a mut Waiting,
    /// The set of nodes that it is in.
    pub membership: &'a mut Membership,
    /// What is on the disk.
    pub ledger: &'a mut Ledger,
    /// Since when locks are trusted.
    pub trusted_since: &'a mut BootTime,
}

impl Node {
    /// Not for a driver: whatever is changed here, no rule vouches for.
    pub fn tamper(&mut self) -> Tamper<'_> {
        Tamper {
            tokens: &mut self.tokens,
            guard: &mut self.guard,
            slots: &mut self.slots,
            waiting: &mut self.waiting,
            membership: &mut self.membership,
            ledger: &mut self.ledger,
            trusted_since: &mut self.trusted_since,
        }
    }
}
