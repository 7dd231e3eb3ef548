//! A replica that receives the record of every change, like the AOF.

use palisade_core::record::{Applied, Arrival, Here, apply, decode_told, encode};
use palisade_core::{BootTime, Lock};

use crate::oracle::Place;
use crate::record::HERE;
use crate::world::World;

impl World {
    /// Lets `write` encode a change of the lock, and applies that record to the replica's key.
    pub fn replica_news(&mut self, place: Place, write: impl FnOnce(&Lock, &mut Vec<u8>, BootTime)) {
        let (mut record, now) = (vec![], self.boot);
        write(&self.locks[&place], &mut record, now);
        let told =
            decode_told(&record, Here { arrival: Arrival::Stream, now, boot: HERE }).expect("what is written is read");
        match apply(told, self.replicas.get_mut(&place)).expect("what is told can be done") {
            Applied::Anew(lock) => drop(self.replicas.insert(place, lock)),
            Applied::Grant(_) | Applied::Gone => {}
        }
    }

    /// Copies the content of the key to the replica. A command of the server put it there, and the replica received
    /// that command itself.
    pub fn is_copied(&mut self, place: Place) {
        self.replicas.remove(&place);
        if self.locks.contains_key(&place) {
            self.replica_news(place, |lock, record, now| encode(lock, now, HERE, record));
        }
    }

    /// Checks that the replica's key has the same lock as the node's.
    pub fn is_known_to_replicas(&self, place: Place) {
        let written = |lock: Option<&Lock>| {
            let mut record = vec![];
            lock.iter().for_each(|lock| encode(lock, self.boot, HERE, &mut record));
            record
        };
        assert_eq!(written(self.replicas.get(&place)), written(self.locks.get(&place)), "{place:?} on replicas");
    }
}
