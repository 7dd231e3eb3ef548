//! Waits in the queues until a majority of nodes says that it is the request's turn.

use std::collections::BTreeMap;

use super::ask::{NodeId, majority};
use super::choice::most;

/// The vote of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Vote {
    /// The node has not answered yet.
    Open,
    /// The node did not say that the lock is free: it failed, or its time to wait is over.
    None,
    /// The lock is free on this server, which reserves it for the owner, with this permit number (1 if no permit is
    /// wanted).
    Free(NodeId, u16),
}

/// A wait in progress. LOCK.WAIT goes to every node with the same ticket, so all nodes serve their queues in one order.
/// The owner asks for the lock once a majority says that it is free, and reserved for a short time.
///
/// If permits are wanted, each node reserves a number. These numbers may differ; [`Turn::number`] says which one to ask
/// for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// The latest vote of each node.
    votes: Vec<Vote>,
}

/// The state of the wait: whether it is the request's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnProgress {
    /// No majority has said yet that the lock is free. The wait goes on.
    Goes,
    /// A majority says that the lock is free: acquire it now.
    Free,
    /// Too many nodes have failed or timed out for a majority to say that the lock is free.
    Impossible,
}

impl Turn {
    /// Begins a wait on `nodes` nodes.
    pub fn begin(nodes: usize) -> Self {
        Self { votes: vec![Vote::Open; nodes] }
    }

    /// Handles the answer of `node`, its vote. If it says that the lock is free, `told` is the server and the permit
    /// number that it reserves (1 if no permit is wanted). `told` is `None` if the time of the wait is over, or the
    /// node failed.
    ///
    /// Votes count by server: two names for one server are one vote. A vote counts until the node casts another, and
    /// repeating it changes nothing. If the node fails after its vote, the vote still counts, because the reservation
    /// lasts for a short time in any case.
    pub fn on_answer(&mut self, node: usize, told: Option<(NodeId, u16)>) -> TurnProgress {
        match told {
            Some((id, number)) => self.votes[node] = Vote::Free(id, number),
            None if self.votes[node] == Vote::Open => self.votes[node] = Vote::None,
            None => {}
        }
        let needed = majority(self.votes.len());
        let votes = self.reservations().count();
        let open = self.votes.iter().filter(|vote| **vote == Vote::Open).count();
        if votes >= needed {
            TurnProgress::Free
        } else if votes + open < needed {
            TurnProgress::Impossible
        } else {
            TurnProgress::Goes
        }
    }

    /// Returns the permit numbers that servers reserve for the owner, one for each server.
    fn reservations(&self) -> impl Iterator<Item = u16> {
        let is = |vote: &Vote, id| matches!(vote, Vote::Free(other, _) if *other == id);
        let first = move |(node, vote): (usize, &Vote)| match *vote {
            Vote::Free(id, number) if !self.votes[..node].iter().any(|vote| is(vote, id)) => Some(number),
            _ => None,
        };
        self.votes.iter().enumerate().filter_map(first)
    }

    /// Returns the permit number that most servers reserve; `None` if no server reserves any. If several numbers have
    /// the most, `random` decides, so that two clients with the same answers ask for different ones.
    pub fn number(&self, random: u64) -> Option<u16> {
        let mut counts = BTreeMap::<u16, usize>::new();
        self.reservations().for_each(|number| *counts.entry(number).or_default() += 1);
        most(&counts, random)
    }
}

#[cfg(test)]
mod tests {
    use super::TurnProgress::*;
    use super::*;

    #[test]
    fn at_a_majority_and_not_where_one_server_has_two_names() {
        let id = |n| Some((NodeId(n), 1));
        let mut turn = Turn::begin(3);
        assert_eq!((turn.on_answer(0, id(1)), turn.on_answer(1, id(1)), turn.on_answer(2, id(2))), (Goes, Goes, Free));
        let mut turn = Turn::begin(3);
        assert_eq!(
            (turn.on_answer(0, None), turn.on_answer(1, id(1)), turn.on_answer(2, None)),
            (Goes, Goes, Impossible)
        );
        assert_eq!(Turn::begin(1).on_answer(0, id(1)), Free);
    }

    /// Regression: a node said twice that the lock is free, and so lost its vote. The wait was given up, or never
    /// ended. A second answer must change nothing.
    #[test]
    fn a_second_answer_of_one_node_erases_nothing() {
        let id = |n| Some((NodeId(n), 1));
        let answers = |answers: &[(usize, Option<(NodeId, u16)>)]| {
            let mut turn = Turn::begin(3);
            answers.iter().map(|&(node, told)| turn.on_answer(node, told)).collect::<Vec<_>>()
        };
        assert_eq!(answers(&[(0, id(1)), (0, id(1)), (1, id(2))]), [Goes, Goes, Free]);
        assert_eq!(answers(&[(0, id(1)), (0, id(1)), (1, None), (2, id(2))]), [Goes, Goes, Goes, Free]);
        assert_eq!(answers(&[(0, id(1)), (0, None), (1, id(2))]), [Goes, Goes, Free], "it keeps it for a moment");
        assert_eq!(answers(&[(0, None), (0, id(1)), (1, id(2))]), [Goes, Goes, Free], "it was asked again");
        // Another server has a name of the first one now, and one server has two names: votes count by server.
        assert_eq!(answers(&[(0, id(1)), (0, id(2)), (1, id(2)), (2, id(2))]), [Goes, Goes, Goes, Impossible]);
        assert_eq!(answers(&[(0, id(1)), (1, id(1)), (0, None), (1, id(1)), (2, id(1))])[4], Impossible);
        assert_eq!(answers(&[(0, id(1)), (1, id(1)), (1, id(2))]), [Goes, Goes, Free]);
    }

    #[test]
    fn the_number_that_most_servers_keep_is_asked_for() {
        let number = |kept: &[(u128, u16)], random| {
            let mut turn = Turn::begin(5);
            kept.iter().enumerate().for_each(|(node, &(id, number))| {
                turn.on_answer(node, Some((NodeId(id), number)));
            });
            turn.number(random)
        };
        assert_eq!(number(&[], 0), None);
        assert_eq!(number(&[(0, 4), (1, 2), (2, 4)], 1), Some(4));
        // A server with three names reserves one number.
        assert_eq!(number(&[(0, 7), (0, 7), (0, 7), (1, 2), (2, 2)], 1), Some(2));
        let mut seen: Vec<_> = (0..4).filter_map(|random| number(&[(0, 7), (1, 5), (2, 9)], random)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [5, 5, 7, 9]);
    }
}
