//! Judges writes to resources: none that was refused landed, and each one that was acknowledged is there, unless a
//! replica took over at the time and lacked it.

use std::collections::BTreeMap;

use super::landed::Seen;
use crate::campaign::faults::{Fault, Wrong};
use crate::campaign::journal::Line;
use crate::campaign::resource::{Answer, IN_POSTGRESQL};
use crate::history::TimeUs;

/// The fault that loses acknowledged writes: those that the replica lacks. It begins before everything that was
/// acknowledged earlier is on the replica.
pub const TAKE_OVER: &str = "data master killed, replica takes over";

/// The result of all writes of one kind of place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Writes that were acknowledged.
    pub landed: usize,
    /// Writes that were refused as late.
    pub fenced: usize,
    /// Writes without an answer, and those that no server took.
    pub unanswered: usize,
    /// Acknowledged writes that a replica lacked when it took over.
    pub lost: usize,
}

/// The result of all writes.
#[derive(Clone, Debug, Default)]
pub struct Gated {
    /// Writes behind gates.
    pub gates: Counts,
    /// Writes behind fences of PostgreSQL.
    pub fences: Counts,
    /// The violations.
    pub wrong: Vec<Wrong>,
}

/// Judges all writes. If `keeps` is false, servers may lose everything at any time, so nothing has to be there.
pub fn judge(lines: &[Line], seen: &BTreeMap<u32, Seen>, faults: &[Fault], keeps: bool) -> Gated {
    let mut all = Gated::default();
    let none = Seen::default();
    for line in lines {
        let Line::Gated { sent, at, resource, entry, answer } = *line else { continue };
        let seen = seen.get(&resource).unwrap_or(&none);
        let is_fence = resource == IN_POSTGRESQL;
        let counts = if is_fence { &mut all.fences } else { &mut all.gates };
        let mut is_wrong = |what: &str| {
            all.wrong.push(Wrong { at, key: None, what: format!("resource {resource}: {entry:?} {what}") });
        };
        match answer {
            Answer::Landed => {
                counts.landed += 1;
                if !seen.last.contains(&entry) {
                    if is_fence || (keeps && !is_excused(faults, sent, at)) {
                        is_wrong("was acknowledged, and is not there");
                    }
                    counts.lost += 1;
                }
            }
            Answer::Fenced | Answer::NotDone => {
                counts.fenced += usize::from(answer == Answer::Fenced);
                counts.unanswered += usize::from(answer == Answer::NotDone);
                if seen.ever.contains(&entry) {
                    is_wrong("was refused, and landed");
                }
            }
            Answer::Unknown => counts.unanswered += 1,
        }
    }
    all
}

/// Returns true if a replica took over between the two.
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
        assert_eq!(seen.see(resource, there), None);
        let line = Line::Gated { sent: 100, at: 110, resource, entry: ENTRY, answer };
        judge(&[line], &BTreeMap::from([(resource, seen)]), faults, true).wrong.len()
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
}
