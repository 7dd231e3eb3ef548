//! Releases a lock on all nodes.

use super::ask::majority;

/// The outcome of a release, from the answers of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// A majority says that this owner held the lock until now.
    Released,
    /// A majority says that this owner did not hold the lock: its lease had ended, or it was broken.
    NotHeld,
    /// No majority says that the owner held the lock, and none that it did not. So the owner may have lost it before.
    /// On nodes that did not answer, the lock ends with its lease.
    Unknown,
}

/// The answer of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The node has not answered yet.
    Open,
    /// The node did not answer in time.
    Silent,
    /// The node says whether this owner held the lock there until now.
    Held(bool),
}

/// A release in progress. RELEASE goes to every node that was asked for the lock, also to those that did not grant it.
#[derive(Clone, Debug)]
pub struct Release {
    /// The answer of each node.
    answers: Vec<Answer>,
}

impl Release {
    /// Begins a release on `nodes` nodes.
    pub fn begin(nodes: usize) -> Self {
        Self { answers: vec![Answer::Open; nodes] }
    }

    /// Notes that `node` had the lock (`Some(true)`), did not (`Some(false)`), or did not answer (`None`). If a node is
    /// asked twice, the first request may have freed the lock. So of a second answer only `Some(true)` counts.
    pub fn on_answer(&mut self, node: usize, held: Option<bool>) {
        let answer = &mut self.answers[node];
        match (*answer, held) {
            (Answer::Held(_), _) | (Answer::Silent, Some(false)) => {}
            (_, held) => *answer = held.map_or(Answer::Silent, Answer::Held),
        }
    }

    /// Returns whether each node has answered, or failed to in time.
    pub fn is_complete(&self) -> bool {
        self.answers.iter().all(|answer| *answer != Answer::Open)
    }

    /// Returns the nodes that did not answer in time.
    pub fn silent(&self) -> impl Iterator<Item = usize> {
        let silent = |answer: &Answer| matches!(answer, Answer::Open | Answer::Silent);
        self.answers.iter().enumerate().filter(move |(_, answer)| silent(answer)).map(|(node, _)| node)
    }

    /// Returns the outcome from the answers so far. If only a minority had the lock, that does not prove that the owner
    /// held it: another owner may have had the majority.
    pub fn outcome(&self) -> Released {
        let count = |what: bool| self.answers.iter().filter(|answer| **answer == Answer::Held(what)).count();
        let needed = majority(self.answers.len());
        if count(true) >= needed {
            Released::Released
        } else if count(false) >= needed {
            Released::NotHeld
        } else {
            Released::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);
    const SILENT: Option<bool> = None;

    fn answered(answers: &[Option<bool>]) -> Release {
        let mut release = Release::begin(answers.len());
        for (node, answer) in answers.iter().enumerate() {
            assert!(!release.is_complete());
            release.on_answer(node, *answer);
        }
        assert!(release.is_complete());
        release
    }

    #[test]
    fn each_set_of_answers_has_its_outcome() {
        use super::Released::*;
        let cases: [(&[_], _, _); 12] = [
            (&[YES, YES, YES, YES, YES], Released, 0),
            (&[YES, YES, YES, SILENT, SILENT], Released, 2),
            (&[YES, YES, YES, NO, NO], Released, 0),
            (&[YES, NO, NO, NO, SILENT], NotHeld, 1),
            (&[NO, NO, NO, SILENT, SILENT], NotHeld, 2),
            // Another owner may hold the lock on the other three.
            (&[YES, YES, NO, NO, SILENT], Unknown, 1),
            (&[YES, YES, SILENT, SILENT, SILENT], Unknown, 3),
            (&[SILENT; 5], Unknown, 5),
            (&[YES, NO, SILENT], Unknown, 1),
            // Two of four nodes had the lock, which is no majority. But it may be that the owner held it on two of
            // three nodes, and the fourth was added since.
            (&[YES, YES, NO, NO], Unknown, 0),
            (&[YES], Released, 0),
            (&[NO], NotHeld, 0),
        ];
        for (answers, expected, silent) in cases {
            let release = answered(answers);
            assert_eq!((release.outcome(), release.silent().count()), (expected, silent), "{answers:?}");
        }
    }

    /// The connection breaks before the answer arrives, and the node is asked once more. It then says that the owner
    /// does not hold the lock, which does not count.
    #[test]
    fn a_node_that_is_asked_again_may_have_freed_it_before() {
        let mut release = answered(&[YES, SILENT, SILENT]);
        release.on_answer(1, NO);
        release.on_answer(2, NO);
        assert_eq!((release.outcome(), release.silent().count()), (Released::Unknown, 2));
        release.on_answer(1, YES);
        release.on_answer(1, NO);
        assert_eq!((release.outcome(), release.silent().count()), (Released::Released, 1));
    }
}
