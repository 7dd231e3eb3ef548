//! Waiting for a lock on a majority.

use super::{NodeId, majority};

/// A wait that is under way: LOCK.WAIT goes to every node with the same ticket, so all of them serve those who wait in one
/// order. At a majority's word that it is free, and kept for this owner for a moment, it is time to acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// By node: told by this server; `Some(None)`: it cannot tell.
    told: Vec<Option<Option<NodeId>>>,
}

/// Where a wait stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnProgress {
    /// Not yet.
    Goes,
    /// Acquire now.
    Free,
    /// No majority can tell any more.
    Impossible,
}

impl Turn {
    /// Asks `nodes` nodes.
    pub fn begin(nodes: usize) -> Self {
        Self { told: vec![None; nodes] }
    }

    /// `node`, the server `id`, said that it is free; or cannot tell (`None`): the time is up, or it failed.
    pub fn on_answer(&mut self, node: usize, told: Option<NodeId>) -> TurnProgress {
        let twice = told.is_some() && self.told.contains(&Some(told));
        self.told[node] = Some(if twice { None } else { told });
        let needed = majority(self.told.len());
        let told = self.told.iter().filter(|told| told.flatten().is_some()).count();
        let possible = self.told.iter().filter(|told| **told != Some(None)).count();
        if told >= needed {
            TurnProgress::Free
        } else if possible < needed {
            TurnProgress::Impossible
        } else {
            TurnProgress::Goes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TurnProgress::*;
    use super::*;

    #[test]
    fn at_a_majority_and_not_where_one_server_has_two_names() {
        let id = |n| Some(NodeId(n));
        let mut turn = Turn::begin(3);
        assert_eq!((turn.on_answer(0, id(1)), turn.on_answer(1, id(1)), turn.on_answer(2, id(2))), (Goes, Goes, Free));
        let mut turn = Turn::begin(3);
        assert_eq!(
            (turn.on_answer(0, None), turn.on_answer(1, id(1)), turn.on_answer(2, None)),
            (Goes, Goes, Impossible)
        );
        assert_eq!(Turn::begin(1).on_answer(0, id(1)), Free);
    }
}
