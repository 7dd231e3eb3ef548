//! The observer's side: finds the leader from the nodes' answers.

use super::proclamation::Proclamation;
use crate::ask::{NodeId, majority};
use crate::distinct::first_as;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The statement of a node about the lock, in answer to LOCK.WATCH or LOCK.INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockReport {
    /// The lock is free, and the node is not guarded, so nobody holds it there.
    Free,
    /// The lock is free, but the node may have forgotten its holder.
    Guarded,
    /// This owner holds the lock, with this note.
    Held {
        /// The owner that holds the lock on this node.
        owner: Vec<u8>,
        /// The note of the owner's grant, which may be a proclamation.
        note: Vec<u8>,
        /// The sequence number of the note; 0 if it is no proclamation.
        sequence: u64,
    },
}

/// A leader that has proclaimed itself, as an observer saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The leader's term, larger than that of every earlier leader.
    pub term: Token,
    /// The sequence number of the proclamation, from 1 on.
    pub sequence: u64,
    /// The value that the leader has proclaimed.
    pub value: Vec<u8>,
}

/// All that an observer knows at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed<'a> {
    /// The latest leader that was seen, or `None` if there is none as far as the observer knows.
    pub leader: Option<&'a Leader>,
    /// True if a majority of the servers answered less than `fresh_ms` ago. Then a leader that still leads, and had
    /// proclaimed on a majority before those answers, has been seen.
    pub is_fresh: bool,
}

/// An observer of an election: combines what the nodes say, and finds the leader.
#[derive(Clone, Debug)]
pub struct Observer {
    nodes: Vec<Option<LastReport>>,
    leader: Option<Best>,
    /// True if a majority said that the leader's grants are gone, so that nobody leads.
    ended: bool,
    fresh_us: u64,
    /// Two faults that the test `storm` makes on purpose, and must notice. `less`: a term already ends when this many
    /// nodes fewer than a majority say so. `believes_the_earlier`: answers from before the leader was seen can end its
    /// term.
    #[cfg(test)]
    pub(super) less: usize,
    #[cfg(test)]
    pub(super) believes_the_earlier: bool,
}

/// The last answer of a node.
#[derive(Clone, Debug)]
struct LastReport {
    id: NodeId,
    /// The owner that holds the lock on this node, if one does.
    owner: Option<Vec<u8>>,
    /// False if the node was guarded: its answer does not count, because it may have forgotten the holder.
    counts: bool,
    /// The time at which the node was asked, from which on the answer counts.
    asked: BootTime,
    /// True if the server had the leader's grant in an earlier answer, and no longer has it.
    had: bool,
}

#[derive(Clone, Debug)]
struct Best {
    leader: Leader,
    owner: Vec<u8>,
    /// The time at which the observer first saw this term.
    since: BootTime,
}

impl Observer {
    /// Creates an observer of `nodes` nodes. An answer counts for `fresh_ms` milliseconds after the question.
    pub fn new(nodes: usize, fresh_ms: u32) -> Self {
        Self {
            nodes: vec![None; nodes],
            leader: None,
            ended: false,
            fresh_us: u64::from(fresh_ms) * 1_000,
            #[cfg(test)]
            less: 0,
            #[cfg(test)]
            believes_the_earlier: false,
        }
    }

    /// Moves to another version of the set, with `nodes` nodes. The leader that the observer saw stays, because terms
    /// continue.
    pub fn move_to(&mut self, nodes: usize) {
        self.nodes = vec![None; nodes];
    }

