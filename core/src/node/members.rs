//! The node's part in its set: combines its [`Membership`] with its id, its leases and its tokens.

use palisade_quorum::{Accepted, Ballot, Member, Members};

use crate::members::Membership;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::values::limits::FLOOR_MAX;
use crate::values::time::Now;

impl Node {
    /// Returns what the node knows of its set.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Promises to ignore attempts for `version` that have a smaller ballot. Returns the list that the node accepted
    /// for it before, and the highest token that this node can have given to clients of the present version.
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

    /// Accepts `list` as the set's next version, and issues only tokens above `floor` from now on. Any majority of the
    /// next version shares a node with the majority that accepted it. So no client of the next version gets a token
    /// that a client of an earlier one had.
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
    /// versions. Returns whether the node did not know the decision before.
    ///
    /// # Errors
    /// As [`Membership::decide`].
    pub fn decide_members(&mut self, members: Members, now: Now) -> Result<bool, Refusal> {
        let longest_ms = self.ledger.outstanding_ttl().own_ms(now.boot);
        self.membership.decide(members, longest_ms, now.boot)
    }
}
