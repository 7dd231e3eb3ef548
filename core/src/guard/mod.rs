//! The restart guard: a node that may have forgotten grants refuses new ones until all of them have ended.
//!
//! While it is armed, the node grants no lock. It extends only locks that it granted itself after the guard's cause
//! arose, because it is sure of those. If further causes arise, the latest end counts; only an operator ends the guard
//! early. The guard is a value without a clock: `now` is handed in.

pub mod evicted;
pub mod flush;
pub mod outstanding;
pub mod slot_set;
pub mod slots;
pub mod sources;

use crate::refusal::Refusal;
use crate::values::cause::Cause;
use crate::values::limits::DRIFT_PERCENT;
use crate::values::time::BootTime;

/// A guard that is armed: its end, its cause, and the time before which the node cannot be sure of its grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// The moment after which the guard ends.
    pub until: BootTime,
    /// The time of the latest cause since which the node cannot be sure of the locks in memory: it extends only locks
    /// granted later. Zero if there was no such cause.
    pub since: BootTime,
    /// The cause with the latest end.
    pub cause: Cause,
}

/// A guard as it is in the state file. There the end of an operator's guard is rounded up to a whole second, so that an
/// operator who arms it again right after seldom causes another write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedGuard {
    /// The guard as it was when the state was written.
    pub armed: Armed,
    /// The milliseconds that were left when it was written, for a start on another boot.
    pub left_ms: u64,
}

impl Armed {
    /// Returns whether the node cannot be sure of locks in memory that were granted before `since`, so that it does not
    /// extend them.
    pub fn doubts_locks(&self) -> bool {
        self.since != BootTime::default()
    }
}

/// The guard of a node, armed or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard(Option<Armed>);

impl Guard {
    /// Arms the guard for `cause`, which arose at `now`, until `until` at least. After a flush or an eviction the node
    /// is still sure of the locks that are left.
    pub fn arm(&mut self, cause: Cause, now: BootTime, until: BootTime) {
        let before = self.armed(now);
        let (until, later) = match before {
            Some(armed) if armed.until >= until => (armed.until, armed.cause),
            _ => (until, cause),
        };
        let since =
            if cause.leaves_locks_sure() { before.map_or(BootTime::default(), |armed| armed.since) } else { now };
        self.0 = Some(Armed { until, since, cause: later });
    }

    /// Arms the guard as an earlier incarnation left it.
    pub fn restore(&mut self, armed: Armed) {
        self.0 = Some(armed);
    }

    /// Adapts a guard that was armed on another boot. The times of its causes mean nothing on this boot's clock. So a
    /// guard that forbids extending earlier locks forbids it for all locks granted before `now`.
    pub fn since_now(&mut self, now: BootTime) {
        if let Some(armed) = self.0.as_mut().filter(|armed| armed.doubts_locks()) {
            armed.since = now;
        }
    }

    /// Ends the guard, because an operator says that nothing was forgotten.
    pub fn lift(&mut self) {
        self.0 = None;
    }

    /// Returns the guard if it is armed at `now`; `None` if the node may grant.
    pub fn armed(&self, now: BootTime) -> Option<Armed> {
        self.0.filter(|armed| now <= armed.until)
    }

    /// Returns the milliseconds until the guard ends, rounded up; 0 if it is not armed.
    pub fn left_ms(&self, now: BootTime) -> u64 {
        self.armed(now).map_or(0, |armed| armed.until.ms_since_rounded_up(now).max(1))
    }

    /// Returns the guard as it goes into the state file; `None` if it is not armed at `now`.
    pub fn saved(&self, now: BootTime) -> Option<SavedGuard> {
        let armed = self.armed(now)?;
        let until = if armed.cause == Cause::Operator { armed.until.whole_second() } else { armed.until };
        Some(SavedGuard { armed: Armed { until, ..armed }, left_ms: until.ms_since_rounded_up(now).max(1) })
    }

    /// Refuses while the guard is armed, and says for how long.
    pub fn ensure_open(&self, now: BootTime) -> Result<(), Refusal> {
        match self.armed(now) {
            Some(armed) => Err(Refusal::Guarded { left_ms: self.left_ms(now), cause: armed.cause }),
            None => Ok(()),
        }
    }
}

/// Returns how long a node that may have forgotten everything must refuse, in milliseconds. `outstanding_ttl_ms` is the
/// longest lease that it can have granted, `skew_ms` how far clocks may differ.
pub fn guard_ms(outstanding_ttl_ms: u32, skew_ms: u32) -> u32 {
    let ms = u64::from(outstanding_ttl_ms)
        + (u64::from(outstanding_ttl_ms) * DRIFT_PERCENT).div_ceil(100)
        + u64::from(skew_ms);
    u32::try_from(ms).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ms;

    #[test]
    fn length_covers_the_longest_lease_with_drift_and_skew() {
        // (longest lease, allowed difference of clocks, length of the guard), all in ms
        for (outstanding, skew, expected) in
            [(60_000, 2_000, 62_600), (1, 0, 2), (100, 0, 101), (86_400_000, 60_000, 87_324_000)]
        {
            assert_eq!(guard_ms(outstanding, skew), expected);
        }
        assert_eq!(guard_ms(u32::MAX, u32::MAX), u32::MAX);
    }

    #[test]
    fn refuses_through_its_end_and_says_how_long() {
        let mut guard = Guard::default();
        assert_eq!(guard.ensure_open(ms(0)), Ok(()));
        guard.arm(Cause::Restart, ms(10), ms(20));
        let refusal = |left_ms| Err(Refusal::Guarded { left_ms, cause: Cause::Restart });
        assert_eq!(guard.ensure_open(ms(10)), refusal(10));
        assert_eq!(guard.ensure_open(ms(20)), refusal(1));
        assert_eq!(guard.ensure_open(ms(20).plus_us(1)), Ok(()));
        guard.arm(Cause::Restart, ms(30), ms(40));
        guard.lift();
        assert_eq!((guard.ensure_open(ms(30)), guard.left_ms(ms(30))), (Ok(()), 0));
    }

    /// Tries every sequence of up to four causes with small times. The guard never ends before any cause's own end.
    /// Until it has ended, its end is only moved later, and `since` is that of the latest cause that leaves the node
    /// unsure of the locks in memory.
    #[test]
    fn every_small_sequence_of_causes() {
        fn go(guard: Guard, now: u64, ends: &[u64], depth: usize) {
            let latest = ends.iter().copied().filter(|&end| end >= now).max();
            assert_eq!(guard.armed(ms(now)).map(|armed| armed.until), latest.map(ms), "{ends:?} at {now}");
            if depth == 0 {
                return;
            }
            for step in 0..3 {
                for length in 0..4 {
                    let (mut guard, now) = (guard, now + step);
                    let cause = Cause::ALL[length as usize];
                    let before = guard.armed(ms(now)).map_or(BootTime::default(), |armed| armed.since);
                    guard.arm(cause, ms(now), ms(now + length));
                    let since = if cause.leaves_locks_sure() { before } else { ms(now) };
                    assert_eq!(guard.armed(ms(now)).unwrap().since, since);
                    go(guard, now, &[ends, &[now + length]].concat(), depth - 1);
                }
            }
        }
        go(Guard::default(), 0, &[], 4);
    }
}
