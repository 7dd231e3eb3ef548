//! Something for each of many names, and when each name is to be looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::values::time::BootTime;

/// A look at all names, one after the other.
#[derive(Clone, Debug)]
enum ToLook {
    None,
    All,
    /// The others were looked at.
    Behind(u32, Arc<[u8]>),
}

#[derive(Clone, Debug, Default)]
struct Entry<T> {
    value: T,
    alarm: Option<BootTime>,
}

/// A `T` for each name of a database, and when that is to be looked at.
#[derive(Clone, Debug)]
pub(super) struct Planned<T> {
    names: BTreeMap<u32, BTreeMap<Arc<[u8]>, Entry<T>>>,
    alarms: BTreeSet<(BootTime, u32, Arc<[u8]>)>,
    /// Which are to be looked at as soon as can be, whatever else is planned.
    to_look: ToLook,
}

impl<T> Default for Planned<T> {
    fn default() -> Self {
        Self { names: BTreeMap::new(), alarms: BTreeSet::new(), to_look: ToLook::None }
    }
}

impl<T: Default> Planned<T> {
    pub fn get(&self, db: u32, name: &[u8]) -> Option<&T> {
        Some(&self.names.get(&db)?.get(name)?.value)
    }

    pub fn get_mut(&mut self, db: u32, name: &[u8]) -> Option<&mut T> {
        Some(&mut self.names.get_mut(&db)?.get_mut(name)?.value)
    }

    /// What stands for `name`, a new one if there was none, and the name under which it is kept.
    pub fn reach(&mut self, db: u32, name: &[u8]) -> (Arc<[u8]>, &mut T) {
        let names = self.names.entry(db).or_default();
        let name = names.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        (Arc::clone(&name), &mut names.entry(name).or_default().value)
    }

    /// Forgets `name` and its plans if nothing is left of it. Whether it did.
    pub fn remove_if(&mut self, db: u32, name: &[u8], is_empty: impl FnOnce(&T) -> bool) -> bool {
        let Some(names) = self.names.get_mut(&db) else { return false };
        if !names.get(name).is_some_and(|entry| is_empty(&entry.value)) {
            return false;
        }
        let removed = names.remove_entry(name);
        if names.is_empty() {
            self.names.remove(&db);
        }
        if let Some((name, Entry { alarm: Some(when), .. })) = removed {
            self.alarms.remove(&(when, db, name));
        }
        true
    }

    /// No name has anything.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names of `db`.
    pub fn names(&self, db: u32) -> impl Iterator<Item = &[u8]> {
        self.names.get(&db).into_iter().flat_map(|names| names.keys().map(|name| &**name))
    }

    /// `name`, if it has something, is to be looked at by `when`, or earlier if that is planned.
    pub fn wake_at(&mut self, db: u32, name: &[u8], when: BootTime) {
        let Some(names) = self.names.get_mut(&db) else { return };
        let Some((name, _)) = names.get_key_value(name) else { return };
        let name = Arc::clone(name);
        let Some(entry) = names.get_mut(&name) else { return };
        match entry.alarm {
            Some(planned) if planned <= when => return,
            Some(planned) => {
                self.alarms.remove(&(planned, db, Arc::clone(&name)));
            }
            None => {}
        }
        entry.alarm = Some(when);
        self.alarms.insert((when, db, name));
    }

    /// Every name is to be looked at now.
    pub fn wake_all(&mut self) {
        self.to_look = if self.names.is_empty() { ToLook::None } else { ToLook::All };
    }

    /// The name behind this one, in the order of databases and names (`None`: the first).
    fn behind(&self, last: Option<&(u32, Arc<[u8]>)>) -> Option<(u32, Arc<[u8]>)> {
        let mut databases = self.names.range(last.map_or(0, |(db, _)| *db)..);
        let here = last.and_then(|(db, name)| {
            let rest = self.names.get(db)?.range::<[u8], _>((Excluded(&**name), Unbounded)).next()?;
            Some((*db, Arc::clone(rest.0)))
        });
        here.or_else(|| {
            let (db, names) = databases.find(|(db, _)| last.is_none_or(|(last, _)| *db > last))?;
            Some((*db, Arc::clone(names.first_key_value()?.0)))
        })
    }

    /// Takes out the name to be looked at that has been due longest at `now`.
    pub fn pop_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        let next = match std::mem::replace(&mut self.to_look, ToLook::None) {
            ToLook::None => None,
            ToLook::All => self.behind(None),
            ToLook::Behind(db, name) => self.behind(Some(&(db, name))),
        };
        if let Some((db, name)) = next {
            self.to_look = ToLook::Behind(db, Arc::clone(&name));
            return Some((db, name));
        }
        let (when, ..) = self.alarms.first()?;
        if *when > now {
            return None;
        }
        let (_, db, name) = self.alarms.pop_first()?;
        if let Some(entry) = self.names.get_mut(&db).and_then(|names| names.get_mut(&name)) {
            entry.alarm = None;
        }
        Some((db, name))
    }

    /// When the next name is to be looked at.
    pub fn next_due(&self) -> Option<BootTime> {
        let soon = (!matches!(self.to_look, ToLook::None)).then(BootTime::default);
        soon.or_else(|| self.alarms.first().map(|(when, ..)| *when))
    }
}
