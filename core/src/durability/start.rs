//! Judges a start: whether the node provably remembers every grant of its last incarnation, and whether it must be
//! guarded.

use crate::durability::node_state::{CleanEnd, NodeState};
use crate::durability::ties::{AofFile, Found};
use crate::format::digest::LocksDigest;
use crate::values::limits::{CEILING_LEAD, ISSUED_LEAD, START_LEAD};
use crate::values::time::{BootId, BootTime, ahead_us};

/// The values of `lock.restart-guard`: whether a node is guarded after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardPolicy {
    /// The node is guarded unless it provably remembers every grant.
    Auto,
    /// The node is guarded after every start.
    Always,
    /// The node is never guarded after a start: the operator vouches for the data.
    Never,
}

/// The facts that are known at the end of a start, once data is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The last incarnation's state from the state file, if there is one that is readable.
    pub last: Option<&'a NodeState>,
    /// Everything found at the start except the content of the state file.
    pub found: &'a Found,
    /// The digest of the loaded locks, without those that [`Start::is_counted`] leaves out.
    pub loaded: LocksDigest,
    /// True if the locks came from the AOF.
    pub from_aof: bool,
    /// The id of the machine's present boot.
    pub boot: BootId,
}

impl Start<'_> {
    /// Returns whether the node provably remembers every grant of its last incarnation. The state file must be the one
    /// that this incarnation left, and nobody else may have used the data since. In addition, either the loaded locks
    /// are exactly those that ran on at its clean end, or the loaded AOF contains everything that it ever granted.
    pub fn is_proved(&self) -> bool {
        let Some(last) = self.last else { return false };
        let ended_clean = last.end.is_some_and(|CleanEnd { locks, .. }| {
            let same = if last.boot == self.boot {
                locks.exact == self.loaded.exact
            } else {
                locks.other_boot == self.loaded.other_boot
            };
            same && locks.count == self.loaded.count
        });
        let is_whole = |aof: AofFile| self.found.aof.iter().any(|found| found.id == aof.id && found.bytes >= aof.bytes);
        last.is_tied_to(self.found) && (ended_clean || (self.from_aof && last.aof.is_some_and(is_whole)))
    }

    /// Returns whether a loaded lock that ends at `deadline` counts in [`Start::loaded`]. It does not if its lease was
    /// over before the last incarnation's clean end, because such a lock is only a leftover in the file. On another
    /// boot the times cannot be compared, so every lock counts.
    pub fn is_counted(last: Option<&NodeState>, boot: BootId, deadline: BootTime) -> bool {
        let end = last.filter(|last| last.boot == boot).and_then(|last| last.end);
        end.is_none_or(|end| end.at <= deadline)
    }

    /// Returns at `now`, once data is loaded, whether the node remembers every grant and whether it is guarded.
    pub fn judge(&self, policy: GuardPolicy, now: BootTime) -> Verdict {
        let is_proved = self.is_proved();
        let is_same_boot = self.last.is_none_or(|last| last.boot == self.boot);
        let unproved_before = self.last.map_or(BootTime::default(), |last| last.unproved_before);
        let trusted_since = if policy != GuardPolicy::Never && !is_proved {
            now
        } else if unproved_before != BootTime::default() && !is_same_boot {
            // The last incarnation could not prove to remember some of these grants. On another boot the node cannot
            // tell which, so none is trusted.
            now
        } else {
            unproved_before
        };
        let is_guarded = policy == GuardPolicy::Always || (policy == GuardPolicy::Auto && !is_proved);
        Verdict { is_proved, is_guarded, is_same_boot, trusted_since }
    }
}

/// The result of judging a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// True if the node remembers every grant.
    pub is_proved: bool,
    /// True if the node is guarded until the longest lease that may still run has ended.
    pub is_guarded: bool,
    /// True if the machine has not rebooted since the last incarnation, so times of that incarnation are valid.
    pub is_same_boot: bool,
    /// The time before which granted locks are suspect, because the node cannot prove that it remembers all of them.
    pub trusted_since: BootTime,
}

