//! Checks each answer of a node against what the keys held before the request and hold now.

use palisade_core::engine::{Event as Told, Reply, Request as Asked};
use palisade_core::request::{Acquire, Annotate, Conversion, Convert, Release, Wait};
use palisade_core::{Lock, Mode, Token, WaiterId};

use crate::clients::Wish;
use crate::driver::Performed;
use crate::oracle::{Done, Place, grant_of};
use crate::world::{State, World, key_of, name_of};

impl World {
    pub fn acquire(
        &mut self,
        place: Place,
        ask: &Acquire<'_>,
        wish: Option<Wish>,
        may_block: bool,
        looks_first: bool,
    ) -> Done {
        self.may_block = may_block;
        if looks_first {
            self.perform(place, &Asked::Look);
            self.deliver();
        }
        let Acquire { owner, ttl, wanted, retry, patience, .. } = *ask;
        let before = self.state(place);
        let acquired = self.perform(place, &Asked::Acquire(*ask));
        if !acquired.passed {
            self.changed_so_much(place, &before, &acquired);
        }
        match acquired.answer? {
            Reply::Granted(token, number) => {
                if !acquired.acquired {
                    let before = before.0.as_ref().and_then(|lock| grant_of(lock, owner.bytes()));
                    let had = acquired.passed || before.is_some_and(|(_, grant)| grant.token() == token);
                    assert!(retry && had, "{owner:?} has it by another grant");
                }
                let (mode, grant) = grant_of(&self.locks[&place], owner.bytes()).expect("it was granted");
                assert_eq!((grant.token(), mode.number()), (token, number));
                assert!(wanted.is(mode), "{wanted:?} was asked for, and {mode:?} is had");
                self.check_lasting(place, owner.bytes(), self.boot, ttl.ms());
                wish.into_iter().for_each(|wish| self.keeps(place, owner.bytes(), wish));
            }
            Reply::Null => {
                assert_eq!(patience.ms(), 0);
                let has_others = self.waits_in_time(place) || acquired.passed;
                let may_have_it = self.oracle.admits(place, owner.bytes(), wanted, self.boot);
                assert!(has_others || !may_have_it || self.is_hindered(), "{owner:?} was to have what is free");
            }
            Reply::Later => self.keeping.waits(WaiterId(self.clients), wish),
            reply => panic!("{reply:?} is no answer to ACQUIRE"),
        }
        Ok(())
    }

    /// Checks the effect of a command that did not pass the lock on to a waiter: a grant, a longer lease, or a place in
    /// the queue. A refused command has no effect.
    fn changed_so_much(&self, place: Place, before: &State, done: &Performed) {
        let mut after = self.state(place);
        if done.acquired || done.left > 0 {
            return;
        }
        if done.changes > 0 {
            assert_ne!(after.0, before.0);
            return;
        }
        match done.answer {
            // A refusal is counted, so its counter is left out of the comparison.
            Ok(Reply::Null) => after.4.contended -= 1,
            Ok(Reply::Later) => after.3 -= 1,
            _ => {}
        }
        assert_eq!(after, *before, "{done:?} changes nothing");
    }

    pub fn wait(&mut self, place: Place, ask: &Wait<'_>) -> Done {
        let mut before = self.state(place);
        let Wait { owner, wanted, patience, .. } = *ask;
        let told = self.oracle.kept_for(place, owner.bytes(), self.boot).filter(|&mode| wanted.is(mode));
        let waited = self.perform(place, &Asked::Wait(*ask));
        before.3 += usize::from(waited.answer == Ok(Reply::Later));
        assert_eq!(self.state(place), before, "it grants nothing");
        assert!(!waited.passed);
        match waited.answer? {
            Reply::Later => {}
            Reply::Turn(0) => assert_eq!(patience.ms(), 0),
            Reply::Turn(number) => {
                let mode = wanted.modes().find(|mode| mode.number() == number).expect("one that was wanted");
                if self.is_held_by(place, owner.bytes()) {
                    assert_eq!(grant_of(&self.locks[&place], owner.bytes()).map(|(held, _)| held), Some(mode));
                } else if let Some(told) = told {
                    assert_eq!(told, mode, "it is kept for {owner:?}");
                } else {
                    assert!(!self.waits_in_time(place), "{owner:?} passed those who wait");
                    // If there is no room for a reservation, the node makes none. A reservation in another mode that
                    // the owner had stays.
                    let name = name_of(place);
                    let own = (owner.bytes(), mode);
                    if self
                        .node
                        .waiting()
                        .reservations(key_of(place, &name))
                        .any(|(kept_for, mode, _)| (kept_for, mode) == own)
                    {
                        self.tell(place, owner.bytes(), mode);
                    }
                }
            }
            reply => panic!("{reply:?} is no answer to WAIT"),
        }
        Ok(())
    }

