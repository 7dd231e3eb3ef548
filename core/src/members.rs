//! A node's knowledge of its set, and how nodes agree on the next version.
//!
//! Agreement is Paxos (Lamport, "Paxos made simple", 2001), once for each version, with the members of the version
//! before as acceptors. A client that changes the set chooses a ballot, and asks a majority to promise that they accept
//! nothing of a smaller one. It then proposes the list that they accepted with the highest earlier ballot, or its own
//! if there is none, and has that accepted by a majority. So two concurrent changers, or one that died half-way, cannot
//! give one version two lists. A node learns the version when it is *decided*, and from then on accepts nothing from
//! clients of older ones.
//!
//! The promise, the accepted list and the decision are on the disk before they are answered. A node that lost its state
//! file has another id, so it is not a member.

use palisade_quorum::{Accepted, Ballot, Member, Members};

use crate::refusal::Refusal;
use crate::values::time::BootTime;

/// A node's knowledge of its set: the decided version, and the node's promise for the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Membership {
    saved: SavedMembership,
    /// The time until which clients of older versions of the set may still have leases.
    unsettled_until: BootTime,
}

/// The part of a [`Membership`] that is in the state file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SavedMembership {
    /// The latest decided version that the node knows.
    pub decided: Members,
    /// The smallest ballot that the node still accepts for the next version: it has promised to refuse smaller ones.
    pub promised: Ballot,
    /// The list that the node accepted as the next version.
    pub accepted: Option<Accepted>,
}

impl Membership {
    /// Restores the membership of a node that starts at `now`. Clients of older versions may have leases for up to
    /// `longest_ms` from now.
    pub fn restore(saved: SavedMembership, longest_ms: u32, now: BootTime) -> Self {
        Self { saved, unsettled_until: now.plus_ms(longest_ms) }
    }

    /// Returns the part that goes into the state file, for a later incarnation.
    pub fn saved(&self) -> &SavedMembership {
        &self.saved
    }

    /// Returns the latest decided version that the node knows.
    pub fn decided(&self) -> &Members {
        &self.saved.decided
    }

    /// Returns whether a client that uses this version of the set may ask for locks.
    pub fn admits(&self, version: u64) -> bool {
        version >= self.saved.decided.version
    }

    /// Returns the milliseconds until all leases of older versions have ended here; 0 if they have.
    pub fn unsettled_ms(&self, now: BootTime) -> u64 {
        // Version 1 has the nodes that clients without a version (0) already use, so leases of those count as its own.
        if self.saved.decided.version <= 1 || now > self.unsettled_until {
            return 0;
        }
        self.unsettled_until.ms_since_rounded_up(now).max(1)
    }

    /// Promises, as the node `own`, to ignore attempts for `version` that have a smaller ballot. Returns the list that
    /// it accepted for this version before, if any.
    ///
    /// # Errors
    /// As [`Membership::accept`].
    pub fn promise(
        &mut self,
        version: u64,
        ballot: Ballot,
        own: u128,
        now: BootTime,
    ) -> Result<Option<&Accepted>, Refusal> {
        self.ensure_may_vote(version, ballot, own, now)?;
        self.saved.promised = ballot;
        Ok(self.saved.accepted.as_ref())
    }

    /// Accepts `list` as the set's next version, as the node `own`.
    ///
    /// # Errors
    /// `OLDMEMBERS`, `OUTBID`, `UNSETTLED`, `NOTMEMBER`; `ERR` if the list does not differ from the version before by
    /// exactly one node.
    pub fn accept(
        &mut self,
        version: u64,
        ballot: Ballot,
        list: Vec<Member>,
        own: u128,
        now: BootTime,
    ) -> Result<(), Refusal> {
        self.ensure_may_vote(version, ballot, own, now)?;
        // No node knows a list of version 0, so version 1 is compared with nothing: who creates the set names its
        // nodes.
        if version > 1 && !self.saved.decided.is_next_to(&list) {
            return Err(Refusal::MembersApart);
        }
        self.saved.promised = ballot;
        self.saved.accepted = Some(Accepted { ballot, list });
        Ok(())
    }

