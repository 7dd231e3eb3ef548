//! What a start can prove, whether the node remembers every grant of its last life, and what follows from it.

use crate::limits::{CEILING_LEAD, ISSUED_LEAD};
use crate::record::BootId;
use crate::{BootTime, Cause, LocksDigest, Node, NodeState, Now, ahead_us, guard_ms};

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

    /// Decides, when data is loaded, what `node` may do: whether it is guarded, and since when it vouches for locks. Leases of
    /// up to `owed_ms` may still run. Answers whether it remembers every grant.
    pub fn judge(&self, policy: GuardPolicy, owed_ms: u32, node: &mut Node, now: BootTime) -> bool {
        let proved = self.is_proved();
        if policy == GuardPolicy::Always || (policy == GuardPolicy::Auto && !proved) {
            node.guard.arm(Cause::Restart, now, now.plus_ms(guard_ms(owed_ms, node.skew_ms)));
        }
        let same_boot = self.last.is_none_or(|last| last.boot == self.boot);
        // Whatever was armed on another boot: every lock that was loaded is from before.
        if !same_boot {
            node.guard.since_now(now);
        }
        let unproved_before = self.last.map_or(BootTime::default(), |last| last.unproved_before);
        if policy != GuardPolicy::Never && !proved {
            node.vouches_from = now;
        } else if unproved_before != BootTime::default() {
            // The last life could not vouch for some of these; on another boot it is not known for which.
            node.vouches_from = if same_boot { unproved_before } else { now };
        }
        proved
    }
}

/// No earlier life of the node issued a token above this: the ceiling it left or, if none is known, where that can have been at
/// the most if clocks agree. It may have been raised to a token of another node, which is ahead of a clock that is ahead of
/// this one.
pub fn token_floor(last: Option<&NodeState>, wall_us: u64, skew_ms: u32) -> u64 {
    let highest = ahead_us(ahead_us(wall_us, skew_ms), skew_ms) + CEILING_LEAD + ISSUED_LEAD;
    last.map_or(highest, |last| last.ceiling.max(wall_us))
}

/// `node`, a replica until now, becomes a master. The one before it issued tokens up to `ceiling`, as far as this node
/// heard, and may have granted leases of up to `owed_ms` that never reached it.
pub fn promote(policy: GuardPolicy, ceiling: u64, owed_ms: u32, node: &mut Node, now: Now) {
    node.tokens.raise_floor(ceiling.max(ahead_us(now.wall_us, node.skew_ms)));
    if policy != GuardPolicy::Never {
        node.guard.arm(Cause::Promotion, now.boot, now.boot.plus_ms(guard_ms(owed_ms, node.skew_ms)));
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
