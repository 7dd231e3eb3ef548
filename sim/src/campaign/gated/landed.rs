//! Keeps the writes that were seen in resources, and finds late ones among them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::campaign::faults::Wrong;
use crate::campaign::resource::Entry;
use crate::history::TimeUs;

/// The writes that were seen in a resource.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// All entries that were ever read, each with the beginning of the last reading that had it.
    pub ever: BTreeMap<Entry, TimeUs>,
    /// The entries of the last reading.
    pub last: BTreeSet<Entry>,
    /// True after the first finding, because later readings would only repeat it.
    is_wrong: bool,
}

impl Seen {
    /// Records a reading of the resource `number`, which began at `at`. Returns a finding if it has a late write, or a
    /// write twice.
    pub fn see(&mut self, number: u32, at: TimeUs, entries: &[Entry]) -> Option<Wrong> {
        let late = entries.windows(2).find(|two| two[1].token < two[0].token);
        let late = late.map(|two| format!("late write: in resource {number}, {:?} landed behind {:?}", two[1], two[0]));
        let once: BTreeSet<Entry> = entries.iter().copied().collect();
        let twice = (once.len() < entries.len()).then(|| format!("a write landed twice in resource {number}"));
        self.ever.extend(once.iter().map(|&entry| (entry, at)));
        self.last = once;
        let what = late.or(twice).filter(|_| !self.is_wrong)?;
        self.is_wrong = true;
        Some(Wrong { at, key: None, what })
    }
}

/// The writes that were read from each resource.
#[derive(Clone, Debug, Default)]
pub struct Landed(Arc<Mutex<BTreeMap<u32, Seen>>>);

impl Landed {
    /// Returns the writes that were read so far, by the number of the resource.
    pub fn all(&self) -> BTreeMap<u32, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a reading of the resource `number`, which began at `at`. Returns a finding if it has a late write, or a
    /// write twice.
    pub fn see(&self, number: u32, at: TimeUs, entries: &[Entry]) -> Option<Wrong> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(number).or_default().see(number, at, entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Holder;

    #[test]
    fn a_late_write_is_found_once_and_so_is_one_that_landed_twice() {
        let entry = |token, number| Entry { token, who: Holder { client: 1, acquisition: 1 }, number };
        let cases: [(&[Entry], &str); 4] = [
            (&[entry(5, 0), entry(5, 1), entry(7, 0)], ""),
            (&[entry(5, 0), entry(7, 0), entry(6, 0), entry(8, 0)], "late write"),
            (&[entry(5, 0), entry(5, 0)], "twice"),
            (&[], ""),
        ];
        for (entries, wrong) in cases {
            let mut seen = Seen::default();
            let first = seen.see(0, 7, entries);
            assert_eq!(first.is_some(), !wrong.is_empty(), "{entries:?}");
            assert!(first.is_none_or(|first| first.at == 7 && first.what.contains(wrong)));
            assert_eq!(seen.see(0, 8, entries), None, "it is told once");
            assert!(seen.ever.values().all(|&last| last == 8));
        }
    }
}