    fn ensure_may_vote(&self, version: u64, ballot: Ballot, own: u128, now: BootTime) -> Result<(), Refusal> {
        let decided = &self.saved.decided;
        if Some(version) != decided.version.checked_add(1) {
            return Err(Refusal::OldMembers { version: decided.version });
        }
        if decided.version > 0 && !decided.has(own) {
            return Err(Refusal::NotMember);
        }
        if ballot < self.saved.promised {
            return Err(Refusal::Outbid);
        }
        match self.unsettled_ms(now) {
            0 => Ok(()),
            left_ms => Err(Refusal::Unsettled { left_ms }),
        }
    }

    /// Records that the set decided on `members`. Clients of older versions are refused from now on; their leases of up
    /// to `longest_ms` may still run. Returns whether the node did not know the decision before.
    ///
    /// # Errors
    /// `OLDMEMBERS`: the node knows a later version, or another list of this one.
    pub fn decide(&mut self, members: Members, longest_ms: u32, now: BootTime) -> Result<bool, Refusal> {
        let decided = &self.saved.decided;
        if members == *decided {
            return Ok(false);
        }
        if members.version <= decided.version {
            return Err(Refusal::OldMembers { version: decided.version });
        }
        self.saved = SavedMembership { decided: members, ..SavedMembership::default() };
        self.unsettled_until = now.plus_ms(longest_ms);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ms;

    fn list(ids: &[u128]) -> Vec<Member> {
        ids.iter().map(|&id| Member { id: Some(id), address: format!("10.0.0.{id}:6379") }).collect()
    }

    fn set(version: u64, ids: &[u128]) -> Members {
        Members { version, list: list(ids) }
    }

    #[test]
    fn a_version_is_agreed_on_step_by_step() {
        let mut node = Membership::default();
        assert!(node.admits(0));
        assert_eq!(node.promise(2, 7, 1, ms(0)), Err(Refusal::OldMembers { version: 0 }));
        assert_eq!(node.promise(1, 7, 1, ms(0)), Ok(None));
        assert_eq!(node.promise(1, 6, 1, ms(0)), Err(Refusal::Outbid));
        assert_eq!(node.accept(1, 6, list(&[1, 2, 3]), 1, ms(0)), Err(Refusal::Outbid));
        assert_eq!(node.accept(1, 7, list(&[1, 2, 3]), 1, ms(0)), Ok(()));
        assert!(node.admits(0), "what is accepted is not decided");
        let accepted = Accepted { ballot: 7, list: list(&[1, 2, 3]) };
        assert_eq!(node.promise(1, 9, 1, ms(0)), Ok(Some(&accepted)));
        assert_eq!(node.decide(set(1, &[1, 2, 3]), 100, ms(0)), Ok(true));
        assert_eq!(node.decide(set(1, &[1, 2, 3]), 100, ms(0)), Ok(false));
        assert_eq!(node.decide(set(1, &[1, 2]), 100, ms(0)), Err(Refusal::OldMembers { version: 1 }));
        assert!(!node.admits(0) && node.admits(1) && node.admits(2));
        assert_eq!(node.promise(2, 1, 1, ms(0)), Ok(None), "each version has its own ballots");
        assert_eq!(node.accept(2, 1, list(&[1, 2, 3, 4, 5]), 1, ms(0)), Err(Refusal::MembersApart));
        assert_eq!(node.accept(2, 1, list(&[1, 2, 3, 4]), 4, ms(0)), Err(Refusal::NotMember));
        assert_eq!(node.accept(2, 1, list(&[1, 2, 3, 4]), 1, ms(0)), Ok(()));
    }

    #[test]
    fn the_next_version_waits_until_leases_of_older_ones_have_ended() {
        let mut node = Membership::default();
        assert_eq!(node.decide(set(1, &[1, 2, 3]), 100, ms(0)), Ok(true));
        assert_eq!(node.unsettled_ms(ms(0)), 0, "the first version has the nodes that there were");
        assert_eq!(node.decide(set(2, &[1, 2, 3, 4]), 100, ms(10)), Ok(true));
        assert_eq!(node.promise(3, 1, 1, ms(110)), Err(Refusal::Unsettled { left_ms: 1 }));
        assert_eq!(node.promise(3, 1, 1, ms(110).plus_us(1)), Ok(None));
        let mut again = Membership::restore(node.saved().clone(), 100, ms(200));
        assert!(!again.admits(1));
        assert_eq!(again.accept(3, 1, list(&[1, 2, 3]), 1, ms(210)), Err(Refusal::Unsettled { left_ms: 90 }));
        assert_eq!(again.promise(3, 0, 1, ms(301)), Err(Refusal::Outbid), "promises are kept");
    }
}
