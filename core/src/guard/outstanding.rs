//! The longest lease that may still run. It is the maximum of `lock.max-ttl`, of longer leases that earlier
//! incarnations granted or that were loaded or replicated, and of the leases that the node's master grants.

use crate::guard::guard_ms;
use crate::values::limits::MAX_TTL_LIMIT_MS;
use crate::values::time::BootTime;

/// The master whose grants may also still run, beside the node's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Master {
    /// No master: the node itself is one.
    Myself,
    /// A master that has not said yet how long its leases may be: each can be of the maximum length.
    Silent,
    /// A master that said how long its leases may be. While the node follows it, this value stays, because the master
    /// continues to grant.
    Told,
}

impl Master {
    const ALL: [Master; 3] = [Master::Myself, Master::Silent, Master::Told];

    /// Returns the name of this variant in the state file.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Myself => "none",
            Self::Silent => "silent",
            Self::Told => "told",
        }
    }

    /// Parses the name of a variant in the state file.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|master| master.word() == word)
    }
}

/// The longest lease that may still run: granted by this node, by earlier incarnations, or by its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutstandingTtl {
    ms: u32,
    /// The time until which leases of `ms` milliseconds may run; later ones have at most `present_ms`.
    until: BootTime,
    present_ms: u32,
    /// The longest lease seen in this incarnation, in milliseconds.
    seen_ms: u32,
    master: Master,
    /// The longest lease that the master named, in milliseconds.
    told_ms: u32,
}

impl OutstandingTtl {
    /// Creates the value for a node that grants leases of up to `present_ms`. Leases of up to `earlier_ms` may still
    /// run at `now`.
    pub fn new(earlier_ms: u32, present_ms: u32, skew_ms: u32, now: BootTime) -> Self {
        let ms = earlier_ms.max(present_ms);
        let until = now.plus_ms(guard_ms(ms, skew_ms));
        Self { ms, until, present_ms, seen_ms: present_ms, master: Master::Myself, told_ms: 0 }
    }

    /// Notes that a lease of `ms` milliseconds was loaded or replicated, and may still run.
    pub fn raise(&mut self, ms: u32, skew_ms: u32, now: BootTime) {
        let seen_ms = self.seen_ms.max(ms);
        *self = Self { seen_ms, ..self.anew(self.own_ms(now).max(ms), skew_ms, now) };
    }

    /// Notes that the node follows a master, whose leases may have up to `told_ms` milliseconds; `None` if the master
    /// has not said.
    pub fn follow(&mut self, told_ms: Option<u32>) {
        self.master = if told_ms.is_some() { Master::Told } else { Master::Silent };
        self.told_ms = told_ms.unwrap_or(0);
    }

    /// Notes that the node becomes a master at `now`. Leases of its former master may still run, and count from then
    /// on.
    pub fn lead(&mut self, skew_ms: u32, now: BootTime) {
        *self = Self { seen_ms: self.seen_ms, ..Self::new(self.ms(now), self.present_ms, skew_ms, now) };
    }

    /// Notes that an operator lifted the guard. Nobody holds a lock that the node has forgotten then, so only leases
    /// that the node knows count.
    pub fn lift(&mut self, skew_ms: u32, now: BootTime) {
        let ms = self.own_ms(now).min(self.seen_ms);
        *self = Self { seen_ms: self.seen_ms, ..self.anew(ms, skew_ms, now) };
    }

    /// Returns whether [`lift`](Self::lift) would lower the value at `now`, because leases that the node has not seen
    /// count in it.
    pub fn has_unseen(&self, now: BootTime) -> bool {
        self.own_ms(now) > self.seen_ms
    }

    /// Returns a value with a new longest lease, of `ms` milliseconds from `now` on. The values of the master stay.
    fn anew(&self, ms: u32, skew_ms: u32, now: BootTime) -> Self {
        Self { master: self.master, told_ms: self.told_ms, ..Self::new(ms, self.present_ms, skew_ms, now) }
    }

    /// Returns the longest lease that the node grants now (`lock.max-ttl`), in milliseconds.
    pub fn present_ms(&self) -> u32 {
        self.present_ms
    }

    /// Returns whether a master's leases may still run beside the node's own, and whether that master has said how long
    /// they may be.
    pub fn master(&self) -> Master {
        self.master
    }

    /// Returns the longest lease that may still run at `now`, in milliseconds, for the guard.
    pub fn ms(&self, now: BootTime) -> u32 {
        match self.master {
            Master::Myself => self.own_ms(now),
            Master::Silent => MAX_TTL_LIMIT_MS,
            Master::Told => self.told_ms.max(self.own_ms(now)),
        }
    }

    /// Returns the longest lease that may still run at `now`, apart from those of the present master, in milliseconds.
    pub fn own_ms(&self, now: BootTime) -> u32 {
        if now <= self.until { self.ms } else { self.present_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ms;

    #[test]
    fn an_older_larger_value_counts_for_a_whole_guard() {
        let mut outstanding = OutstandingTtl::new(1_000, 100, 0, ms(0));
        assert_eq!((outstanding.ms(ms(0)), outstanding.ms(ms(1_010)), outstanding.ms(ms(1_011))), (1_000, 1_000, 100));
        outstanding.raise(500, 0, ms(2_000));
        assert_eq!((outstanding.ms(ms(2_505)), outstanding.ms(ms(2_506))), (500, 100));
        assert_eq!(OutstandingTtl::new(50, 100, 0, ms(0)).ms(ms(0)), 100);
    }

    /// The master grants leases of 10 s, and the replica itself of 100 ms. The replica loses its master for a minute,
    /// while the master continues to grant. After the promotion the guard must last as long as the master's leases.
    #[test]
    fn what_a_master_told_counts_as_long_as_it_is_followed_and_for_a_guard_after() {
        let mut outstanding = OutstandingTtl::new(0, 100, 0, ms(0));
        outstanding.follow(Some(10_000));
        assert_eq!(outstanding.ms(ms(60_000)), 10_000);
        outstanding.lead(0, ms(60_000));
        assert_eq!((outstanding.ms(ms(70_100)), outstanding.ms(ms(70_101))), (10_000, 100));
    }

    #[test]
    fn of_a_master_that_has_told_nothing_the_worst_is_assumed() {
        let mut outstanding = OutstandingTtl::new(0, 100, 0, ms(0));
        outstanding.follow(None);
        assert_eq!(outstanding.ms(ms(0)), MAX_TTL_LIMIT_MS);
        outstanding.follow(Some(50));
        assert_eq!(outstanding.ms(ms(0)), 100, "its own earlier leases count too");
        outstanding.follow(None);
        outstanding.lead(0, ms(1));
        assert_eq!(outstanding.ms(ms(2)), MAX_TTL_LIMIT_MS);
        outstanding.raise(300, 0, ms(3));
        assert_eq!(outstanding.ms(ms(3)), MAX_TTL_LIMIT_MS);
        assert!(outstanding.has_unseen(ms(3)));
        outstanding.lift(0, ms(3));
        assert_eq!((outstanding.ms(ms(306)), outstanding.ms(ms(307))), (300, 100), "an operator knows better");
        assert!(!outstanding.has_unseen(ms(3)));
    }
}
