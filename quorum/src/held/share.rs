//! Tracks for each node whether it has converted the grant to shared, after a writer has become a reader.

/// The pause, in milliseconds, before a node that did not say whether it converted the grant is asked again.
pub(super) const AGAIN_MS: u32 = 100;

/// The progress of the conversion on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sharing {
    /// The grant is not converted, as far as known, and the node is not being asked to.
    Not,
    /// The node was asked to convert the grant.
    Asked,
    /// The node was asked, and has granted the lock anew since. So its answer may be about the earlier grant.
    AskedBefore,
    /// The grant is shared on this node.
    Shares,
}

impl Sharing {
    /// Returns the state after the node reported a grant; `is_new` if this is another grant than before.
    pub(super) fn after_grant(self, is_new: bool) -> Self {
        match self {
            Self::Asked if is_new => Self::AskedBefore,
            Self::Shares if is_new => Self::Not,
            sharing => sharing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, id, token};
    use crate::held::Held;
    use crate::{Answer, Ask, Call, valid_until};

    const TTL_MS: u32 = 1_000;

    /// Returns a lock that nodes 0, 1 and 2 of five hold with token 100 from 0 ms on. Its owner has just become a
    /// reader.
    fn shared() -> Held {
        let members = (0..5).map(|n| (id(n), (n < 3).then(|| token(100)), false)).collect();
        let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
        assert_eq!(held.share(), (0..5).map(|node| Call::now(node, Ask::Share)).collect::<Vec<_>>());
        held
    }

    fn told(held: &mut Held, node: usize, answer: Answer, ms: u64) -> Vec<Call> {
        held.on_answer(held.round(), node, id(node as u128), Ask::Share, answer, at(ms).boot)
    }

    fn yes() -> Answer {
        Answer::Token(token(100))
    }

    #[test]
    fn other_readers_get_in_once_a_majority_knows() {
        let mut held = shared();
        for (node, is_shared) in [(0, false), (2, false), (2, false), (1, true)] {
            assert!(told(&mut held, node, yes(), 10).is_empty());
            assert_eq!(held.is_shared(), is_shared, "{node}");
        }
        assert_eq!((held.token(), held.nodes_held()), (token(100), 3));
    }

    /// Another process made the writer a reader, and ended before the third node heard of it. Its grant counts once it is
    /// converted.
    #[test]
    fn a_node_that_missed_the_conversion_by_another_process_is_asked_for_it() {
        let members = (0..3).map(|n| (id(n), (n < 2).then(|| token(100)), false)).collect();
        let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
        assert_eq!(held.continues_as_reader(|node| node < 2), [Call::now(2, Ask::Share)]);
        assert!(held.is_shared());
        // The grant was unknown, so it is converted once more.
        assert_eq!(told(&mut held, 2, yes(), 10), [Call::now(2, Ask::Share)]);
        assert!(told(&mut held, 2, yes(), 10).is_empty());
        assert_eq!(held.nodes_held(), 3);
        assert_eq!(held.extend(TTL_MS, at(100).boot).len(), 3);
    }

    #[test]
    fn a_node_that_does_not_say_is_asked_until_validity_ends() {
        let mut held = shared();
        for answer in [Answer::Failed, Answer::Guarded { ms: 5_000 }] {
            let again = Call { node: 1, ask: Ask::Share, after_ms: AGAIN_MS };
            assert_eq!(told(&mut held, 1, answer, 10), [again]);
        }
        assert_eq!(told(&mut held, 1, Answer::NotYet { ms: 7 }, 10)[0].after_ms, 7);
        let late = held.valid_until().us_since(at(0).boot).div_ceil(1_000);
        assert!(told(&mut held, 1, Answer::Failed, late).is_empty());
    }

    /// Regression: an agent that had continued the locks of many readers asked a node that was away ten times a second for
    /// each of them.
    #[test]
    fn once_a_majority_shares_it_a_node_that_does_not_say_is_asked_seldom() {
        let mut held = shared();
        (0..3).for_each(|node| drop(told(&mut held, node, yes(), 10)));
        assert_eq!(told(&mut held, 3, Answer::Failed, 20), [Call { node: 3, ask: Ask::Share, after_ms: TTL_MS / 3 }]);
    }

    /// Grants that arrive after the conversion are converted too: a late one that the writer requested, and one that
    /// heals a node.
    #[test]
    fn a_later_grant_is_shared_too() {
        let mut held = shared();
        told(&mut held, 3, Answer::No, 10);
        let ask = Ask::Acquire { ttl_ms: TTL_MS, proposal: token(100), retry: false };
        let calls = held.on_answer(0, 3, id(3), ask, yes(), at(20).boot);
        assert_eq!(calls, [Call::now(3, Ask::Share)]);
        told(&mut held, 3, yes(), 30);
        told(&mut held, 0, yes(), 30);
        assert!(!held.is_shared());
        told(&mut held, 1, yes(), 30);
        assert!(held.is_shared());
    }

    /// A node answers that it converted a grant, which it has lost meanwhile. The answer does not count for its next
    /// grant.
    #[test]
    fn an_answer_about_the_grant_before_does_not_count() {
        for before in [Answer::No, yes(), Answer::Failed] {
            let mut held = shared();
            let ask = Ask::Acquire { ttl_ms: TTL_MS, proposal: token(100), retry: true };
            held.extend(TTL_MS, at(5).boot);
            let extend = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
            held.on_answer(1, 0, id(0), extend, Answer::No, at(6).boot);
            assert!(held.on_answer(1, 0, id(0), ask, yes(), at(10).boot).is_empty(), "it is being asked");
            assert_eq!(told(&mut held, 0, before, 20), [Call::now(0, Ask::Share)], "{before:?}");
            assert_eq!((held.is_lost(), held.is_shared(), held.nodes_held()), (false, false, 3));
        }
    }

    /// A node restarted without its data and no longer has the lock. Once a later round has extended the lock, it is asked
    /// to grant it, and then to convert that grant.
    #[test]
    fn a_node_that_lost_it_is_healed_and_told_again() {
        let mut held = shared();
        (0..3).for_each(|node| drop(told(&mut held, node, yes(), 10)));
        assert!(held.is_shared());
        held.extend(TTL_MS, at(100).boot);
        let extend = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
        held.on_answer(1, 0, id(0), extend, Answer::No, at(110).boot);
        assert!(!held.is_shared(), "two of five");
        held.extend(TTL_MS, at(415).boot);
        let heal = held.heal();
        held.on_answer(2, 3, id(3), heal, yes(), at(420).boot);
        held.extend(TTL_MS, at(430).boot);
        let calls = [1, 2, 3].map(|node| held.on_answer(3, node, id(node as u128), extend, yes(), at(440).boot));
        assert_eq!(calls[2], [Call::now(0, heal)]);
        let calls = held.on_answer(3, 0, id(0), heal, yes(), at(450).boot);
        assert_eq!(calls, [Call::now(0, Ask::Share)]);
        told(&mut held, 0, yes(), 460);
        assert!(held.is_shared());
    }

    #[test]
    fn broken_while_it_is_shared_it_is_lost() {
        let mut held = shared();
        for (node, is_lost) in [(3, false), (0, false), (1, false), (2, true)] {
            assert!(told(&mut held, node, Answer::No, 10).is_empty());
            assert_eq!(held.is_lost(), is_lost, "{node}");
        }
    }

    /// Two names lead to one server: its conversion counts once.
    #[test]
    fn one_server_shares_it_once() {
        let mut held = shared();
        told(&mut held, 0, yes(), 10);
        told(&mut held, 1, yes(), 10);
        assert!(held.on_answer(0, 3, id(0), Ask::Share, yes(), at(10).boot).is_empty());
        assert!(!held.is_shared());
        // Another server has that node's name now, and has a grant of its own, which is converted too.
        assert_eq!(held.on_answer(0, 2, id(9), Ask::Share, yes(), at(10).boot), [Call::now(2, Ask::Share)]);
        assert!(!held.is_shared());
        held.on_answer(0, 2, id(9), Ask::Share, yes(), at(20).boot);
        assert!(held.is_shared());
    }
}
