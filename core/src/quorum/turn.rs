//! Waiting for a lock on a majority.

use super::ask::{NodeId, majority};

/// What a node said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Vote {
    /// Nothing yet.
    Open,
    /// It cannot tell.
    None,
    /// It is free, says this server.
    Free(NodeId),
}

/// A wait that is under way: LOCK.WAIT goes to every node with the same ticket, so all of them serve those who wait in one
/// order. At a majority's word that it is free, and kept for this owner for a moment, it is time to acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// By node.
    votes: Vec<Vote>,
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
        Self { votes: vec![Vote::Open; nodes] }
    }

    /// `node`, the server `told`, said that it is free; or cannot tell (`None`): the time is up, or it failed.
    ///
    /// Servers count, not names: two names for one server are one vote. What a node said counts until it says something
    /// else: repeated it is the same vote, and that the node cannot tell any more takes nothing back, since it keeps the lock
    /// for this owner for a moment in any case.
    pub fn on_answer(&mut self, node: usize, told: Option<NodeId>) -> TurnProgress {
        match told {
            Some(id) => self.votes[node] = Vote::Free(id),
            None if self.votes[node] == Vote::Open => self.votes[node] = Vote::None,
            None => {}
        }
        let needed = majority(self.votes.len());
        let is_first = |&(node, vote): &(usize, &Vote)| !self.votes[..node].contains(vote);
        let free = self.votes.iter().enumerate().filter(|(_, vote)| matches!(vote, Vote::Free(_)));
        let votes = free.filter(is_first).count();
        let open = self.votes.iter().filter(|vote| **vote == Vote::Open).count();
        if votes >= needed {
            TurnProgress::Free
        } else if votes + open < needed {
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

    /// A node that said twice that it is free lost its vote, and the wait was given up or went on in vain.
    #[test]
    fn a_second_answer_of_one_node_erases_nothing() {
        let id = |n| Some(NodeId(n));
        let answers = |answers: &[(usize, Option<NodeId>)]| {
            let mut turn = Turn::begin(3);
            answers.iter().map(|&(node, told)| turn.on_answer(node, told)).collect::<Vec<_>>()
        };
        assert_eq!(answers(&[(0, id(1)), (0, id(1)), (1, id(2))]), [Goes, Goes, Free]);
        assert_eq!(answers(&[(0, id(1)), (0, id(1)), (1, None), (2, id(2))]), [Goes, Goes, Goes, Free]);
        assert_eq!(answers(&[(0, id(1)), (0, None), (1, id(2))]), [Goes, Goes, Free], "it keeps it for a moment");
        assert_eq!(answers(&[(0, None), (0, id(1)), (1, id(2))]), [Goes, Goes, Free], "it was asked again");
        // Another server under the same name, and one server under two names: as many votes as there are servers.
        assert_eq!(answers(&[(0, id(1)), (0, id(2)), (1, id(2)), (2, id(2))]), [Goes, Goes, Goes, Impossible]);
        assert_eq!(answers(&[(0, id(1)), (1, id(1)), (0, None), (1, id(1)), (2, id(1))])[4], Impossible);
        assert_eq!(answers(&[(0, id(1)), (1, id(1)), (1, id(2))]), [Goes, Goes, Free]);
    }
}