    pub fn release(&mut self, place: Place, ask: &Release<'_>) -> Done {
        let before = self.locks.get(&place).cloned();
        let own = |lock: &Lock| grant_of(lock, ask.owner.bytes()).map(|(mode, grant)| (mode, grant.clone()));
        let was_held = self.is_held_by(place, ask.owner.bytes());
        if ask.token.is_none() {
            self.take_back(place, ask.owner.bytes());
        }
        let is_adopted = before.as_ref().and_then(own).is_some_and(|(_, grant)| grant.is_adopted());
        let is_given_up = ask.level.is_none() && ask.token.is_none();
        let released = self.perform(place, &Asked::Release(*ask));
        assert!(!(was_held && is_adopted && is_given_up) || released.answer == Ok(Reply::Null));
        let has_ended = released.ended == Some(Told::Released) || released.left == 1;
        assert_eq!(has_ended, released.answer == Ok(Reply::Holds(0)));
        if has_ended {
            self.keeping.ended(place, ask.owner.bytes());
        }
        match released.answer? {
            Reply::Holds(0) => assert!(was_held),
            Reply::Holds(left) if released.changes > 0 => {
                let (before, after) = (before.as_ref().and_then(own), self.locks.get(&place).and_then(own));
                let ((mode, before), (still, after)) = before.zip(after).expect("it holds it, and did before");
                assert!(was_held && after.holds() == left && left < before.holds());
                assert_eq!((mode, before.deadline()), (still, after.deadline()));
            }
            Reply::Holds(_) => assert!(was_held && self.locks.get(&place) == before.as_ref()),
            // The owner may have had its turn before the command was decided.
            Reply::Null if released.passed => {}
            Reply::Null => assert_eq!(self.locks.get(&place), before.as_ref()),
            reply => panic!("{reply:?} is no answer to RELEASE"),
        }
        Ok(())
    }

    pub fn convert(&mut self, place: Place, ask: &Convert<'_>) -> Done {
        let before = self.locks.get(&place).cloned();
        let own = before.as_ref().and_then(|lock| grant_of(lock, ask.owner.bytes()));
        let own = own.filter(|(_, grant)| !grant.is_expired(self.boot));
        let own = own.filter(|(_, grant)| ask.token.is_none_or(|token| token == grant.token()));
        let others = |lock: &Lock| lock.live_len(self.boot) > 1;
        let is_alone = !before.as_ref().is_some_and(others)
            && self.oracle.is_kept_for_nobody_but(place, ask.owner.bytes(), self.boot);
        let converted = self.perform(place, &Asked::Convert(*ask));
        assert!(!converted.acquired && converted.changes <= 1 + converted.handed_over);
        match (converted.answer?, own) {
            (Reply::Token(token), Some((mode, grant))) => {
                let wanted = if ask.to == Conversion::Shared { Mode::Shared } else { Mode::Exclusive };
                assert_eq!(converted.changes > 0, mode != wanted);
                assert!(token == grant.token() || wanted == Mode::Exclusive && mode != wanted);
                let now = grant_of(&self.locks[&place], ask.owner.bytes());
                assert_eq!(now.map(|(mode, grant)| (mode, grant.token())), Some((wanted, token)));
            }
            (Reply::Null, own) => {
                let may_be = match own.map(|(mode, _)| mode) {
                    None | Some(Mode::Permit(_)) => false,
                    Some(Mode::Exclusive) => true,
                    Some(Mode::Shared) => ask.to == Conversion::Shared || is_alone,
                };
                assert!(!may_be && converted.changes == 0, "{ask:?} was to be done");
            }
            (reply, own) => panic!("{reply:?} is no answer to CONVERT of {own:?}"),
        }
        Ok(())
    }

    pub fn annotate(&mut self, place: Place, ask: &Annotate<'_>) -> Done {
        let own = self.locks.get(&place).and_then(|lock| grant_of(lock, ask.owner.bytes()));
        let own = own.filter(|(_, grant)| !grant.is_expired(self.boot));
        let own = own.filter(|(_, grant)| ask.token.is_none_or(|token| token == grant.token()));
        let last = own.map(|(_, grant)| grant.note_sequence());
        let asked = Asked::Note(*ask);
        let mut before = self.state(place);
        let done = self.perform(place, &asked);
        if done.changes == 0 {
            assert_eq!(self.state(place), before, "{done:?} changes nothing");
        }
        before.4.notes += 1;
        match (done.answer?, last) {
            (Reply::Noted(number), Some(last)) => {
                let asked = ask.sequence.unwrap_or(number);
                assert_eq!(number, asked.max(last), "the larger one");
                assert_eq!(done.changes == 1, number > last);
                let (_, grant) = grant_of(&self.locks[&place], ask.owner.bytes()).expect("it holds it");
                assert!(grant.note_sequence() == number && (done.changes == 0 || grant.note() == ask.note.bytes()));
                assert!(done.changes == 0 || self.state(place).4 == before.4);
            }
            (Reply::Null, None) => assert_eq!(done.changes, 0),
            (reply, last) => panic!("{reply:?} is no answer to NOTE of a grant with {last:?}"),
        }
        Ok(())
    }

    pub fn break_it(&mut self, place: Place, token: Option<Token>) {
        let live = |lock: &Lock| {
            let live = lock.grants().filter(|(_, grant)| !grant.is_expired(self.boot)).map(|(_, grant)| grant.token());
            live.filter(|held| token.is_none_or(|token| token == *held)).max()
        };
        let held = self.locks.get(&place).and_then(live);
        let broken = self.perform(place, &Asked::Break(token));
        assert_eq!(broken.answer, Ok(held.map_or(Reply::Null, Reply::Token)));
        assert_eq!(broken.ended == Some(Told::Broken) || broken.left > 0, held.is_some());
    }

    /// Performs a command that changes a grant in place. Checks that nothing changes unless the answer says so.
    pub fn in_place(&mut self, place: Place, asked: &Asked<'_>) -> Done {
        let mut before = self.state(place);
        let done = self.perform(place, asked);
        assert!(!done.passed && !done.acquired && done.ended.is_none() && done.left == 0);
        if done.changes > 0 {
            assert!(done.answer.is_ok() && self.is_held(place) && self.locks.get(&place) != before.0.as_ref());
        } else {
            if done.answer.is_ok() {
                // Requests are counted, so their counters are left out of the comparison.
                before.4 = self.node.counters();
            }
            assert_eq!(self.state(place), before, "{done:?} changes nothing");
        }
        done.answer.map(drop)
    }
}
