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
        // A stripe whose ceiling the node's own has passed has no other bound than its highest token.
        let issued = self.tokens.bounds().highest.max(self.tokens.high());
        let highest = issued.max(self.tokens.floor()).max(within_reach);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{KEY, asks, at, node, owner, releases, token};
    use crate::rules::acquire::{Acquired, acquire};
    use crate::rules::fence::fence;
    use crate::rules::release::release;

    /// Writes the node's state to the disk.
    fn write(node: &mut Node, now: Now) {
        let number = node.ledger.number(true);
        let ceiling = node.state(now).ceiling;
        node.on_written(number, ceiling);
    }

    /// A client whose clock is ahead raised a token above the node's ceiling, so the key's stripe got a ceiling of its
    /// own. When the node's ceiling has passed it, the stripe loses its own. The promise still covers the token, which
    /// is ahead of the clock.
    #[test]
    fn a_promise_covers_a_token_whose_stripe_no_longer_has_a_ceiling_of_its_own() {
        let node = &mut node();
        write(node, at(0));
        let raised = token(20_000_000);
        let Ok(Acquired::Granted(mut lock)) = acquire(KEY, None, &asks("me"), node, at(0)) else { panic!() };
        assert_eq!(fence(KEY.name, Some(&mut lock), owner("me"), raised, node, at(1)), Err(Refusal::NotYet));
        write(node, at(1));
        assert!(fence(KEY.name, Some(&mut lock), owner("me"), raised, node, at(2)).is_ok());
        release(KEY, Some(&mut lock), &releases("me"), node, at(3));
        let promised = |node: &mut Node, ms| node.promise_members(1, 7, at(ms)).map(|(_, highest)| highest).unwrap();
        assert!(promised(node, 4) >= raised.get());
        // The node writes its state every few seconds.
        for ms in [15_000, 17_000, 18_000] {
            write(node, at(ms));
        }
        assert!(at(18_000).wall_us < raised.get(), "the token is still ahead of the clock");
        let promised = promised(node, 18_000);
        assert!(promised >= raised.get(), "promised {promised}, issued {}", raised.get());
    }
}
