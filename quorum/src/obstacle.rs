//! What keeps a majority from granting a lock.

use super::ask::{Out, majority};

/// What stands in the way of an acquisition. While nodes that do not count are more than a majority can spare, nobody can say whether another
/// owner holds the lock: a node that is down or guarded may be one of those that granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// Too few nodes can be asked.
    Failed,
    /// Too few nodes can be asked and are not guarded.
    Guarded,
    /// Other owners: without them a majority would grant it.
    Contended,
}

/// Returns what stands in the way where nodes said this, and `open` others have not answered; `None`: that depends on them.
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
        Some(Obstacle::Guarded)
    } else if failed + guarded + open > spare {
        None
    } else if outs.contains(&Some(Out::Contended)) {
        Some(Obstacle::Contended)
    } else {
        // Those that granted it did not bring their tokens together.
        Some(Obstacle::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        use Obstacle::*;
        const OUT: [Option<Out>; 4] = [None, Some(Out::Contended), Some(Out::Guarded { ms: 7 }), Some(Out::Failed)];
        // (granted, contended, guarded, failed, open)
        let cases = [
            ([0, 5, 0, 0, 0], Some(Contended)),
            ([2, 3, 0, 0, 0], Some(Contended)),
            ([0, 3, 2, 0, 0], Some(Contended)),
            ([0, 3, 0, 0, 2], Some(Contended)),
            // Two hold it for somebody, and three may have forgotten that they did.
            ([0, 2, 3, 0, 0], Some(Guarded)),
            ([0, 2, 2, 1, 0], Some(Guarded)),
            ([0, 2, 2, 0, 1], None),
            ([0, 2, 0, 3, 0], Some(Failed)),
            ([0, 2, 0, 1, 2], None),
            ([0, 2, 0, 2, 1], None),
            ([0, 0, 2, 3, 0], Some(Failed)),
            ([0, 0, 1, 0, 0], Some(Guarded)),
            ([0, 1, 0, 0, 0], Some(Contended)),
            ([1, 1, 1, 1, 0], Some(Guarded)),
            ([3, 0, 0, 0, 0], Some(Failed)),
        ];
        for (counts, expected) in cases {
            let out = |(kind, count): (usize, &usize)| vec![OUT[kind % OUT.len()]; *count];
            let outs: Vec<_> = counts.iter().enumerate().flat_map(out).collect();
            assert_eq!(obstacle(&outs, counts[4]), expected, "{counts:?}");
        }
    }
}
