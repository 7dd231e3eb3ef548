//! A computer in true time: its clocks, and whether it is running.

use palisade_core::{BootTime, Now};

use super::plan;
use crate::history::TimeUs;

/// The reading of a correct wall clock at true time zero, in microseconds.
const WALL_US: u64 = 1_800_000_000_000_000;

const MILLION: i128 = 1_000_000;

/// A computer's clocks and pauses.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    drift_ppm: i64,
    ahead_us: i64,
    booted: TimeUs,
    boots: u8,
    /// The end of the machine's pause.
    pub paused_until: TimeUs,
    /// True while the computer, or its process, is down.
    pub down: bool,
}

impl Machine {
    /// Returns a computer as in the plan, which has just booted.
    pub fn new(plan: &plan::Machine) -> Self {
        Self { drift_ppm: plan.drift_ppm, ahead_us: plan.ahead_us, boots: 1, ..Self::default() }
    }

    /// Returns the readings of the computer's clocks at `at`.
    pub fn now(&self, at: TimeUs) -> Now {
        let wall = WALL_US.saturating_add(self.passed(at)).saturating_add_signed(self.ahead_us);
        Now::new(BootTime::from_us(self.passed(at - self.booted)), wall)
    }

    fn passed(&self, us: u64) -> u64 {
        let scaled = i128::from(us) * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        u64::try_from(scaled).unwrap_or(0)
    }

    /// Returns the first moment at which the boot clock shows `boot`.
    pub fn when(&self, boot: BootTime) -> TimeUs {
        let rate = MILLION + i128::from(self.drift_ppm);
        let us = (i128::from(boot.as_us()) * MILLION + rate - 1) / rate;
        self.booted + u64::try_from(us).unwrap_or(u64::MAX / 2)
    }

    /// Returns the number of boots so far.
    pub fn boots(&self) -> u8 {
        self.boots
    }

    /// Reboots the computer: the boot clock starts over.
    pub fn reboot(&mut self, at: TimeUs) {
        self.booted = at;
        self.boots = self.boots.wrapping_add(1);
    }

    /// Steps the wall clock.
    pub fn step(&mut self, by_us: i64) {
        self.ahead_us = self.ahead_us.saturating_add(by_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_there_and_back() {
        for drift_ppm in [-20_000, 0, 4_950] {
            let plan = plan::Machine { drift_ppm, ahead_us: -5, keeps: plan::Keeps::Nothing };
            let mut machine = Machine::new(&plan);
            machine.reboot(1_000);
            for at in [1_000, 1_001, 999_999, 60_000_000] {
                let there = machine.now(at).boot;
                let first = machine.when(there);
                assert!(first <= at && machine.now(first).boot == there, "{drift_ppm} {at}");
                assert!(first == machine.booted || machine.now(first - 1).boot < there, "{drift_ppm} {at}");
            }
        }
    }
}
