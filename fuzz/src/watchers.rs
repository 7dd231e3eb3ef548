//! Clients that watch locks. Each must be answered once, as soon as the lock is in another state than it knows, and not
//! before.

use palisade_core::request::{Known, Patience, Watch};
use palisade_core::{Asker, WaiterId, Watched};

use crate::clients::Watcher;
use crate::oracle::{Done, Place};
use crate::world::{World, key_of, name_of};

/// The number of watchers that are answered at a time: so few that some are often left for the next time.
const TOLD_A_LOOK: usize = 2;

impl World {
    pub fn watch(&mut self, place: Place, known: Known, patience: Patience) -> Done {
        let ask = Watch { known, patience };
        let watched = self.node.watch(self.locks.get(&place), &ask, self.boot)?;
        assert_eq!(watched == Watched::Differs, !self.is_known(place, known));
        match watched {
            Watched::Differs => {}
            Watched::Same => assert_eq!(patience, Patience::NONE),
            Watched::Watches => {
                let (id, name) = (self.new_client(), name_of(place));
                self.node.ensure_may_watch(key_of(place, &name), Asker::default())?;
                self.node.add_watcher(
                    key_of(place, &name),
                    (id, Asker::default()),
                    self.locks.get(&place),
                    &ask,
                    self.boot,
                );
                let until = self.boot.plus_ms(patience.ms());
                self.watchers.insert(id.0, Watcher { place, known, until });
            }
        }
        Ok(())
    }

    /// Returns true if the lock is in the state `known`. Works that out in the simplest way, as a check of the rules.
    fn is_known(&self, place: Place, known: Known) -> bool {
        let live = || self.locks.get(&place).into_iter().flat_map(|lock| lock.grants().map(|(_, grant)| grant));
        let mut live = live().filter(|grant| self.boot <= grant.deadline());
        match known {
            Known::Free => live.next().is_none(),
            Known::Grant(token, sequence) => {
                // Several readers may have one token. The grant that lasts longest counts.
                let grant = live.filter(|grant| grant.token() == token).max_by_key(|grant| grant.deadline());
                grant.is_some_and(|grant| sequence.is_none_or(|sequence| grant.note_sequence() <= sequence))
            }
        }
    }

    /// Answers some watchers of a lock that may have changed. Checks that each of them knew another state than the
    /// present one.
    pub fn notify_watchers(&mut self, place: Place) {
        let name = name_of(place);
        let told = self.node.take_outdated(key_of(place, &name), self.locks.get(&place), TOLD_A_LOOK, self.boot);
        assert!(told.len() <= TOLD_A_LOOK);
        for id in told {
            let watcher = self.watchers.remove(&id.0).expect("who is told watches");
            assert!(watcher.place == place && !self.is_known(place, watcher.known), "{:?} is no news", watcher.known);
        }
    }

    /// Does one piece of due work for watchers, which is done even while writes are not allowed. Returns false if
    /// nothing is due.
    pub fn check_watchers(&mut self) -> bool {
        if let Some(WaiterId(id)) = self.node.take_watcher_timed_out(self.boot) {
            let watcher = self.watchers.remove(&id).expect("who is told watches");
            assert!(self.boot > watcher.until);
            return true;
        }
        let Some((db, name)) = self.node.take_watch_due(self.boot) else { return false };
        self.notify_watchers((db, name[0] - b'k'));
        true
    }

    /// Checks that no watcher is forgotten: what it knows is true, or its lock is due to be checked now.
    pub fn no_watcher_is_forgotten(&self) {
        assert_eq!(self.node.watching().len(), self.watchers.len());
        let is_due = self.node.watching().next_due().is_some_and(|due| due <= self.boot);
        for watcher in self.watchers.values() {
            let is_right = self.boot <= watcher.until && self.is_known(watcher.place, watcher.known);
            assert!(is_right || is_due, "nobody looks after one who knows {:?}", watcher.known);
        }
    }

    /// Disconnects a client that watches.
    pub fn watcher_leaves(&mut self, which: u8) {
        let Some(&id) = self.watchers.keys().nth(usize::from(which) % self.watchers.len().max(1)) else { return };
        self.watchers.remove(&id);
        assert!(self.node.stop_watching(WaiterId(id)) && !self.node.stop_watching(WaiterId(id)));
    }
}
