//! The gates that the node has to delete when the time of their KEEP option is over, in the order of their ends.

use std::collections::{BTreeMap, BTreeSet};

use super::Gate;
use crate::values::key::Key;
use crate::values::time::BootTime;

/// A gate whose entry came due: it may have ended.
#[derive(Debug, PartialEq, Eq)]
pub struct MayBeOver {
    db: u32,
    listed: BootTime,
    name: Box<[u8]>,
}

impl MayBeOver {
    /// Returns the key of the gate that may have ended.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, name: &self.name }
    }
}

/// The gates with KEEP, by database and end. Each has at most one entry. If a token passed since, the gate ends later
/// than its entry says: when the entry comes due, the gate gets a new one.
#[derive(Clone, Debug, Default)]
pub struct Forgetting(BTreeMap<u32, Listed>);

/// The entries of one database: end and name of each gate, sorted by end.
pub type Listed = BTreeSet<(BootTime, Box<[u8]>)>;

impl Forgetting {
    /// Adds an entry for `gate`, which is in `key`, if the gate has an end.
    pub fn list(&mut self, key: Key<'_>, gate: &mut Gate) {
        if let (Some(end), true) = (gate.end(), gate.listed == BootTime::default()) {
            gate.listed = end;
            self.0.entry(key.db).or_default().insert((end, key.name.into()));
        }
    }

    /// Removes the entry of `gate`, which is about to leave `key`.
    pub fn unlist(&mut self, key: Key<'_>, gate: &mut Gate) {
        let listed = std::mem::take(&mut gate.listed);
        if listed != BootTime::default()
            && let Some(gates) = self.0.get_mut(&key.db)
        {
            gates.remove(&(listed, key.name.into()));
            if gates.is_empty() {
                self.0.remove(&key.db);
            }
        }
    }

    /// Removes the entry with the earliest end, if that end is over at `now`. The caller then looks up the gate by its
    /// key.
    pub fn take_due(&mut self, now: BootTime) -> Option<MayBeOver> {
        let db = self.0.iter().find(|(_, gates)| gates.first().is_some_and(|(at, _)| now > *at)).map(|(db, _)| *db)?;
        let gates = self.0.get_mut(&db)?;
        let (listed, name) = gates.pop_first()?;
        if gates.is_empty() {
            self.0.remove(&db);
        }
        Some(MayBeOver { db, listed, name })
    }

    /// Returns whether the gate of an entry that came due has ended, so that the caller deletes it. If it lasts longer,
    /// this adds a new entry, unless the gate has one.
    pub fn is_over(&mut self, due: &MayBeOver, gate: &mut Gate, now: BootTime) -> bool {
        if gate.listed != due.listed {
            return false;
        }
        gate.listed = BootTime::default();
        let is_over = gate.is_over(now);
        if !is_over {
            self.list(due.key(), gate);
        }
        is_over
    }

    /// Adds the entry that came due again, for `until`: whether the gate has ended is not decided before.
    pub fn put_off(&mut self, due: &MayBeOver, gate: &mut Gate, until: BootTime) {
        if gate.listed == due.listed {
            gate.listed = until;
            self.0.entry(due.db).or_default().insert((until, due.name.clone()));
        }
    }

    /// Returns the time at which the first entry is due.
    pub fn next_due(&self) -> Option<BootTime> {
        self.0.values().filter_map(|gates| gates.first()).map(|(at, _)| *at).min()
    }

    /// Swaps the entries of two databases.
    pub fn swap(&mut self, one: u32, other: u32) {
        let (first, second) = (self.0.remove(&one), self.0.remove(&other));
        self.0.extend(second.map(|gates| (one, gates)));
        self.0.extend(first.map(|gates| (other, gates)));
    }

    /// Removes the entries of a database, or of all (`None`), which is about to be emptied. Dropping many takes a
    /// while, so the caller may do that in another thread.
    pub fn flush(&mut self, db: Option<u32>) -> Vec<Listed> {
        match db {
            Some(db) => self.0.remove(&db).into_iter().collect(),
            None => std::mem::take(&mut self.0).into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_quorum::floors::Kind;

    use super::*;
    use crate::fixture::{ms, token};

    fn key(db: u32) -> Key<'static> {
        Key { db, name: b"gate" }
    }

    fn kept(keep_ms: Option<u64>) -> Gate {
        let mut gate = Gate::default();
        assert_eq!(gate.pass(Kind::Exclusive, token(7), keep_ms, ms(0).plus_us(1)), Ok(true));
        gate
    }

    #[test]
    fn a_gate_is_looked_at_when_it_may_be_over() {
        let (mut gates, mut gate) = (Forgetting::default(), kept(Some(800)));
        gates.list(key(0), &mut gate);
        gates.list(key(0), &mut gate);
        gates.list(key(0), &mut kept(None));
        assert_eq!(gates.next_due(), gate.end());
        assert_eq!(gates.take_due(ms(900)), None, "it lasts through its end");
        gate.pass(Kind::Exclusive, token(7), Some(800), ms(500)).unwrap();
        let due = gates.take_due(ms(901)).unwrap();
        assert!(!gates.is_over(&due, &mut gate, ms(901)), "a passing moved its end");
        let due = gates.take_due(ms(1_401)).unwrap();
        assert_eq!((due.key(), gates.is_over(&due, &mut gate, ms(1_401)), gates.next_due()), (key(0), true, None));
        assert!(!gates.is_over(&due, &mut kept(Some(1)), ms(1_401)), "another gate of this name");
    }

    #[test]
    fn entries_follow_their_gates() {
        let (mut gates, mut gate) = (Forgetting::default(), kept(Some(800)));
        gates.list(key(1), &mut gate);
        gates.swap(1, 2);
        assert_eq!(gates.clone().take_due(ms(2_000)).map(|due| due.db), Some(2));
        gates.unlist(key(2), &mut gate);
        assert_eq!(gates.next_due(), None);
        gates.list(key(3), &mut gate);
        assert_eq!(
            (gates.flush(Some(2)).len(), gates.clone().flush(None).len(), gates.flush(Some(3)).len()),
            (0, 1, 1)
        );
        assert_eq!(gates.next_due(), None);
    }
}
