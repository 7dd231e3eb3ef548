//! Judges the writes to resources. A write that was refused must not be in the resource. A write that was acknowledged
//! must be there, unless a replica took over at that time without it.

use std::collections::{BTreeMap, BTreeSet};

use super::landed::Seen;
use super::trials::{Over, Raise, Trial, met};
use crate::campaign::faults::{Fault, Wrong};
use crate::campaign::journal::Line;
use crate::campaign::resource::{Answer, IN_POSTGRESQL};
use crate::history::TimeUs;

/// The name of the fault that may lose acknowledged writes: the replica takes over without those that it has not
/// received. All writes that were acknowledged before its recorded beginning are on the replica.
pub const TAKE_OVER: &str = "data master killed, replica takes over";

/// The counts of all writes to the resources behind gates, or to those behind fences.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The number of writes that were acknowledged.
    pub landed: usize,
    /// The number of writes that were refused, because a newer token had passed.
    pub fenced: usize,
    /// For each kind of fault, the number of late writes that were refused only because the gate or fence still had its
    /// tokens after the fault.
    pub fenced_after: BTreeMap<Over, usize>,
    /// The number of late writes whose refusal shows nothing about any fault.
    pub fenced_calmly: usize,
    /// The number of writes without an answer, and of those that no server performed.
    pub unanswered: usize,
    /// The number of acknowledged writes that a replica lacked when it took over.
    pub lost: usize,
}

/// The result of judging all writes to resources.
#[derive(Clone, Debug, Default)]
pub struct Gated {
    /// Writes behind gates.
    pub gates: Counts,
    /// Writes behind fences of PostgreSQL.
    pub fences: Counts,
    /// The violations that were found.
    pub wrong: Vec<Wrong>,
}

impl Gated {
    fn counts(&mut self, resource: u32) -> &mut Counts {
        if resource == IN_POSTGRESQL { &mut self.fences } else { &mut self.gates }
    }
}

/// Judges all writes. If `keeps` is false, servers may lose their data at any time, so acknowledged writes need not be
/// there.
pub fn judge(lines: &[Line], seen: &BTreeMap<u32, Seen>, faults: &[Fault], trials: &[Trial], keeps: bool) -> Gated {
    let mut all = Gated::default();
    for trial in trials {
        all.counts(trial.resource).fenced_after.entry(trial.over).or_default();
    }
    let raises = raises(lines, seen);
    let none = Seen::default();
    for line in lines {
        let Line::Gated { sent, at, resource, entry, answer } = *line else { continue };
        let seen = seen.get(&resource).unwrap_or(&none);
        let counts = all.counts(resource);
        let mut wrong = None;
        match answer {
            Answer::Landed => {
                counts.landed += 1;
                if !seen.last.contains(&entry) {
                    counts.lost += 1;
                    let is_wrong = resource == IN_POSTGRESQL || (keeps && !is_excused(faults, sent, at));
                    wrong = is_wrong.then_some("was acknowledged, and is not there");
                }
            }
            Answer::Fenced | Answer::NotDone => {
                wrong = seen.ever.contains_key(&entry).then_some("was refused, and landed");
                if answer == Answer::Fenced {
                    let raises = raises.get(&resource).map_or(&[][..], Vec::as_slice);
                    let trials = trials.iter().filter(|trial| trial.resource == resource);
                    counts.refuse(&met(raises, trials, entry.token, (sent, at)));
                } else {
                    counts.unanswered += 1;
                }
            }
            Answer::Unknown => counts.unanswered += 1,
        }
        if let Some(what) = wrong {
            all.wrong.push(Wrong { at, key: None, what: format!("resource {resource}: {entry:?} {what}") });
        }
    }
    all
}

impl Counts {
    /// Counts a late write that was refused. `met` has the faults after which only the remembered tokens can have
    /// refused it.
    fn refuse(&mut self, met: &[Over]) {
        self.fenced += 1;
        self.fenced_calmly += usize::from(met.is_empty());
        for over in BTreeSet::from_iter(met) {
            *self.fenced_after.entry(*over).or_default() += 1;
        }
    }
}

/// Returns, for each resource, the writes that raised its gate, or may have done so.
fn raises(lines: &[Line], seen: &BTreeMap<u32, Seen>) -> BTreeMap<u32, Vec<Raise>> {
    let mut raises: BTreeMap<u32, Vec<Raise>> = BTreeMap::new();
    for line in lines {
        if let Line::Gated { sent, at, resource, entry, answer: Answer::Landed | Answer::Unknown } = *line {
            let seen = seen.get(&resource).and_then(|seen| seen.ever.get(&entry).copied());
            raises.entry(resource).or_default().push(Raise { token: entry.token, sent, at, seen });
        }
    }
    raises
}