    /// Handles the answer `says` of `node`, where the server `id` answered. It was asked at `asked` and answered at
    /// `now`.
    pub fn on_answer(&mut self, node: usize, id: NodeId, says: LockReport, asked: BootTime, now: BootTime) {
        let (owner, counts, proclamation) = match says {
            LockReport::Free => (None, true, None),
            LockReport::Guarded => (None, false, None),
            LockReport::Held { owner, note, sequence } => {
                // A note with sequence number 0 is no proclamation, whatever its text.
                let proclamation =
                    Proclamation::read(&note).filter(|_| sequence > 0).map(|proclamation| (proclamation, sequence));
                (Some(owner), true, proclamation)
            }
        };
        if let (Some((Proclamation { term, value }, sequence)), Some(owner)) = (proclamation, &owner) {
            self.on_proclamation(Leader { term, sequence, value }, owner, now);
        }
        let had =
            self.nodes[node].as_ref().is_some_and(|before| before.id == id && (before.had || self.is_leaders(before)));
        let seen = LastReport { id, owner, counts, asked, had };
        let had = seen.had && !self.is_leaders(&seen);
        self.nodes[node] = Some(LastReport { had, ..seen });
        self.judge(now);
    }

    /// Notes that `node`, asked at `asked`, gave its last answer again at `now`.
    pub fn on_same(&mut self, node: usize, id: NodeId, asked: BootTime, now: BootTime) {
        if let Some(seen) = self.nodes[node].as_mut().filter(|seen| seen.id == id) {
            seen.asked = asked;
        }
        self.judge(now);
    }

    /// Notes that `node` does not answer. Its last answer no longer counts.
    pub fn on_silence(&mut self, node: usize) {
        self.nodes[node] = None;
    }

