//! The leader's side: writes its proclamation to all nodes.

use crate::ask::{NodeId, majority};
use crate::held::Held;
use crate::values::token::Token;

/// A leader's proclamation, and which nodes have it.
///
/// It can only be made from a [`Held`], so nobody proclaims before holding a majority. All nodes receive the
/// proclamation once, and again in every round of extension ([`Proclaim::again`]). A node that lost the lock and
/// granted it anew has no note, so it receives the proclamation at once ([`Proclaim::on_grant`]). A node that already
/// has the note ignores the repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proclaim {
    term: Token,
    /// The sequence number of the present proclamation; 0 before the first one.
    sequence: u64,
    /// For each node, the server that answered, and the sequence number of the note that it has.
    has: Vec<Option<(NodeId, u64)>>,
}

/// A LOCK.NOTE to send: the proclamation with this sequence number. It is sent without TOKEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoteCall {
    /// The index of the node in the client's list of nodes.
    pub node: usize,
    /// The sequence number of the proclamation.
    pub sequence: u64,
}

/// A node's answer to LOCK.NOTE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteAnswer {
    /// The node has a note with this sequence number now.
    Has(u64),
    /// Null: this owner does not hold the lock there. The rounds of extension notice that as well, and heal the node.
    NotHeld,
    /// No answer in time, or an error: the next round repeats the proclamation.
    Failed,
}

impl Proclaim {
    /// Creates the proclamation of a lock that was just won. The lock's present token is the term.
    pub fn of(held: &Held, nodes: usize) -> Self {
        Self { term: held.token(), sequence: 0, has: vec![None; nodes] }
    }

    /// Returns the term: the token with which the leader won.
    pub fn term(&self) -> Token {
        self.term
    }

    /// Returns the sequence number of the present proclamation; 0 before the first one.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Begins to proclaim another value, under the next sequence number. Returns the calls to send.
    pub fn advance(&mut self) -> Vec<NoteCall> {
        self.sequence += 1;
        self.again()
    }

    /// Returns the calls that repeat the proclamation to all nodes, since a node may have lost its note.
    pub fn again(&self) -> Vec<NoteCall> {
        let all = 0..if self.sequence == 0 { 0 } else { self.has.len() };
        all.map(|node| NoteCall { node, sequence: self.sequence }).collect()
    }

    /// Notes that `node` granted the lock anew, so that its grant has no note. Returns the call that repeats the
    /// proclamation there.
    pub fn on_grant(&mut self, node: usize) -> Option<NoteCall> {
        self.has[node] = None;
        (self.sequence > 0).then_some(NoteCall { node, sequence: self.sequence })
    }

    /// Moves to another version of the set, with `nodes` nodes. Returns the calls that send the proclamation to all of
    /// them.
    pub fn move_to(&mut self, nodes: usize) -> Vec<NoteCall> {
        self.has = vec![None; nodes];
        self.again()
    }

    /// Handles the answer to a LOCK.NOTE of `node`, which is the server `id`.
    pub fn on_answer(&mut self, node: usize, id: Option<NodeId>, answer: NoteAnswer) {
        match (answer, id) {
            (NoteAnswer::Has(sequence), Some(id)) => {
                let before = self.has[node].filter(|(server, _)| *server == id).map_or(0, |(_, sequence)| sequence);
                self.has[node] = Some((id, sequence.max(before)));
            }
            (NoteAnswer::NotHeld, _) => self.has[node] = None,
            _ => {}
        }
    }

    /// Returns whether a majority of servers has the proclamation `sequence`, or a later one.
    pub fn is_proclaimed(&self, sequence: u64) -> bool {
        let mut servers: Vec<_> =
            self.has.iter().flatten().filter(|(_, has)| *has >= sequence).map(|(server, _)| *server).collect();
        servers.sort_unstable();
        servers.dedup();
        sequence > 0 && servers.len() >= majority(self.has.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, id, token};
    use crate::valid_until;

    fn proclaim(nodes: usize) -> Proclaim {
        let members = (0..nodes).map(|n| (id(n as u128), Some(token(100)), false)).collect();
        Proclaim::of(&Held::new(members, token(100), 1_000, valid_until(at(0).boot, 1_000)), nodes)
    }

    #[test]
    fn it_is_proclaimed_when_a_majority_of_servers_has_it() {
        let mut it = proclaim(5);
        assert!(it.again().is_empty() && !it.is_proclaimed(0), "nothing is proclaimed yet");
        assert_eq!(it.on_grant(3), None);
        assert_eq!(it.advance(), (0..5).map(|node| NoteCall { node, sequence: 1 }).collect::<Vec<_>>());
        assert_eq!(it.term(), token(100));
        // One server answers under two names, one answer has no server's id, and one call failed: none of these adds a
        // vote.
        for (node, server, answer) in [
            (0, id(0), NoteAnswer::Has(1)),
            (1, id(0), NoteAnswer::Has(1)),
            (2, None, NoteAnswer::Has(1)),
            (3, id(3), NoteAnswer::Failed),
        ] {
            it.on_answer(node, server, answer);
            assert!(!it.is_proclaimed(1), "{node}");
        }
        it.on_answer(4, id(4), NoteAnswer::Has(1));
        assert!(!it.is_proclaimed(1));
        it.on_answer(3, id(3), NoteAnswer::Has(1));
        assert!(it.is_proclaimed(1));
        it.advance();
        assert!(it.is_proclaimed(1) && !it.is_proclaimed(2));
    }

    #[test]
    fn another_set_of_nodes_is_told_all_of_it() {
        let mut it = proclaim(1);
        it.advance();
        it.on_answer(0, id(0), NoteAnswer::Has(1));
        assert_eq!(it.move_to(2), [NoteCall { node: 0, sequence: 1 }, NoteCall { node: 1, sequence: 1 }]);
        it.on_answer(0, id(0), NoteAnswer::Has(1));
        assert!(!it.is_proclaimed(1), "one of two");
        it.on_answer(1, id(1), NoteAnswer::Has(1));
        assert!(it.is_proclaimed(1) && it.sequence() == 1);
    }

    #[test]
    fn a_late_answer_takes_nothing_back() {
        let mut it = proclaim(1);
        it.advance();
        it.advance();
        it.on_answer(0, id(0), NoteAnswer::Has(2));
        it.on_answer(0, id(0), NoteAnswer::Has(1));
        assert!(it.is_proclaimed(2));
    }

    /// A node lost the lock and is asked to grant it again. The new grant has no note, so the proclamation is sent to
    /// that node again.
    #[test]
    fn a_node_that_lost_it_is_told_again() {
        let mut it = proclaim(1);
        it.advance();
        for lose in [
            |it: &mut Proclaim| it.on_answer(0, id(0), NoteAnswer::NotHeld),
            |it: &mut Proclaim| {
                assert_eq!(it.on_grant(0), Some(NoteCall { node: 0, sequence: 1 }));
            },
        ] {
            it.on_answer(0, id(0), NoteAnswer::Has(1));
            assert!(it.is_proclaimed(1));
            lose(&mut it);
            assert!(!it.is_proclaimed(1));
            assert_eq!(it.again(), [NoteCall { node: 0, sequence: 1 }]);
        }
        // The name leads to another server now. The sequence number that the old server had does not count for it.
        it.advance();
        it.on_answer(0, id(0), NoteAnswer::Has(2));
        it.on_answer(0, id(1), NoteAnswer::Has(1));
        assert!(!it.is_proclaimed(2));
    }
}
