//! Judges elections: each term has one leader, an observer never sees a smaller term, and every observed leader has
//! won.

use std::collections::BTreeMap;

use super::faults::Wrong;
use super::journal::Line;

use crate::history::{Holder, TimeUs};

/// The result of judging all elections.
#[derive(Clone, Debug, Default)]
pub struct Elections {
    /// The number of terms whose leader knew that it had won.
    pub terms: usize,
    /// The number of proclamations after a term's first, with the same value or another one.
    pub proclaimed: usize,
    /// The number of leaders and proclamations that observers received.
    pub observed: usize,
    /// Observed terms of candidates that were killed, or lost their lead, before they knew that they had won.
    pub unfinished: usize,
    /// The findings: broken promises of elections.
    pub wrong: Vec<Wrong>,
}

/// Judges all elections.
pub fn judge(lines: &[Line]) -> Elections {
    let mut all = Elections::default();
    let mut begun: BTreeMap<Holder, (TimeUs, u32)> = BTreeMap::new();
    let mut won: BTreeMap<Holder, u64> = BTreeMap::new();
    let mut wins: Vec<(TimeUs, TimeUs, u32, u64, Holder)> = vec![];
    for line in lines {
        match *line {
            Line::Campaigns { at, election, who } => drop(begun.insert(who, (at, election))),
            Line::Proclaimed { .. } => all.proclaimed += 1,
            _ => {}
        }
    }
    let mut wrong = vec![];
    let mut leaders: BTreeMap<(u32, u64), Holder> = BTreeMap::new();
    let mut leads = |at, election, term, who, wrong: &mut Vec<Wrong>| {
        let first = *leaders.entry((election, term)).or_insert(who);
        if first != who {
            wrong.push(is_wrong(at, format!("{first} and {who} lead election {election} in one term, {term}")));
        }
    };
    for line in lines {
        if let Line::Won { at, election, who, term } = *line {
            all.terms += 1;
            leads(at, election, term, who, &mut wrong);
            won.insert(who, term);
            wins.push((begun.get(&who).map_or(at, |(since, _)| *since), at, election, term, who));
        }
    }
    // A term that began after another term was won must have a larger number.
    wins.sort_unstable();
    for (since, at, election, term, who) in &wins {
        let earlier = wins.iter().filter(|win| win.2 == *election && win.1 < *since).map(|win| win.3).max();
        if earlier.is_some_and(|earlier| earlier >= *term) {
            wrong.push(is_wrong(*at, format!("{who} won election {election} with term {term}, after {earlier:?}")));
        }
    }
    let mut seen: Vec<_> = lines.iter().filter(|line| matches!(line, Line::Observed { .. })).collect();
    seen.sort_by_key(|line| if let Line::Observed { at, .. } = line { *at } else { 0 });
    let mut last: BTreeMap<Holder, (u64, u64)> = BTreeMap::new();
    for line in seen {
        let Line::Observed { at, election, observer, leader, term, sequence } = *line else { continue };
        all.observed += 1;
        leads(at, election, term, leader, &mut wrong);
        let before = last.insert(observer, (term, sequence));
        if before.is_some_and(|before| before >= (term, sequence)) {
            let what = format!("observer {observer} was told of term {term}, {sequence} after {before:?}");
            wrong.push(is_wrong(at, what));
        }
        let campaigned = begun.get(&leader).is_some_and(|(since, of)| *since < at && *of == election);
        match won.get(&leader) {
            Some(won) if *won == term => {}
            // The candidate lost this term before it knew that it had won, and won a later one.
            Some(won) if campaigned && term < *won => all.unfinished += 1,
            None if campaigned => all.unfinished += 1,
            won => {
                let what = format!("{leader} is seen to lead election {election} in term {term}, and won {won:?}");
                wrong.push(is_wrong(at, what));
            }
        }
    }
    all.wrong = wrong;
    all
}

fn is_wrong(at: TimeUs, what: String) -> Wrong {
    Wrong { at, key: None, what: format!("election: {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder { client: 1, acquisition: 1 };
    const B: Holder = Holder { client: 2, acquisition: 1 };
    const OBSERVER: Holder = Holder { client: 3, acquisition: 1 };

    fn campaigns(at: TimeUs, who: Holder) -> Line {
        Line::Campaigns { at, election: 0, who }
    }

    fn won(at: TimeUs, who: Holder, term: u64) -> Line {
        Line::Won { at, election: 0, who, term }
    }

    fn observed(at: TimeUs, leader: Holder, term: u64, sequence: u64) -> Line {
        Line::Observed { at, election: 0, observer: OBSERVER, leader, term, sequence }
    }

    #[test]
    fn each_law_of_elections_can_be_broken() {
        let (a, b) = (campaigns(1, A), campaigns(5, B));
        let cases: [(&str, Vec<Line>, usize); 8] = [
            ("in order", vec![won(2, A, 7), observed(3, A, 7, 1), observed(4, A, 7, 2), won(6, B, 8)], 0),
            ("killed before it knew", vec![observed(3, A, 7, 1)], 0),
            ("two of one term", vec![won(2, A, 7), won(6, B, 7)], 2),
            ("seen, two of one term", vec![won(2, A, 7), observed(6, B, 7, 1)], 1),
            ("a later winner with a smaller term", vec![won(2, A, 7), won(6, B, 6)], 1),
            ("an observer goes back", vec![observed(6, B, 7, 1), observed(7, A, 6, 1)], 1),
            ("the same again", vec![observed(6, B, 7, 1), observed(7, B, 7, 1)], 1),
            ("it did not win", vec![won(2, A, 7), observed(3, A, 8, 1)], 1),
        ];
        for (what, lines, count) in cases {
            let lines = [&[a.clone(), b.clone()], &lines[..]].concat();
            assert_eq!(judge(&lines).wrong.len(), count, "{what}");
        }
        assert_eq!(judge(&[observed(3, A, 7, 1)]).wrong.len(), 1, "it did not campaign");
    }
}
