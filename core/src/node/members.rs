//! The node's set of nodes: [`Membership`] combined with the node's id, its leases and its tokens.

use palisade_quorum::{Accepted, Ballot, Member, Members};

use crate::members::Membership;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::values::limits::FLOOR_MAX;
use crate::values::time::Now;

impl Node {
    /// Returns the node's knowledge of its set.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Promises to take part in no attempt for `version` with a smaller ballot. Returns the list that the node accepted
    /// before, and the highest token that clients of the present version can have from it.
    ///
    /// # Errors
    /// As [`Membership::promise`].
    pub fn promise_members(
        &mut self,
        version: u64,
        ballot: Ballot,
        now: Now,
    ) -> Result<(Option<Accepted>, u64), Refusal> {
        let own = self.ledger.incarnation().node;
        let accepted = self.membership.promise(version, ballot, own, now.boot)?.cloned();
        let (within_reach, _) = self.tokens.to_tell(now.wall_us, self.skew_ms);
        let highest = self.tokens.high().max(self.tokens.floor()).max(within_reach);
        Ok((accepted, highest.clamp(1, FLOOR_MAX)))
    }

    /// Accepts `list` for `version`, and issues no token up to `floor` any longer. Any majority of that version shares
    /// a node with the one that accepted it, so no client of that version gets a token that a client of an earlier
    /// version had.
    ///
    /// # Errors
    /// As [`Membership::accept`].
    pub fn accept_members(
        &mut self,
        version: u64,
        ballot: Ballot,
        list: Vec<Member>,
        floor: u64,
        now: Now,
    ) -> Result<(), Refusal> {
        let own = self.ledger.incarnation().node;
        self.membership.accept(version, ballot, list, own, now.boot)?;
        self.raise_floor(floor);
        Ok(())
    }

    /// Records that `members` were decided as the set: from now on the node accepts nothing from clients of older
    /// versions. Returns whether the decision is new.
    ///
    /// # Errors
    /// As [`Membership::decide`].
    pub fn decide_members(&mut self, members: Members, now: Now) -> Result<bool, Refusal> {
        let longest_ms = self.ledger.outstanding_ttl().own_ms(now.boot);
        self.membership.decide(members, longest_ms, now.boot)
    }
}
