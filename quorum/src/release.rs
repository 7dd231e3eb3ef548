//! Giving a lock back everywhere.

use super::ask::majority;

/// What a release came to, over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// A majority said that this owner held it until now.
    Released,
    /// A majority said that this owner did not hold it: it had ended before, or was broken.
    NotHeld,
    /// No majority said either: the owner may have lost it before. Where nodes do not answer it ends with its lease.
    Unknown,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It may still answer.
    Open,
    /// It did not, in time.
    Silent,
    /// Whether this owner held the lock there until now.
    Held(bool),
}

/// A release that is under way: RELEASE goes to every node, also to those that never granted it.
#[derive(Clone, Debug)]
pub struct Release {
    /// By node.
    answers: Vec<Answer>,
}

impl Release {
    /// Asks `nodes` nodes.
    pub fn begin(nodes: usize) -> Self {
        Self { answers: vec![Answer::Open; nodes] }
    }

    /// `node` had it (`Some(true)`), had it not, or did not answer (`None`). A node that is asked again may have freed it when it was asked
    /// first: only that it had it is news then.
    pub fn on_answer(&mut self, node: usize, held: Option<bool>) {
        let answer = &mut self.answers[node];
        match (*answer, held) {
            (Answer::Held(_), _) | (Answer::Silent, Some(false)) => {}
            (_, held) => *answer = held.map_or(Answer::Silent, Answer::Held),
        }
    }

    /// Whether every node has answered, or has not in time.
    pub fn is_complete(&self) -> bool {
        self.answers.iter().all(|answer| *answer != Answer::Open)
    }

    /// Which nodes did not answer.
    pub fn silent(&self) -> impl Iterator<Item = usize> {
        let silent = |answer: &Answer| matches!(answer, Answer::Open | Answer::Silent);
        self.answers.iter().enumerate().filter(move |(_, answer)| silent(answer)).map(|(node, _)| node)
    }

    /// The outcome so far. That a minority held it is no proof that its owner did: another one may have had the majority.
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
    fn table() {
        use super::Released::*;
        let cases: [(&[_], _, _); 12] = [
            (&[YES, YES, YES, YES, YES], Released, 0),
            (&[YES, YES, YES, SILENT, SILENT], Released, 2),
            (&[YES, YES, YES, NO, NO], Released, 0),
            (&[YES, NO, NO, NO, SILENT], NotHeld, 1),
            (&[NO, NO, NO, SILENT, SILENT], NotHeld, 2),
            // Somebody else may hold the other three.
            (&[YES, YES, NO, NO, SILENT], Unknown, 1),
            (&[YES, YES, SILENT, SILENT, SILENT], Unknown, 3),
            (&[SILENT; 5], Unknown, 5),
            (&[YES, NO, SILENT], Unknown, 1),
            // No majority had it: or it was one of three nodes, and the fourth was added since.
            (&[YES, YES, NO, NO], Unknown, 0),
            (&[YES], Released, 0),
            (&[NO], NotHeld, 0),
        ];
        for (answers, expected, silent) in cases {
            let release = answered(answers);
            assert_eq!((release.outcome(), release.silent().count()), (expected, silent), "{answers:?}");
        }
    }

    /// The connection broke before the answer came, and the node is asked once more.
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