/// Returns true if a replica took over at a time between `sent` and `at`.
fn is_excused(faults: &[Fault], sent: TimeUs, at: TimeUs) -> bool {
    let is_then = |fault: &&Fault| fault.from <= at && fault.until.is_none_or(|until| sent <= until);
    faults.iter().filter(|fault| fault.kind == TAKE_OVER).any(|fault| is_then(&fault))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::faults::On;
    use crate::campaign::resource::Entry;
    use crate::history::Holder;

    const ENTRY: Entry = Entry { token: 7, who: Holder { client: 1, acquisition: 1 }, number: 0 };

    fn judged(resource: u32, answer: Answer, there: &[Entry], faults: &[Fault]) -> usize {
        let mut seen = Seen::default();
        assert_eq!(seen.see(resource, 200, there), None);
        let line = Line::Gated { sent: 100, at: 110, resource, entry: ENTRY, answer };
        judge(&[line], &BTreeMap::from([(resource, seen)]), faults, &[], true).wrong.len()
    }

    #[test]
    fn a_write_is_there_if_it_was_acknowledged_and_not_if_it_was_refused() {
        let fault = |kind, from, until| Fault { kind, on: On::Others, from, until: Some(until), note: String::new() };
        assert_eq!(judged(0, Answer::Landed, &[ENTRY], &[]), 0);
        assert_eq!(judged(0, Answer::Landed, &[], &[]), 1);
        assert_eq!(judged(0, Answer::Landed, &[], &[fault(TAKE_OVER, 110, 120)]), 0);
        assert_eq!(judged(0, Answer::Landed, &[], &[fault(TAKE_OVER, 90, 100)]), 0);
        assert_eq!(judged(0, Answer::Landed, &[], &[fault(TAKE_OVER, 111, 120)]), 1);
        assert_eq!(judged(0, Answer::Landed, &[], &[fault(TAKE_OVER, 90, 99)]), 1);
        assert_eq!(judged(0, Answer::Landed, &[], &[fault("another", 90, 120)]), 1);
        assert_eq!(judged(IN_POSTGRESQL, Answer::Landed, &[], &[fault(TAKE_OVER, 90, 120)]), 1);
        for answer in [Answer::Fenced, Answer::NotDone] {
            assert_eq!(judged(0, answer, &[], &[]), 0);
            assert_eq!(judged(0, answer, &[ENTRY], &[]), 1);
        }
        assert_eq!(judged(0, Answer::Unknown, &[ENTRY], &[]), 0);
        assert_eq!(judged(0, Answer::Unknown, &[], &[]), 0);
    }

    #[test]
    fn a_refused_write_is_counted_under_the_faults_of_its_own_server() {
        let newer = Entry { token: 8, ..ENTRY };
        let write = |sent, resource, entry, answer| Line::Gated { sent, at: sent + 10, resource, entry, answer };
        let trial = |over, resource| Trial { over, resource, from: 120, until: 150 };
        let trials =
            [trial(Over::Kill, 0), trial(Over::Kill, 0), trial(Over::Promotion, 1), trial(Over::Kill, IN_POSTGRESQL)];
        let mut lines = vec![write(100, 0, newer, Answer::Landed)];
        for number in 0..3 {
            lines.push(write(160 + TimeUs::from(number), 0, Entry { number, ..ENTRY }, Answer::Fenced));
        }
        lines.push(write(120, 0, Entry { number: 3, ..ENTRY }, Answer::Fenced));
        lines.push(write(160, IN_POSTGRESQL, ENTRY, Answer::Fenced));
        let mut seen = Seen::default();
        assert_eq!(seen.see(0, 200, &[newer]), None);
        let gated = judge(&lines, &BTreeMap::from([(0, seen)]), &[], &trials, true);
        assert_eq!(gated.wrong, []);
        let counts = |counts: &Counts| (counts.fenced, counts.fenced_calmly, counts.fenced_after.clone());
        assert_eq!(counts(&gated.gates), (4, 1, BTreeMap::from([(Over::Kill, 3), (Over::Promotion, 0)])));
        assert_eq!(counts(&gated.fences), (1, 1, BTreeMap::from([(Over::Kill, 0)])));
    }
}
