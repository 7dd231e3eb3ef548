//! Giving a lock back everywhere.

use super::ask::majority;

/// What a release came to, over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// No majority has it for this owner any more, and at least one had it until now.
    Released,
    /// No majority had it: it had ended before, or was broken.
    NotHeld,
    /// Too many nodes did not answer to say so: there it ends with its lease.
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

    /// `node` had it (`Some(true)`), had it not, or did not answer (`None`).
    pub fn on_answer(&mut self, node: usize, held: Option<bool>) {
        self.answers[node] = held.map_or(Answer::Silent, Answer::Held);
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

    /// What it came to so far.
    pub fn outcome(&self) -> Released {
        let count = |what: bool| self.answers.iter().filter(|answer| **answer == Answer::Held(what)).count();
        let (held, not_held) = (count(true), count(false));
        let needed = majority(self.answers.len());
        if not_held >= needed {
            Released::NotHeld
        } else if held + not_held >= needed && held > 0 {
            Released::Released
        } else {
            Released::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        use super::Released::*;
        let (yes, no, silent) = (Some(true), Some(false), None);
        let cases = [
            ([yes, yes, yes, yes, yes], Released, 0),
            ([yes, yes, yes, silent, silent], Released, 2),
            ([yes, no, no, no, silent], NotHeld, 1),
            ([yes, yes, no, no, silent], Released, 1),
            ([no, no, no, silent, silent], NotHeld, 2),
            ([yes, yes, silent, silent, silent], Unknown, 3),
            ([silent; 5], Unknown, 5),
        ];
        for (answers, expected, silent) in cases {
            let mut release = Release::begin(5);
            for (node, answer) in answers.into_iter().enumerate() {
                assert!(!release.is_complete());
                release.on_answer(node, answer);
            }
            assert_eq!((release.outcome(), release.silent().count()), (expected, silent), "{answers:?}");
            assert!(release.is_complete());
        }
    }
}
