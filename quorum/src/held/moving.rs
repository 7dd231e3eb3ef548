//! Moves a held lock to the next version of the set of nodes.

use super::share::Sharing;
use super::{Call, Grant, Held, Member, Round};
use crate::ask::{Ask, NodeId};
use crate::values::time::BootTime;

impl Held {
    /// Returns what the server `id` has acknowledged, if it is in the set. If the set has it under several names, the
    /// name with the largest acknowledged token counts.
    fn member(&self, id: NodeId) -> Option<&Member> {
        self.members.iter().filter(|member| member.id == Some(id)).max_by_key(|member| member.acked())
    }

    /// Moves to a version of the set with the servers `ids`. A server that has answered in the old version keeps its
    /// acknowledged token at its new place. What the others have is unknown. Returns the calls to send at once.
    ///
    /// The validity stays. Until it ends, a majority of the old set has the lock, and nobody else gets a majority of
    /// the new one. Only a majority of the new set extends it. So an added node is asked to grant the lock in the next
    /// round, and counts from the one after that. A removed node no longer counts. The current round is over.
    ///
    /// The caller must drop answers to earlier calls: they name nodes by their index in the old set.
    pub fn move_to(&mut self, ids: &[Option<NodeId>]) -> Vec<Call> {
        // Answers to earlier calls are no longer accepted, so a conversion or a raise that was under way is asked for
        // again.
        let stays = |before: &Member| {
            let sharing = if before.sharing == Sharing::Shares { Sharing::Shares } else { Sharing::Not };
            let grant = match before.grant {
                Grant::Raising { from, .. } => Grant::Raising { from, extends: false },
                grant => grant,
            };
            Member { grant, sharing, ..*before }
        };
        let added = Member { is_added: true, ..Member::new(None, Grant::None, BootTime::default()) };
        self.members = ids.iter().map(|id| id.and_then(|id| self.member(id)).map_or(added, stays)).collect();
        self.rounds += 1;
        let none = vec![false; ids.len()];
        self.round = Round { open: none.clone(), yes: none, ..Round::default() };
        // An earlier raise may still arrive at such a node, so it is asked for the largest token of any.
        let raise = Ask::Fence { token: self.raised_to };
        let is_raising = |node: &usize| matches!(self.members[*node].grant, Grant::Raising { .. });
        let mut calls: Vec<_> = (0..ids.len()).filter(is_raising).map(|node| Call::now(node, raise)).collect();
        let has_it: Vec<_> = (0..ids.len()).filter(|&node| self.members[node].acked().is_some()).collect();
        calls.extend(has_it.into_iter().filter_map(|node| self.share_there(node)));
        calls
    }

    /// Returns the calls that ask the nodes for the lock that were added while it was held and have not granted it yet.
    pub fn ask_added_nodes(&self) -> Vec<Call> {
        let members = self.members.iter().enumerate();
        members.filter(|(_, member)| member.is_added).map(|(node, _)| Call::now(node, self.heal())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::fixture::{at, id, token};
    use crate::{Answer, Ask, valid_until};

    const TTL_MS: u32 = 1_000;
    const EXTEND: fn(u64) -> Ask = |value| Ask::Extend { ttl_ms: TTL_MS, token: token(value) };

    /// Returns a lock of `nodes` nodes that the nodes `by` hold with token 100, from 0 ms on.
    fn held(nodes: usize, by: &[usize]) -> Held {
        let members = (0..nodes).map(|n| (id(n as u128), by.contains(&n).then(|| token(100)), false)).collect();
        Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS))
    }

    fn yes(held: &mut Held, node: usize, server: u128, ms: u64) {
        held.on_answer(held.round(), node, id(server), EXTEND(100), Answer::Token(token(100)), at(ms).boot);
    }

    #[test]
    fn a_node_that_was_added_counts_from_the_round_after_it_granted_the_lock() {
        let mut held = held(3, &[0, 1]);
        let valid = held.valid_until();
        assert_eq!(held.move_to(&[id(0), id(1), id(2), id(3)]), []);
        assert_eq!((held.valid_until(), held.outcome()), (valid, Some(false)));
        assert_eq!([0, 1, 2, 3].map(|place| held.token_at(place)), [Some(token(100)), Some(token(100)), None, None]);
        let calls = held.extend(TTL_MS, at(100).boot);
        let heal = held.heal();
        assert_eq!(calls[3], Call::now(3, heal));
        yes(&mut held, 0, 0, 110);
        yes(&mut held, 1, 1, 110);
        assert_eq!(held.valid_until(), valid, "two of three, but not of four");
        held.on_answer(held.round(), 3, id(3), heal, Answer::Token(token(100)), at(120).boot);
        assert_eq!(held.outcome(), Some(false));
        held.extend(TTL_MS, at(200).boot);
        for node in [0, 1, 3] {
            yes(&mut held, node, node as u128, 210);
        }
        assert_eq!(held.valid_until(), valid_until(at(200).boot, TTL_MS));
    }

