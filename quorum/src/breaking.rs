//! Breaks the grants with one token on all nodes, for an operator.
//!
//! An owner's tokens may differ from node to node, and may be raised between the time when a node shows them and the
//! break. So once a node shows the token, its owner is known. From then on each node breaks whatever tokens it shows
//! for that owner.

use std::collections::BTreeSet;

/// The largest number of rounds. Each reads the grants of all nodes, and breaks some.
const LOOKS_MAX: usize = 3;

/// The grants that one node shows, each with its owner and token; `None` if the node did not answer.
pub type ShownTokens = Option<Vec<(Vec<u8>, u64)>>;

/// A break of one token in progress.
#[derive(Clone, Debug)]
pub struct Breaking {
    token: u64,
    owners: BTreeSet<Vec<u8>>,
    looks: usize,
    /// For each node, whether it had a grant to break in this round, or may have had one.
    expected: Vec<bool>,
    is_hidden: bool,
}

impl Breaking {
    /// Begins to break the grants with `token`. `owners` are the owners that the caller already knows to have it;
    /// usually none.
    pub fn begin(token: u64, owners: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { token, owners: owners.into_iter().collect(), looks: 0, expected: vec![], is_hidden: false }
    }

    /// Handles the grants that each node shows. Returns for each node the tokens that it has to break.
    pub fn on_shown(&mut self, nodes: &[ShownTokens]) -> Vec<Vec<u64>> {
        let shown = || nodes.iter().flatten().flatten();
        self.owners.extend(shown().filter(|(_, token)| *token == self.token).map(|(owner, _)| owner.clone()));
        self.looks += 1;
        // A majority has the lock, but no node that answered shows the token: its owner may have it on a silent node.
        self.is_hidden = self.owners.is_empty() && nodes.iter().any(Option::is_none) && shown().next().is_some();
        let theirs = |grants: &[(Vec<u8>, u64)]| -> Vec<u64> {
            grants.iter().filter(|(owner, _)| self.owners.contains(owner)).map(|(_, token)| *token).collect()
        };
        let of_nodes: Vec<_> = nodes.iter().map(|grants| grants.as_deref().map(theirs)).collect();
        self.expected = of_nodes.iter().map(|tokens| tokens.as_ref().is_none_or(|tokens| !tokens.is_empty())).collect();
        let to_break = |tokens: Option<Vec<u64>>| match tokens {
            // If the silent node broke the token now, it could be the only one that has it, and its owner would stay
            // unknown.
            None if self.is_hidden => vec![],
            Some(tokens) if !tokens.is_empty() => tokens,
            _ => vec![self.token],
        };
        of_nodes.into_iter().map(to_break).collect()
    }

    /// Handles the answers: for each node, whether it ended all grants that it was asked to end; `None` if it did not
    /// answer. Returns whether another round is needed: a token was raised meanwhile, or a node answered that was
    /// silent before.
    pub fn on_ended(&self, nodes: &[Option<bool>]) -> bool {
        let is_new = |(expected, ended): (&bool, &Option<bool>)| {
            *expected && if self.is_hidden { ended.is_some() } else { *ended == Some(false) && !self.owners.is_empty() }
        };
        self.looks < LOOKS_MAX && self.expected.iter().zip(nodes).any(is_new)
    }

    /// Returns whether an owner may have the token although no node shows it: the lock is held, and some node did not
    /// answer.
    pub fn is_hidden(&self) -> bool {
        self.is_hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(grants: &[(&str, u64)]) -> ShownTokens {
        Some(grants.iter().map(|(owner, token)| (owner.as_bytes().to_vec(), *token)).collect())
    }

    #[test]
    fn each_node_breaks_the_token_that_it_shows_for_the_owner() {
        let nodes = [shows(&[("a", 7), ("b", 9)]), shows(&[("b", 8), ("a", 7)]), shows(&[]), None];
        for (token, each) in [(9, [[9], [8], [9], [9]]), (7, [[7], [7], [7], [7]])] {
            assert_eq!(Breaking::begin(token, []).on_shown(&nodes), each);
        }
        assert_eq!(Breaking::begin(1, [b"a".to_vec()]).on_shown(&nodes)[0], [7], "the caller knows whose it is");
    }

    /// A holder raises its tokens after they were read and before they are broken. The next round finds it by its
    /// owner, and breaks the raised tokens.
    #[test]
    fn an_owner_whose_tokens_are_raised_meanwhile_is_followed() {
        let mut breaking = Breaking::begin(7, []);
        breaking.on_shown(&[shows(&[("a", 7)]), shows(&[("a", 7)]), shows(&[("a", 8)])]);
        assert!(breaking.on_ended(&[Some(false), Some(false), Some(true)]));
        assert_eq!(breaking.on_shown(&[shows(&[("a", 8)]), shows(&[("a", 8)]), shows(&[])]), [[8], [8], [7]]);
        assert!(!breaking.on_ended(&[Some(true), Some(true), Some(false)]));
    }

    /// A node does not answer which grants it has, but then it answers the break. It may have another token for the
    /// owner, so another round asks for its grants.
    #[test]
    fn a_node_that_answers_late_is_looked_at_again() {
        let mut breaking = Breaking::begin(7, []);
        assert_eq!(breaking.on_shown(&[shows(&[("a", 7)]), None]), [[7], [7]]);
        assert!(breaking.on_ended(&[Some(true), Some(false)]));
        assert_eq!(breaking.on_shown(&[shows(&[]), shows(&[("a", 8)])]), [[7], [8]]);
        assert!(!breaking.on_ended(&[Some(false), Some(true)]));
    }

    #[test]
    fn a_break_ends_where_nothing_was_found_and_after_a_few_looks() {
        let mut none = Breaking::begin(7, []);
        assert_eq!(none.on_shown(&[shows(&[("b", 8)]), shows(&[])]), [[7], [7]]);
        assert!(!none.on_ended(&[Some(false), Some(false)]));
        let mut raised = Breaking::begin(7, []);
        let again = |token| {
            raised.on_shown(&[shows(&[("a", token)])]);
            raised.on_ended(&[Some(false)])
        };
        assert_eq!([7, 8, 9].map(again), [true, true, false]);
    }

    /// A holder has the token on the node that does not answer, and other tokens on the others. So the break may be
    /// incomplete, and says so.
    #[test]
    fn a_token_may_be_on_a_silent_node_alone() {
        let (one, other) = (shows(&[("a", 6)]), shows(&[("a", 8)]));
        let mut breaking = Breaking::begin(7, []);
        assert_eq!(breaking.on_shown(&[one.clone(), other.clone(), None]), [vec![7], vec![7], vec![]]);
        assert!(breaking.is_hidden() && !breaking.on_ended(&[Some(false), Some(false), None]));
        assert!(breaking.on_ended(&[Some(false), Some(false), Some(true)]), "it answers now");
        assert_eq!(breaking.on_shown(&[one.clone(), other.clone(), shows(&[("a", 7)])]), [[6], [8], [7]]);
        assert!(!breaking.is_hidden() && !breaking.on_ended(&[Some(true); 3]));

        let is_hidden = |nodes: &[ShownTokens]| {
            let mut breaking = Breaking::begin(7, []);
            breaking.on_shown(nodes);
            breaking.is_hidden()
        };
        assert!(!is_hidden(&[one, other, shows(&[])]), "all have answered");
        assert!(!is_hidden(&[shows(&[]), shows(&[]), None]), "a majority shows nobody");
        assert!(!is_hidden(&[shows(&[("a", 7)]), shows(&[]), None]));
    }
}
