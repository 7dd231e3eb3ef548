//! Merges the records of all processes in the order of true time, and hands them to the referee. Each judgement starts
//! from the beginning of the campaign. There are several while the campaign runs, and one at its end.
//!
//! A missing line can only hide a violation, never cause a false one. A holder records its end before it begins to
//! release the lock, so that line always exists before the next holder's. A finding made while the campaign runs is
//! therefore final.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::faults::Wrong;
use super::journal::{Follower, Line, now_us};
use super::register::Arrival;
use super::world::World;
use crate::history::{Event, HeldAs, Holder, Occurrence, TimeUs};
use crate::referee::{Laws, Referee};

/// The age from which events are judged. Lines about later events may not have been written yet.
pub const LAG: Duration = Duration::from_millis(500);

/// An event and, for an access to the register, whether it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedEvent {
    /// The event that the referee judges.
    pub event: Event,
    /// The register's record of the access.
    pub arrival: Option<Arrival>,
}

/// A period in which a holder relied on a lock.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The key of the lock.
    pub key: u32,
    /// The holder that relied on the lock.
    pub who: Holder,
    /// The mode in which the holder relied on the lock.
    pub mode: HeldAs,
    /// The last token that the holder had.
    pub token: u64,
    /// The moment from which the holder relied on the lock.
    pub from: TimeUs,
    /// The moment at which the holder stopped relying on the lock.
    pub until: TimeUs,
    /// The end of the last lease's validity.
    pub valid_until: TimeUs,
}

/// Returns the claims of all holders, in the order of their beginnings.
pub fn claims(seen: &[JudgedEvent]) -> Vec<Claim> {
    let mut all: Vec<Claim> = vec![];
    let mut places: BTreeMap<Holder, usize> = BTreeMap::new();
    for JudgedEvent { event: Event { at, key, who, what }, .. } in seen.iter().copied() {
        if let Occurrence::Held { until, mode, token, .. } = what {
            places.insert(who, all.len());
            all.push(Claim { key, who, mode, token, from: at, until, valid_until: until });
        }
        let Some(claim) = places.get(&who).map(|place| &mut all[*place]) else { continue };
        match what {
            Occurrence::Extended { until, token } => {
                (claim.until, claim.valid_until) = (claim.until.max(until), claim.valid_until.max(until));
                claim.token = token;
            }
            Occurrence::Ended => claim.until = claim.until.min(at),
            // The clients of a campaign never convert a lock to another mode.
            Occurrence::Held { .. } | Occurrence::Converted { .. } | Occurrence::Wrote { .. } => {}
        }
    }
    all
}

/// Everything known of a run so far.
#[derive(Debug, Default)]
pub struct History {
    followers: Vec<Follower>,
    arrivals: usize,
    /// The events, in the order of time after [`History::sort`].
    pub seen: Vec<JudgedEvent>,
    /// The lines that are not for the referee.
    pub lines: Vec<Line>,
}

impl History {
    /// Reads what has been written since the last call.
    ///
    /// # Panics
    ///
    /// If a journal cannot be read.
    pub fn read(&mut self, world: &World) {
        for path in world.journals_from(self.followers.len()) {
            self.followers.push(Follower::open(&path).expect("a journal is there before its process"));
        }
        let mut highest = 0;
        for line in self.followers.iter_mut().flat_map(Follower::read) {
            match line {
                Line::Event(event) => {
                    if let Occurrence::Held { token, .. } | Occurrence::Extended { token, .. } = event.what {
                        highest = highest.max(token);
                    }
                    self.seen.push(JudgedEvent { event, arrival: None });
                }
                line => self.lines.push(line),
            }
        }
        world.highest_token.fetch_max(highest, Ordering::Relaxed);
        let arrivals = world.register.arrivals_from(self.arrivals);
        self.arrivals += arrivals.len();
        self.seen
            .extend(arrivals.into_iter().map(|arrival| JudgedEvent { event: arrival.event, arrival: Some(arrival) }));
    }

    /// Returns the moment when each key was first held after `from`.
    pub fn first_held(&self, from: TimeUs) -> BTreeMap<u32, TimeUs> {
        let mut first = BTreeMap::new();
        for JudgedEvent { event, .. } in &self.seen {
            if event.at >= from && matches!(event.what, Occurrence::Held { .. }) {
                let at = first.entry(event.key).or_insert(event.at);
                *at = event.at.min(*at);
            }
        }
        first
    }