    /// A dead node of three is replaced. The lock's owner may use another process, so nodes that lost the lock grant it
    /// only once a majority has extended it. Without the added node, that majority would be out of reach.
    #[test]
    fn an_added_node_grants_the_lock_before_a_majority_has_extended_it() {
        let mut held = held(3, &[0, 1]);
        held.is_spoken_for_elsewhere();
        held.move_to(&[id(0), id(1), id(2), id(3)]);
        let heal = held.heal();
        let calls = held.extend(TTL_MS, at(100).boot);
        assert_eq!(calls, [Call::now(0, EXTEND(100)), Call::now(1, EXTEND(100)), Call::now(3, heal)]);
        held.on_answer(held.round(), 3, id(3), heal, Answer::Token(token(100)), at(120).boot);
        held.extend(TTL_MS, at(200).boot);
        for node in [0, 1, 3] {
            yes(&mut held, node, node as u128, 210);
        }
        assert_eq!(held.outcome(), Some(true));
        // From now on it is like any other node.
        held.on_missing(3, id(3), token(100), at(220).boot);
        held.on_answer(held.round(), 3, id(3), Ask::Fence { token: token(100) }, Answer::No, at(230).boot);
        assert_eq!(held.extend(TTL_MS, at(240).boot).len(), 2);
    }

    #[test]
    fn a_node_that_was_removed_counts_no_more() {
        let mut held = held(4, &[0, 1, 2]);
        // Node 0 leaves the set. Two of the remaining three nodes have the lock, so they extend it.
        held.move_to(&[id(1), id(2), id(3)]);
        held.extend(TTL_MS, at(100).boot);
        yes(&mut held, 0, 1, 110);
        held.on_answer(held.round(), 1, id(2), EXTEND(100), Answer::Failed, at(110).boot);
        yes(&mut held, 2, 3, 110);
        assert_eq!(held.outcome(), Some(false), "nor had the third granted it");
        held.extend(TTL_MS, at(200).boot);
        yes(&mut held, 0, 1, 210);
        yes(&mut held, 1, 2, 210);
        assert_eq!(held.outcome(), Some(true));
    }

    /// Nodes change their order in the list. What a server acknowledged moves with it, by its id.
    #[test]
    fn what_a_node_acknowledged_goes_where_it_goes() {
        let mut held = held(3, &[1, 2]);
        // Node 0, which does not have the lock, leaves. Nodes 1 and 2 change places, and a fourth node comes first in
        // the list.
        held.move_to(&[id(3), id(2), id(1), None]);
        assert_eq!([0, 1, 2, 3].map(|place| held.token_at(place)), [None, Some(token(100)), Some(token(100)), None]);
        let (calls, heal) = (held.extend(TTL_MS, at(100).boot), held.heal());
        let asked = [heal, EXTEND(100), EXTEND(100), heal];
        assert_eq!(calls, [0, 1, 2, 3].map(|place| Call::now(place, asked[place])));
        // Both count in the first round, because they had acknowledged the token before the move.
        held.move_to(&[id(2), id(3), id(1)]);
        held.extend(TTL_MS, at(200).boot);
        yes(&mut held, 0, 2, 210);
        yes(&mut held, 2, 1, 210);
        assert_eq!(held.valid_until(), valid_until(at(200).boot, TTL_MS));
    }

    /// A server has two names in the list, and has the lock under the second. After a move to a set that names it once,
    /// it still counts.
    #[test]
    fn a_server_with_two_names_keeps_what_it_acknowledged() {
        let members =
            [(1, false), (1, true), (2, true)].map(|(n, has)| (id(n), has.then(|| token(100)), false)).to_vec();
        let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
        held.move_to(&[id(1), id(2), id(3)]);
        assert_eq!([0, 1, 2].map(|place| held.token_at(place)), [Some(token(100)), Some(token(100)), None]);
    }

    #[test]
    fn a_round_that_began_before_extends_nothing() {
        let mut held = held(3, &[0, 1, 2]);
        let valid = held.valid_until();
        held.extend(TTL_MS, at(100).boot);
        let round = held.round();
        yes(&mut held, 0, 0, 110);
        held.move_to(&[id(0), id(1)]);
        held.on_answer(round, 1, id(1), EXTEND(100), Answer::Token(token(100)), at(120).boot);
        assert_eq!(held.valid_until(), valid);
    }

    #[test]
    fn a_raise_or_a_share_that_was_under_way_is_asked_again() {
        let mut held = held(3, &[0, 1, 2]);
        assert_eq!(held.share().len(), 3);
        assert_eq!(held.move_to(&[id(0), id(2), id(3)]), [Call::now(0, Ask::Share), Call::now(1, Ask::Share)]);
        let mut held = self::held(3, &[0, 1]);
        held.on_answer(0, 2, id(2), held.heal(), Answer::Token(token(150)), at(10).boot);
        assert_eq!(held.token_at(0), None, "it is being raised");
        let raise = Ask::Fence { token: token(150) };
        assert_eq!(held.move_to(&[id(0), id(1), id(3)]), [Call::now(0, raise), Call::now(1, raise)]);
    }

    /// Node 2 grants late, with a larger token, so the others are asked to raise theirs. They do, but the set changes
    /// before their answers.
    #[test]
    fn a_node_that_raised_its_token_while_the_set_changed_has_not_lost_the_lock() {
        let mut held = held(3, &[0, 1]);
        held.on_answer(0, 2, id(2), held.heal(), Answer::Token(token(150)), at(10).boot);
        let mut calls = VecDeque::from(held.move_to(&[id(0), id(1), id(2), id(3)]));
        calls.extend(held.extend(TTL_MS, at(20).boot));
        while let Some(Call { node, ask, .. }) = calls.pop_front() {
            let answer = match ask {
                Ask::Extend { token, .. } if token != self::token(150) => Answer::No,
                _ => Answer::Token(token(150)),
            };
            calls.extend(held.on_answer(held.round(), node, id(node as u128), ask, answer, at(30).boot));
        }
        assert_eq!((held.is_lost(), held.outcome(), held.token()), (false, Some(true), token(150)));
    }
}