/// Returns a token that no earlier incarnation of the node exceeded. With a state file that belongs to the data, it is
/// the file's ceiling, or the clock if that is ahead. Without a file, it is the clock plus all that a ceiling can be
/// ahead: twice the skew (another node's clock may be ahead too) and both leads. If the file is a copy, or another
/// incarnation used the data since, it is that sum, or the file's ceiling plus two leads if that is larger.
pub fn token_floor(last: Option<&NodeState>, found: &Found, wall_us: u64, skew_ms: u32) -> u64 {
    let highest = ahead_us(ahead_us(wall_us, skew_ms), skew_ms) + CEILING_LEAD + ISSUED_LEAD;
    match last {
        None => highest,
        Some(last) if last.is_tied_to(found) => last.ceiling.max(wall_us),
        Some(last) => last.ceiling.saturating_add(ISSUED_LEAD + START_LEAD).max(highest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::ties::{FileId, IncarnationId};

    const HERE: BootId = BootId([1; 16]);
    const ELSEWHERE: BootId = BootId([2; 16]);
    const FILE: FileId = FileId { number: 3, born_ns: 4 };
    const AOF: AofFile = AofFile { id: FileId { number: 5, born_ns: 6 }, bytes: 7 };

    fn last(end: Option<LocksDigest>, aof: Option<AofFile>, boot: BootId) -> NodeState {
        let end = end.map(|locks| CleanEnd { at: BootTime::default(), locks });
        NodeState { file: Some(FILE), aof, end, ..NodeState::new(1, boot) }
    }

    /// Returns the findings of a start at which nothing was copied or used by others since the last incarnation.
    fn untouched() -> Found {
        Found { file: Some(FILE), used_by: Some(IncarnationId { node: 1, number: 1 }), aof: vec![AOF] }
    }

    fn digest(count: u64, exact: u128, other_boot: u128) -> LocksDigest {
        LocksDigest { count, exact, other_boot }
    }

    #[test]
    fn every_combination_has_its_guard() {
        let loaded = digest(2, 5, 6);
        let ends = [
            // (the locks at the last clean end, whether they prove the start within one boot, and whether after a
            // reboot)
            (None, false, false),
            (Some(loaded), true, true),
            (Some(digest(2, 5, 0)), true, false),
            (Some(digest(2, 0, 6)), false, true),
            (Some(digest(3, 5, 6)), false, false),
            (Some(digest(0, 0, 0)), false, false),
        ];
        let found = untouched();
        for (end, within, over) in ends {
            for (boot, clean) in [(HERE, within), (ELSEWHERE, over)] {
                for aof in [None, Some(AOF)] {
                    for from_aof in [false, true] {
                        let last = last(end, aof, boot);
                        let start = Start { last: Some(&last), found: &found, loaded, from_aof, boot: HERE };
                        assert_eq!(start.is_proved(), clean || (aof.is_some() && from_aof), "{start:?}");
                    }
                }
            }
        }
        let none = LocksDigest::default();
        assert!(!Start { last: None, found: &found, loaded: none, from_aof: true, boot: HERE }.is_proved());
    }

    /// The state file is a copy, or another incarnation has used the data. Then neither a clean end nor a complete AOF
    /// proves that the node remembers every grant.
    #[test]
    fn what_is_not_tied_to_the_data_proves_nothing() {
        let loaded = digest(2, 5, 6);
        let other = FileId { number: 8, born_ns: 9 };
        let cases = [
            ("a copied state file", Found { file: Some(FileId { born_ns: 9, ..FILE }), ..untouched() }, false, false),
            ("a file of an unknown kind", Found { file: None, ..untouched() }, false, false),
            (
                "another node used the data",
                Found { used_by: Some(IncarnationId { node: 2, number: 1 }), ..untouched() },
                false,
                false,
            ),
            (
                "another incarnation did",
                Found { used_by: Some(IncarnationId { node: 1, number: 2 }), ..untouched() },
                false,
                false,
            ),
            ("nobody knows who did", Found { used_by: None, ..untouched() }, false, false),
            ("another AOF", Found { aof: vec![AofFile { id: other, ..AOF }], ..untouched() }, true, false),
            ("an older AOF in its place", Found { aof: vec![AofFile { bytes: 6, ..AOF }], ..untouched() }, true, false),
            ("no AOF", Found { aof: vec![], ..untouched() }, true, false),
            ("it has grown", Found { aof: vec![AofFile { bytes: 8, ..AOF }], ..untouched() }, true, true),
            (
                "and has others beside",
                Found { aof: vec![AofFile { id: other, ..AOF }, AOF], ..untouched() },
                true,
                true,
            ),
        ];
        for (what, found, ended_clean, aof_life) in cases {
            for (last, from_aof, proved) in
                [(last(Some(loaded), None, HERE), false, ended_clean), (last(None, Some(AOF), HERE), true, aof_life)]
            {
                let start = Start { last: Some(&last), found: &found, loaded, from_aof, boot: HERE };
                assert_eq!(start.is_proved(), proved, "{what}");
            }
        }
        let last = NodeState { file: None, ..last(Some(loaded), Some(AOF), HERE) };
        let found = Found { file: None, ..untouched() };
        assert!(!Start { last: Some(&last), found: &found, loaded, from_aof: true, boot: HERE }.is_proved());
    }

    #[test]
    fn locks_that_had_ended_before_a_clean_end_do_not_count() {
        let time = BootTime::from_us;
        let end = Some(CleanEnd { at: time(100), locks: LocksDigest::default() });
        let last = NodeState { end, ..NodeState::new(1, HERE) };
        assert!(Start::is_counted(Some(&last), HERE, time(100)) && !Start::is_counted(Some(&last), HERE, time(99)));
        assert!(Start::is_counted(Some(&last), ELSEWHERE, time(99)) && Start::is_counted(None, HERE, time(99)));
    }

    #[test]
    fn tokens_start_above_whatever_can_have_been_issued() {
        let last = NodeState { ceiling: 50_000_000, ..last(None, None, HERE) };
        let found = untouched();
        let unknown = 1_000 + CEILING_LEAD + ISSUED_LEAD + 4_000_000;
        assert_eq!(token_floor(None, &found, 1_000, 2_000), unknown);
        assert_eq!(token_floor(Some(&last), &found, 1_000, 2_000), 50_000_000);
        assert_eq!(token_floor(Some(&last), &found, 60_000_000, 2_000), 60_000_000);
        let copy = Found { file: Some(FileId { number: 8, ..FILE }), ..untouched() };
        let used = Found { used_by: Some(IncarnationId { node: 8, number: 1 }), ..untouched() };
        for found in [copy, used] {
            assert_eq!(token_floor(Some(&last), &found, 1_000, 2_000), 50_000_000 + ISSUED_LEAD + START_LEAD);
            assert_eq!(token_floor(Some(&last), &found, 60_000_000, 2_000), 60_000_000 - 1_000 + unknown);
        }
    }
}