    /// Returns all that the observer knows at `now`.
    pub fn observed(&self, now: BootTime) -> Observed<'_> {
        let is_fresh = self.servers(|seen| self.is_fresh(seen, now)) >= majority(self.nodes.len());
        let leader = self.leader.as_ref().filter(|_| !self.ended).map(|best| &best.leader);
        Observed { leader, is_fresh }
    }

    /// Returns whether a majority has the grant of the leader that was seen. If not, that leader may already be gone.
    /// The last answers of the other nodes may be from before its term, so the caller asks these nodes again.
    pub fn is_agreed(&self) -> bool {
        self.servers(|seen| self.is_leaders(seen)) >= majority(self.nodes.len())
    }

    #[cfg(test)]
    pub(super) fn forget(&mut self) {
        self.leader = None;
    }

    fn on_proclamation(&mut self, leader: Leader, owner: &[u8], now: BootTime) {
        match &mut self.leader {
            Some(best) if leader.term == best.leader.term => {
                if leader.sequence > best.leader.sequence && best.owner == owner {
                    best.leader = leader;
                }
            }
            Some(best) if leader.term < best.leader.term => {}
            _ => {
                self.leader = Some(Best { leader, owner: owner.to_vec(), since: now });
                self.ended = false;
                self.nodes.iter_mut().flatten().for_each(|seen| seen.had = false);
            }
        }
    }

    fn is_leaders(&self, seen: &LastReport) -> bool {
        self.leader.as_ref().is_some_and(|best| seen.owner.as_ref() == Some(&best.owner))
    }

    fn is_fresh(&self, seen: &LastReport, now: BootTime) -> bool {
        seen.counts && seen.asked.plus_us(self.fresh_us) > now
    }

    /// Returns whether this answer shows that the leader is gone from that server: the server had its grant before, or
    /// was asked after the leader was seen. An older answer may be from before the leader's term.
    fn is_gone(&self, seen: &LastReport, now: BootTime) -> bool {
        let since = self.leader.as_ref().map(|best| best.since);
        #[cfg(test)]
        let since = since.filter(|_| !self.believes_the_earlier);
        self.is_fresh(seen, now) && !self.is_leaders(seen) && (seen.had || Some(seen.asked) >= since)
    }

    fn judge(&mut self, now: BootTime) {
        if self.leader.is_none() {
            return;
        }
        let needed = majority(self.nodes.len());
        #[cfg(test)]
        let needed = needed - self.less;
        if self.servers(|seen| self.is_gone(seen, now)) >= needed {
            self.ended = true;
        } else if self.is_agreed() {
            self.ended = false;
        }
    }

    /// Counts the servers for which `is` returns true. If a server has several names, `is` must return true for its
    /// last answer under each of them.
    fn servers(&self, is: impl Fn(&LastReport) -> bool) -> usize {
        let all = || self.nodes.iter().flatten();
        let ids: Vec<Option<NodeId>> = self.nodes.iter().map(|seen| seen.as_ref().map(|seen| seen.id)).collect();
        let counts = |seen: &LastReport| all().filter(|other| other.id == seen.id).all(&is);
        let named = self.nodes.iter().enumerate().filter_map(|(n, seen)| Some((n, seen.as_ref()?)));
        named.filter(|(n, seen)| first_as(&ids, *n).is_none() && counts(seen)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ms, token};

    const FRESH_MS: u32 = 1_000;

    fn held(owner: &str, term: u64, sequence: u64) -> LockReport {
        let note = Proclamation { term: token(term), value: format!("{owner} {sequence}").into_bytes() }.note();
        LockReport::Held { owner: owner.into(), note, sequence }
    }

    /// Builds an observer that has received answers: (node, server, answer), each a millisecond after the one before.
    /// Also returns the time.
    fn observer(nodes: usize, answers: &[(usize, u128, LockReport)]) -> (Observer, u64) {
        let mut observer = Observer::new(nodes, FRESH_MS);
        for (n, (node, id, says)) in answers.iter().enumerate() {
            observer.on_answer(*node, NodeId(*id), says.clone(), ms(n as u64), ms(n as u64));
        }
        (observer, answers.len() as u64)
    }

    /// Returns term and sequence number of the leader, if there is one, and whether the answers are fresh.
    fn told((observer, now): &(Observer, u64)) -> (Option<(u64, u64)>, bool) {
        let observed = observer.observed(ms(*now));
        (observed.leader.map(|leader| (leader.term.get(), leader.sequence)), observed.is_fresh)
    }

    #[test]
    fn terms_go_on_in_another_set_of_nodes() {
        let (mut observer, now) = observer(3, &[(0, 0, held("b", 20, 1)), (1, 1, held("b", 20, 1))]);
        observer.move_to(4);
        assert_eq!(told(&(observer.clone(), now)), (Some((20, 1)), false));
        for node in 0..3 {
            observer.on_answer(node, NodeId(node as u128), held("a", 10, 1), ms(now), ms(now));
        }
        assert_eq!(told(&(observer, now)), (None, true), "an earlier leader is none");
    }

    #[test]
    fn each_report_has_its_leader() {
        use LockReport::{Free, Guarded};
        let (a, a2, b, candidate) = (held("a", 10, 1), held("a", 10, 2), held("b", 20, 1), held("c", 30, 0));
        let cases: &[(&str, &[(usize, u128, LockReport)], _)] = &[
            ("nothing is known", &[], (None, false)),
            ("one node of three", &[(0, 0, Free)], (None, false)),
            ("a majority", &[(0, 0, Free), (1, 1, Free)], (None, true)),
            ("two names for one server", &[(0, 0, Free), (1, 0, Free)], (None, false)),
            ("a guarded node does not count", &[(0, 0, Free), (1, 1, Guarded)], (None, false)),
            ("one proclamation proves the term", &[(0, 0, a.clone())], (Some((10, 1)), false)),
            ("sequence 0 proves nothing", &[(0, 0, candidate.clone()), (1, 1, candidate.clone())], (None, true)),
            ("the larger sequence", &[(0, 0, a2.clone()), (1, 1, a.clone())], (Some((10, 2)), true)),
            ("the larger term", &[(0, 0, b.clone()), (1, 1, a2.clone())], (Some((20, 1)), true)),
            ("it never goes back", &[(0, 0, b.clone()), (1, 1, a.clone())], (Some((20, 1)), true)),
            ("not even if all do", &[(0, 0, b.clone()), (0, 0, a.clone()), (1, 1, a.clone())], (None, true)),
            (
                "gone at a minority",
                &[(0, 0, a.clone()), (1, 1, a.clone()), (2, 2, a.clone()), (0, 0, Free)],
                (Some((10, 1)), true),
            ),
            ("gone at a majority", &[(0, 0, a.clone()), (1, 1, a.clone()), (0, 0, Free), (1, 1, Free)], (None, true)),
            (
                "gone where a candidate is",
                &[(0, 0, a.clone()), (1, 1, a.clone()), (0, 0, candidate.clone()), (1, 1, candidate.clone())],
                (None, true),
            ),
            (
                "guarded nodes do not say that it is gone",
                &[(0, 0, a.clone()), (1, 1, a.clone()), (0, 0, Guarded), (1, 1, Guarded)],
                (Some((10, 1)), false),
            ),
            (
                "nor does one server under two names",
                &[(0, 0, a.clone()), (1, 0, a.clone()), (2, 2, a.clone()), (0, 0, Free), (1, 0, Free)],
                (Some((10, 1)), true),
            ),
            (
                "nor what was said before it was seen",
                &[(0, 0, Free), (1, 1, Free), (2, 2, a.clone())],
                (Some((10, 1)), true),
            ),
            (
                "a dead term does not come back by a minority",
                &[(0, 0, a.clone()), (1, 1, a.clone()), (0, 0, Free), (1, 1, Free), (2, 2, a.clone())],
                (None, true),
            ),
            (
                "it does by a majority: it was healed",
                &[
                    (0, 0, a.clone()),
                    (1, 1, a.clone()),
                    (0, 0, Free),
                    (1, 1, Free),
                    (2, 2, a.clone()),
                    (0, 0, a.clone()),
                ],
                (Some((10, 1)), true),
            ),
            (
                "the next term",
                &[(0, 0, a.clone()), (1, 1, a.clone()), (0, 0, Free), (1, 1, Free), (2, 2, b.clone())],
                (Some((20, 1)), true),
            ),
            (
                "another note is no proclamation",
                &[(0, 0, LockReport::Held { owner: vec![1], note: vec![], sequence: 4 })],
                (None, false),
            ),
        ];
        for (name, answers, expected) in cases {
            assert_eq!(told(&observer(3, answers)), *expected, "{name}");
        }
    }

    #[test]
    fn what_was_said_long_ago_counts_for_nothing() {
        let a = held("a", 10, 1);
        let (mut it, _) = observer(3, &[(0, 0, a.clone()), (1, 1, a.clone()), (2, 2, a)]);
        assert!(it.observed(ms(999)).is_fresh && !it.observed(ms(1_001)).is_fresh);
        it.on_same(0, NodeId(0), ms(900), ms(950));
        it.on_same(1, NodeId(1), ms(900), ms(950));
        // Another server than the one of the last answer repeats it, which does not count.
        it.on_same(2, NodeId(9), ms(900), ms(950));
        assert!(it.observed(ms(1_899)).is_fresh);
        it.on_silence(0);
        assert!(!it.observed(ms(1_100)).is_fresh);
        // One server says that the leader's grant is gone. Another said so too, but its answer is too old to count.
        let (mut it, _) = observer(3, &[(0, 0, held("a", 10, 1)), (1, 1, held("a", 10, 1)), (0, 0, LockReport::Free)]);
        it.on_answer(1, NodeId(1), LockReport::Free, ms(1_002), ms(1_002));
        assert_eq!(it.observed(ms(1_002)).leader.map(|leader| leader.term), Some(token(10)));
    }

    #[test]
    fn nobody_leads_as_soon_as_those_asked_later_say_so() {
        let (mut it, _) = observer(3, &[(0, 0, LockReport::Free), (1, 1, LockReport::Free), (2, 2, held("a", 10, 1))]);
        assert!(!it.is_agreed());
        it.on_same(0, NodeId(0), ms(3), ms(4));
        assert!(it.observed(ms(4)).leader.is_some());
        it.on_same(1, NodeId(1), ms(3), ms(4));
        assert!(it.observed(ms(4)).leader.is_none());
    }
}
