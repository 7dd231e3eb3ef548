//! The obstacles that keep a client from getting a lock on a majority.

use super::ask::{Out, majority};
use super::taker::Refused;

/// The reason why a client cannot acquire a lock on a majority.
///
/// If too few nodes are up and unguarded for a majority, nobody knows whether another owner holds the lock: a node that
/// is down or guarded may have granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// Too few nodes can be asked: others do not answer, or fail.
    Failed,
    /// Too few nodes can be asked and are not guarded. Waiting for the end of guards helps.
    Guarded {
        /// The time until enough nodes are no longer guarded, in milliseconds.
        left_ms: u64,
    },
    /// Enough nodes can be asked and are not guarded, but other owners hold the lock on some of them.
    Contended,
}

impl Obstacle {
    /// Returns the obstacle as the [`Taker`](crate::Taker) receives it.
    pub fn refused(self) -> Refused {
        match self {
            Self::Failed => Refused::TooFewNodes { is_lasting: false },
            Self::Guarded { left_ms } => Refused::Guarded { left_ms: u32::try_from(left_ms).unwrap_or(u32::MAX) },
            Self::Contended => Refused::Contended,
        }
    }
}

/// Returns the obstacle that these answers show, while `open` nodes have not answered. `None` while the outcome depends
/// on those nodes.
pub(super) fn obstacle(outs: &[Option<Out>], open: usize) -> Option<Obstacle> {
    let count = |which: fn(&Out) -> bool| outs.iter().flatten().filter(|out| which(out)).count();
    let spare = outs.len() - majority(outs.len());
    let failed = count(|out| matches!(out, Out::Failed | Out::Duplicate));
    let guarded = count(|out| matches!(out, Out::Guarded { .. }));
    if failed > spare {
        Some(Obstacle::Failed)
    } else if failed + open > spare {
        None
    } else if failed + guarded > spare {
        Some(Obstacle::Guarded { left_ms: open_in_ms(outs, failed) })
    } else if failed + guarded + open > spare {
        None
    } else if outs.contains(&Some(Out::Contended)) {
        Some(Obstacle::Contended)
    } else {
        // Enough nodes granted the lock, but they did not reach one common token.
        Some(Obstacle::Failed)
    }
}

/// Returns the time until enough guards are over that a majority of the nodes is not guarded, in milliseconds.
fn open_in_ms(outs: &[Option<Out>], failed: usize) -> u64 {
    let guarded_ms = |out: &Out| if let Out::Guarded { ms } = out { Some(*ms) } else { None };
    let mut guarded: Vec<u64> = outs.iter().flatten().filter_map(guarded_ms).collect();
    guarded.sort_unstable();
    let needed = (majority(outs.len()) + failed + guarded.len()).saturating_sub(outs.len()).max(1);
    guarded.get(needed.min(guarded.len()) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_serves_when_enough_guards_are_over() {
        let guarded = |ms| Some(Out::Guarded { ms });
        let outs = [guarded(30), guarded(10), guarded(20), None, None];
        assert_eq!(obstacle(&outs, 0), Some(Obstacle::Guarded { left_ms: 10 }), "one of them and two others");
        let outs = [guarded(30), guarded(10), guarded(20), Some(Out::Failed), None];
        assert_eq!(obstacle(&outs, 0), Some(Obstacle::Guarded { left_ms: 20 }));
        assert_eq!(obstacle(&[guarded(9); 5], 0), Some(Obstacle::Guarded { left_ms: 9 }));
    }

    #[test]
    fn each_refusal_has_its_obstacle() {
        use Obstacle::*;
        const OUT: [Option<Out>; 4] = [None, Some(Out::Contended), Some(Out::Guarded { ms: 7 }), Some(Out::Failed)];
        // (numbers of nodes: granted, contended, guarded, failed, open; the obstacle)
        let cases = [
            ([0, 5, 0, 0, 0], Some(Contended)),
            ([2, 3, 0, 0, 0], Some(Contended)),
            ([0, 3, 2, 0, 0], Some(Contended)),
            ([0, 3, 0, 0, 2], Some(Contended)),
            // Two nodes granted the lock to another owner, and three may have done so and forgotten it.
            ([0, 2, 3, 0, 0], Some(Guarded { left_ms: 7 })),
            ([0, 2, 2, 1, 0], Some(Guarded { left_ms: 7 })),
            ([0, 2, 2, 0, 1], None),
            ([0, 2, 0, 3, 0], Some(Failed)),
            ([0, 2, 0, 1, 2], None),
            ([0, 2, 0, 2, 1], None),
            ([0, 0, 2, 3, 0], Some(Failed)),
            ([0, 0, 1, 0, 0], Some(Guarded { left_ms: 7 })),
            ([0, 1, 0, 0, 0], Some(Contended)),
            ([1, 1, 1, 1, 0], Some(Guarded { left_ms: 7 })),
            ([3, 0, 0, 0, 0], Some(Failed)),
        ];
        for (counts, expected) in cases {
            let out = |(kind, count): (usize, &usize)| vec![OUT[kind % OUT.len()]; *count];
            let outs: Vec<_> = counts.iter().enumerate().flat_map(out).collect();
            assert_eq!(obstacle(&outs, counts[4]), expected, "{counts:?}");
        }
    }
}
