//! What a node answers requests, against what it held before and holds now.

use palisade_core::engine::{Event as Told, Reply, Request as Asked};
use palisade_core::request::{Acquire, Release, Wait};

use crate::driver::Performed;
use crate::node::Done;
use crate::oracle::Place;
use crate::world::{State, World};

impl World {
    pub fn acquire(&mut self, place: Place, ask: &Acquire<'_>, may_block: bool, looks_first: bool) -> Done {
        if looks_first {
            self.perform(place, &Asked::Look);
            self.deliver();
        }
        let Acquire { owner, ttl, retry, patience, .. } = *ask;
        let before = self.state(place);
        let acquired = self.perform(place, &Asked::Acquire { ask: *ask, may_block });
        if !acquired.passed {
            self.changed_so_much(place, &before, &acquired);
        }
        match acquired.answer? {
            Reply::Granted(token, 1) => {
                if acquired.granted != Some(Told::Acquired) {
                    let had = acquired.passed
                        || before.0.is_some_and(|lock| lock.first().token() == token && lock.first().is_of(owner));
                    assert!(retry && had, "{owner:?} has it by another grant");
                }
                assert!(self.is_held_by(place, owner.bytes()) && self.locks[&place].first().token() == token);
                self.lasts(place, self.boot, ttl.ms());
            }
            Reply::Null => {
                assert_eq!(patience.ms(), 0);
                let kept = self.oracle.is_kept(place, self.boot) || acquired.passed;
                assert!(kept || self.is_held(place) || self.is_hindered(), "{owner:?} was to have what is free");
            }
            Reply::Later => {}
            reply => panic!("{reply:?} is no answer to ACQUIRE"),
        }
        Ok(())
    }

    /// What a command did that passed nothing on: a grant, a longer lease, a place in the queue; a refused one nothing.
    fn changed_so_much(&self, place: Place, before: &State, done: &Performed) {
        let mut after = self.state(place);
        if done.granted.is_some() {
            return;
        }
        if done.changes > 0 {
            assert_ne!(after.0, before.0);
            return;
        }
        match done.answer {
            // It was counted.
            Ok(Reply::Null) => after.4.contended -= 1,
            Ok(Reply::Later) => after.3 -= 1,
            _ => {}
        }
        assert_eq!(after, *before, "{done:?} changes nothing");
    }

    pub fn wait(&mut self, place: Place, ask: &Wait<'_>) -> Done {
        let mut before = self.state(place);
        let told = self.oracle.is_kept(place, self.boot);
        let Wait { owner, patience, .. } = *ask;
        let waited = self.perform(place, &Asked::Wait(*ask));
        before.3 += usize::from(waited.answer == Ok(Reply::Later));
        assert_eq!(self.state(place), before, "it grants nothing");
        assert!(!waited.passed);
        match waited.answer? {
            Reply::Turn(1) if !told && !self.is_held_by(place, owner.bytes()) => {
                assert!(!self.is_held(place) && !self.waits_in_time(place), "{owner:?} passed those who wait");
                self.tell(place, owner.bytes());
            }
            Reply::Turn(1) | Reply::Later => {}
            Reply::Turn(0) => assert_eq!(patience.ms(), 0),
            reply => panic!("{reply:?} is no answer to WAIT"),
        }
        Ok(())
    }

    pub fn release(&mut self, place: Place, ask: &Release<'_>) -> Done {
        let before = self.locks.get(&place).cloned();
        let was_held = self.is_held_by(place, ask.owner.bytes());
        if ask.token.is_none() {
            self.take_back(place, ask.owner.bytes());
        }
        let released = self.perform(place, &Asked::Release(*ask));
        assert_eq!(released.ended == Some(Told::Released), released.answer == Ok(Reply::Holds(0)));
        match released.answer? {
            Reply::Holds(0) => assert!(was_held),
            Reply::Holds(left) if released.changes > 0 => {
                let lock = &self.locks[&place];
                assert!(was_held && lock.first().is_of(ask.owner) && lock.first().holds() == left);
                assert!(before.is_some_and(
                    |before| left < before.first().holds() && lock.first().deadline() == before.first().deadline()
                ));
            }
            Reply::Holds(_) => assert!(was_held && self.locks.get(&place) == before.as_ref()),
            // It may have been its turn.
            Reply::Null if released.passed => {}
            Reply::Null => assert_eq!(self.locks.get(&place), before.as_ref()),
            reply => panic!("{reply:?} is no answer to RELEASE"),
        }
        Ok(())
    }

    /// A command that changes a lock in place, if it says so.
    pub fn in_place(&mut self, place: Place, asked: &Asked<'_>) -> Done {
        let mut before = self.state(place);
        let done = self.perform(place, asked);
        assert!(!done.passed && done.granted.is_none() && done.ended.is_none());
        if done.changes > 0 {
            assert!(done.answer.is_ok() && self.is_held(place) && self.locks.get(&place) != before.0.as_ref());
        } else {
            if done.answer.is_ok() {
                // It was asked for, and counted.
                before.4 = self.node.counters();
            }
            assert_eq!(self.state(place), before, "{done:?} changes nothing");
        }
        done.answer.map(drop)
    }
}
