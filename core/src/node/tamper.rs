//! Access to the node's fields for checkers that break a rule on purpose, to test that they notice it.

use crate::durability::ledger::Ledger;
use crate::guard::Guard;
use crate::guard::slots::Slots;
use crate::members::Membership;
use crate::node::Node;
use crate::queue::waiting::Waiting;
use crate::tokens::Tokens;
use crate::values::time::BootTime;

/// The node's fields, for changes that break a rule on purpose.
#[derive(Debug)]
pub struct Tamper<'a> {
    /// The highest tokens issued, and the ceilings.
    pub tokens: &'a mut Tokens,
    /// The guard of the whole node.
    pub guard: &'a mut Guard,
    /// In a cluster, the slots that the node serves, and the guards of single slots.
    pub slots: &'a mut Slots,
    /// The requests that wait in queues.
    pub waiting: &'a mut Waiting,
    /// The set of nodes that the node belongs to.
    pub membership: &'a mut Membership,
    /// The record of which part of the node's state is on the disk.
    pub ledger: &'a mut Ledger,
    /// Locks that were granted before this time are suspect: they can only be released, or end.
    pub trusted_since: &'a mut BootTime,
}

impl Node {
    /// Returns the node's fields, for changes that break a rule on purpose. Drivers must not use this: no rule checks
    /// the changes.
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
