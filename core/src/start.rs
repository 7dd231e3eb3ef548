//! What a start can prove: whether the node remembers every grant of its last life.

use crate::record::BootId;
use crate::{LocksDigest, NodeState};

/// `lock.restart-guard`: when a start is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardPolicy {
    /// When it cannot be proved that every grant is remembered.
    Auto,
    /// At every start.
    Always,
    /// At no start: the operator vouches for the data.
    Never,
}

/// What is known at the end of a start, when data is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// What the last life left in the state file, if there is a readable one.
    pub last: Option<&'a NodeState>,
    /// The locks that were loaded.
    pub loaded: LocksDigest,
    /// Whether they came from the AOF.
    pub from_aof: bool,
    /// This boot of this machine.
    pub boot: BootId,
}

impl Start<'_> {
    /// Whether the node provably remembers every grant of its last life: either the locks loaded are the very ones that
    /// there were at its clean end, or everything it ever granted is in the AOF that was loaded.
    pub fn is_proved(&self) -> bool {
        let Some(last) = self.last else { return false };
        let ended_clean = last.end.is_some_and(|end| {
            let same = if last.boot == self.boot {
                end.exact == self.loaded.exact
            } else {
                end.other_boot == self.loaded.other_boot
            };
            same && end.count == self.loaded.count
        });
        ended_clean || (last.aof_life && self.from_aof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BootTime;

    const HERE: BootId = BootId([1; 16]);
    const ELSEWHERE: BootId = BootId([2; 16]);

    fn last(end: Option<LocksDigest>, aof_life: bool, boot: BootId) -> NodeState {
        NodeState {
            id: 1,
            incarnation: 1,
            ceiling: 1,
            owed_ms: 1,
            boot,
            guard: None,
            unproved_before: BootTime::default(),
            aof_life,
            end,
        }
    }

    fn digest(count: u64, exact: u128, other_boot: u128) -> LocksDigest {
        LocksDigest { count, exact, other_boot }
    }

    #[test]
    fn every_combination() {
        let loaded = digest(2, 5, 6);
        let ends = [
            // (at the last end, proves within one boot, proves over a reboot)
            (None, false, false),
            (Some(loaded), true, true),
            (Some(digest(2, 5, 0)), true, false),
            (Some(digest(2, 0, 6)), false, true),
            (Some(digest(3, 5, 6)), false, false),
            (Some(digest(0, 0, 0)), false, false),
        ];
        for (end, within, over) in ends {
            for (boot, clean) in [(HERE, within), (ELSEWHERE, over)] {
                for aof_life in [false, true] {
                    for from_aof in [false, true] {
                        let last = last(end, aof_life, boot);
                        let start = Start { last: Some(&last), loaded, from_aof, boot: HERE };
                        assert_eq!(start.is_proved(), clean || (aof_life && from_aof), "{start:?}");
                    }
                }
            }
        }
        assert!(!Start { last: None, loaded: LocksDigest::default(), from_aof: true, boot: HERE }.is_proved());
    }
}
