//! The set of nodes that the node is in: [`Membership`] with what the node knows of its id, its leases and its tokens.

use palisade_quorum::{Accepted, Ballot, Member, Members};

use crate::members::Membership;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::values::limits::FLOOR_MAX;
use crate::values::time::Now;

impl Node {
    /// What it knows of its set.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// It promises to take part in no attempt to find `version` with a smaller ballot. What it accepted before, and the highest token
    /// that clients of the present version can have had from it.
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

    /// It accepts `list` for `version`, and issues no token up to `floor` any more: any majority of that version meets the one that
    /// accepted it, so no client of that version gets a token that one of an earlier version had.
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

    /// It is told that `members` are the set: it takes nothing from clients of older versions from now on. Whether that is news.
    ///
    /// # Errors
    /// As [`Membership::decide`].
    pub fn decide_members(&mut self, members: Members, now: Now) -> Result<bool, Refusal> {
        let longest_ms = self.ledger.outstanding_ttl().own_ms(now.boot);
        self.membership.decide(members, longest_ms, now.boot)
    }
}