    /// Sorts everything by true time. Of two events at the same time, an end comes before a beginning, and accesses
    /// keep the register's order.
    pub fn sort(&mut self) {
        let rank = |what: Occurrence| match what {
            Occurrence::Ended => 0,
            Occurrence::Held { .. } => 1,
            Occurrence::Extended { .. } | Occurrence::Converted { .. } => 2,
            Occurrence::Wrote { .. } => 3,
        };
        self.seen.sort_by_key(|seen| (seen.event.at, rank(seen.event.what)));
    }

    /// Judges everything up to `until`.
    pub fn judge(&mut self, until: TimeUs) -> Vec<Wrong> {
        self.sort();
        let mut wrong: Vec<Wrong> = vec![];
        for line in &self.lines {
            if let Line::Wrong { at, what } = line {
                wrong.push(Wrong { at: *at, key: None, what: what.clone() });
            }
        }
        let mut referee = Referee::new(Laws::All);
        // A holder that has broken a law is ignored from then on: its later violations would only follow from the
        // first.
        let mut out: BTreeSet<Holder> = BTreeSet::new();
        for JudgedEvent { event, arrival } in self.seen.iter().take_while(|seen| seen.event.at <= until) {
            let mut add = |what: String| wrong.push(Wrong { at: event.at, key: Some(event.key), what });
            if arrival.is_some_and(|arrival| arrival.lost_update) {
                add(format!("counter: {} overwrote an update of key {}", event.who, event.key));
            }
            if out.contains(&event.who) && arrival.is_none() {
                continue;
            }
            match referee.see(event) {
                Ok(takes) => {
                    if let Some(arrival) = arrival
                        && arrival.taken != takes
                    {
                        let did = if arrival.taken { "took" } else { "refused" };
                        add(format!(
                            "register: it {did} an access of {} to key {}, against its rule",
                            event.who, event.key
                        ));
                    }
                }
                Err(violation) => {
                    add(violation.to_string());
                    out.insert(event.who);
                }
            }
        }
        wrong.sort_by_key(|wrong| wrong.at);
        wrong
    }

    /// Judges all events that are old enough for their record to be complete.
    pub fn judge_settled(&mut self, world: &World) -> Vec<Wrong> {
        let until = now_us() - LAG.as_micros() as u64;
        self.read(world);
        self.judge(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder { client: 1, acquisition: 1 };
    const B: Holder = Holder { client: 2, acquisition: 1 };

    fn seen(at: TimeUs, who: Holder, what: Occurrence) -> JudgedEvent {
        JudgedEvent { event: Event { at, key: 0, who, what }, arrival: None }
    }

    fn access(at: TimeUs, who: Holder, token: u64, taken: bool) -> JudgedEvent {
        let seen = seen(at, who, Occurrence::Wrote { token, mode: HeldAs::Exclusive });
        let arrival = Arrival { event: seen.event, taken, writes: true, lost_update: false };
        JudgedEvent { arrival: Some(arrival), ..seen }
    }

    fn judged(seen: Vec<JudgedEvent>) -> Vec<String> {
        let mut history = History { seen, ..History::default() };
        history.judge(TimeUs::MAX).into_iter().map(|wrong| wrong.what).collect()
    }

    #[test]
    fn lines_of_several_processes_are_put_into_order() {
        let held = |since, until, token| Occurrence::Held { since, until, token, mode: HeldAs::Exclusive };
        let (a, b) = (held(0, 9, 5), held(3, 20, 6));
        let good = vec![seen(4, B, b), seen(1, A, a), seen(4, A, Occurrence::Ended), access(5, A, 5, true)];
        assert_eq!(judged(good), [""; 0]);
        let overlap =
            judged(vec![seen(4, B, b), seen(1, A, a), seen(5, B, Occurrence::Extended { until: 30, token: 6 })]);
        assert_eq!(overlap.len(), 1, "{overlap:?}");
        assert!(overlap[0].starts_with("exclusion"), "{overlap:?}");
    }

    #[test]
    fn the_register_must_do_what_the_referee_says() {
        let wrong = judged(vec![access(1, B, 6, true), access(2, A, 5, true)]);
        assert!(wrong.len() == 1 && wrong[0].contains("took"), "{wrong:?}");
        assert_eq!(judged(vec![access(1, B, 6, true), access(2, A, 5, false)]), [""; 0]);
    }
}
