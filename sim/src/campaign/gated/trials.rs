//! Finds out which faults a gate or a fence has withstood: it had seen a newer token before the fault, and refused a
//! late write after it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::campaign::journal::now_us;
use crate::history::TimeUs;

/// A kind of fault after which gates and fences must still have their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Over {
    /// The server was killed, and came back with its data.
    Kill,
    /// The replica took over.
    Promotion,
    /// The replica synchronised fully with its master, and then took over.
    FullSync,
    /// The slot moved to another server.
    SlotMove,
    /// The server loaded its data again, after a shutdown or without one.
    Restart,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill -9",
            Self::Promotion => "fail-over",
            Self::FullSync => "full sync and promotion",
            Self::SlotMove => "move of the slot",
            Self::Restart => "restart",
        })
    }
}

/// A fault that happened to the server of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The kind of fault.
    pub over: Over,
    /// The number of the resource.
    pub resource: u32,
    /// A moment before the fault.
    pub from: TimeUs,
    /// A moment from which the resource was served again.
    pub until: TimeUs,
}

/// All recorded faults so far.
#[derive(Clone, Debug, Default)]
pub struct Trials(Arc<Mutex<Vec<Trial>>>);

impl Trials {
    /// Records a fault of these resources that began after `from` and is over.
    pub fn record(&self, over: Over, resources: impl IntoIterator<Item = u32>, from: TimeUs) {
        let until = now_us();
        let trials = resources.into_iter().map(|resource| Trial { over, resource, from, until });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(trials);
    }

    /// Returns all recorded faults, in the order in which they ended.
    pub fn all(&self) -> Vec<Trial> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A write whose token the gate remembers, or may remember.
#[derive(Clone, Copy, Debug)]
pub struct Raise {
    /// The token of the write.
    pub token: u64,
    /// The moment at which it was sent.
    pub sent: TimeUs,
    /// The moment of its answer, or at which the writer gave up.
    pub at: TimeUs,
    /// The last moment at which the entry was there; `None` if it was never seen.
    pub seen: Option<TimeUs>,
}

/// A gate has refused a late write with `token`, which was sent and answered at these times. Returns the faults that
/// the gate has withstood, as the refusal shows. The gate saw a write with a newer token before such a fault, and the
/// fault did not remove the entry of that write. No write can have raised the gate again between the fault and the
/// refusal.
pub fn met<'a>(
    raises: &[Raise],
    trials: impl Iterator<Item = &'a Trial>,
    token: u64,
    (sent, at): (TimeUs, TimeUs),
) -> Vec<Over> {
    let newer = || raises.iter().filter(|raise| raise.token > token && raise.sent < at);
    let Some(last) = newer().map(|raise| raise.at).max() else { return vec![] };
    let is_met = |trial: &&Trial| {
        let is_between = last <= trial.from && trial.until <= sent;
        is_between && newer().any(|raise| raise.seen.is_some_and(|seen| seen > trial.until))
    };
    trials.filter(is_met).map(|trial| trial.over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: Trial = Trial { over: Over::Kill, resource: 0, from: 200, until: 300 };

    /// Returns a write that was answered after 10 µs. Readings had it until `seen`.
    fn raise(token: u64, sent: TimeUs, seen: Option<TimeUs>) -> Raise {
        Raise { token, sent, at: sent + 10, seen }
    }

    /// Returns the faults that a late write shows to be withstood. The write has token 5, is sent at 400, and refused
    /// at 410.
    fn met_by(raises: &[Raise], trials: &[Trial]) -> Vec<Over> {
        met(raises, trials.iter(), 5, (400, 410))
    }

    #[test]
    fn a_fault_is_met_if_it_lies_between_the_last_newer_write_and_the_late_one() {
        let before = raise(6, 100, Some(900));
        assert_eq!(met_by(&[before], &[KILL]), [Over::Kill]);
        assert_eq!(met_by(&[before], &[]), []);
        assert_eq!(met_by(&[], &[KILL]), [], "an unknown newer write");
        assert_eq!(met_by(&[raise(5, 100, Some(900))], &[KILL]), [], "no newer write");
        let sync = Trial { over: Over::FullSync, from: 50, ..KILL };
        let other = Trial { over: Over::Restart, from: 310, until: 400, ..KILL };
        assert_eq!(met_by(&[before], &[sync, KILL, other]), [Over::Kill, Over::Restart], "the last is the last raise");
        assert_eq!(met_by(&[before], &[Trial { until: 401, ..KILL }]), [], "the fault is not over");
    }

    #[test]
    fn a_fault_is_not_met_if_the_gate_may_have_been_raised_again() {
        let before = raise(6, 100, Some(900));
        for (sent, met) in [(190, true), (191, false), (250, false), (350, false), (409, false), (410, true)] {
            // A newer write counts whether or not a reading saw it, since it may have raised the gate.
            for seen in [Some(900), None] {
                let again = met_by(&[before, raise(7, sent, seen)], &[KILL]);
                assert_eq!(again == [Over::Kill], met, "{sent}");
            }
            assert_eq!(
                met_by(&[before, raise(5, sent, Some(900))], &[KILL]),
                [Over::Kill],
                "an equal token raises nothing"
            );
        }
    }

    #[test]
    fn a_fault_is_not_met_if_it_lost_the_newer_writes() {
        assert_eq!(met_by(&[raise(6, 100, Some(300))], &[KILL]), []);
        assert_eq!(met_by(&[raise(6, 100, None)], &[KILL]), []);
        assert_eq!(
            met_by(&[raise(6, 100, Some(301)), raise(7, 150, Some(180))], &[KILL]),
            [Over::Kill],
            "one is enough"
        );
    }
}
