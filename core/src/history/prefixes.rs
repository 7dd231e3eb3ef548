//! Figures by key prefix, for monitoring. The operator lists the prefixes, so there are few.

use std::mem::take;

use crate::history::times::Times;
use crate::values::prefixes::KeyPrefixes;

/// The figures of the locks under one key prefix, counted since the prefix was configured.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The number of grants of these locks.
    pub grants: u64,
    /// The number of ACQUIREs refused because another owner holds the lock.
    pub contended: u64,
    /// The waiting times of served requests.
    pub waits: Times,
    /// The holding times of ended grants.
    pub held: Times,
}

#[derive(Clone, Debug)]
struct Row {
    prefix: Box<[u8]>,
    /// The row of the longest other prefix with which this one begins, if there is one.
    within: Option<usize>,
    figures: Figures,
}

/// The figures of the locks under each configured prefix, and of all other locks.
#[derive(Clone, Debug, Default)]
pub struct Prefixes {
    /// A row for each prefix, in byte order.
    rows: Vec<Row>,
    other: Figures,
}

impl Prefixes {
    /// Sets the prefixes. A prefix that was there before keeps its figures. Without any prefix nothing is counted.
    pub(super) fn configure(&mut self, prefixes: &KeyPrefixes) {
        if prefixes.iter().eq(self.rows.iter().map(|row| &*row.prefix)) {
            return;
        }
        let mut before = take(self);
        for prefix in prefixes.iter() {
            let known = before.rows.iter_mut().find(|row| *row.prefix == *prefix);
            let figures = known.map_or_else(Figures::default, |row| take(&mut row.figures));
            let within = self.longest(self.rows.len().checked_sub(1), prefix);
            self.rows.push(Row { prefix: prefix.into(), within, figures });
        }
        if !self.is_empty() {
            self.other = before.other;
        }
    }

    /// Returns whether no prefix is configured.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the row of the longest prefix of `name`. Searches the row `from`, the row of the longest prefix of that
    /// row's prefix, and so on.
    fn longest(&self, mut from: Option<usize>, name: &[u8]) -> Option<usize> {
        while let Some(place) = from.filter(|&place| !name.starts_with(&self.rows[place].prefix)) {
            from = self.rows[place].within;
        }
        from
    }

    /// Returns the figures that count for the key `name`: those of its longest prefix, or of all other keys.
    pub(super) fn of(&mut self, name: &[u8]) -> &mut Figures {
        // All prefixes of `name` come before it in order, and are prefixes of one another. Every row between the
        // longest of them and `name` begins with it too.
        let before = self.rows.partition_point(|row| *row.prefix <= *name);
        match self.longest(before.checked_sub(1), name) {
            Some(place) => &mut self.rows[place].figures,
            None => &mut self.other,
        }
    }

    /// Iterates over the figures of each prefix, in byte order.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], &Figures)> {
        self.rows.iter().map(|row| (&*row.prefix, &row.figures))
    }

    /// Returns the figures of all keys with none of the prefixes.
    pub fn other(&self) -> &Figures {
        &self.other
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(text: &str) -> KeyPrefixes {
        KeyPrefixes::parse(text.as_bytes()).unwrap()
    }

    fn grants(prefixes: &Prefixes) -> Vec<u64> {
        prefixes.rows().map(|(_, figures)| figures.grants).chain([prefixes.other().grants]).collect()
    }

    #[test]
    fn who_stays_listed_keeps_its_figures() {
        let mut prefixes = Prefixes::default();
        prefixes.configure(&listed("a b"));
        for name in ["a", "b", "b1", "c", "c", "c"] {
            prefixes.of(name.as_bytes()).grants += 1;
        }
        assert_eq!(grants(&prefixes), [1, 2, 3]);
        prefixes.configure(&listed("a b"));
        assert_eq!(grants(&prefixes), [1, 2, 3]);
        prefixes.configure(&listed("b c"));
        assert_eq!(grants(&prefixes), [2, 0, 3]);
        prefixes.configure(&listed(""));
        assert_eq!((grants(&prefixes), prefixes.is_empty()), (vec![0], true));
        prefixes.configure(&listed("b"));
        assert_eq!(grants(&prefixes), [0, 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// The prefixes have few letters, so that some begin with others. A key counts for the longest prefix with
        /// which it begins.
        #[test]
        fn the_longest_prefix_counts(
            prefixes in proptest::collection::btree_set("[a-c]{1,4}", 0..12),
            name in "[a-c]{0,6}",
        ) {
            let listed = listed(&prefixes.iter().cloned().collect::<Vec<_>>().join(" "));
            let mut counted = Prefixes::default();
            counted.configure(&listed);
            counted.of(name.as_bytes()).grants += 1;
            let longest = prefixes.iter().filter(|prefix| name.starts_with(prefix.as_str())).max_by_key(|prefix| prefix.len());
            let found = counted.rows().find(|(_, figures)| figures.grants == 1).map(|(prefix, _)| prefix.to_vec());
            prop_assert_eq!(found, longest.map(|prefix| prefix.clone().into_bytes()));
            prop_assert_eq!(counted.other().grants, u64::from(longest.is_none()));
        }
    }
}
