//! Access to the node's fields for checkers that break one of its rules on purpose, to test whether they notice.

use crate::durability::ledger::Ledger;
use crate::guard::Guard;
use crate::guard::slots::Slots;
use crate::members::Membership;
use crate::node::Node;
use crate::queue::waiting::Waiting;
use crate::tokens::Tokens;
use crate::values::time::BootTime;

/// Fields of the rules, for changes against them.
#[derive(Debug)]
pub struct Tamper<'a> {
    /// The highest tokens and ceilings.
    pub tokens: &'a mut Tokens,
    /// The guard of the whole node.
    pub guard: &'a mut Guard,
    /// The slots of a cluster.
    pub slots: &'a mut Slots,
    /// The waiting requests.
    pub waiting: &'a mut Waiting,
    /// The set of nodes that the node belongs to.
    pub membership: &'a mut Membership,
    /// The state that is on the disk.
    pub ledger: &'a mut Ledger,
    /// The time since which locks are trusted.
    pub trusted_since: &'a mut BootTime,
}

impl Node {
    /// Returns the fields. Drivers must not use this: no rule vouches for the changes.
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
