//! Performs the engine's steps in memory, and judges them: each is possible where it stands, and what is promised may be.

use std::collections::BTreeSet;

use palisade_core::engine::{By, Event, Question, Reply, Request, Run, Said, Step};
use palisade_core::request::{Acquire, Wait};
use palisade_core::{Answer, Lock, Refusal, WaiterId, Want};

use crate::oracle::Place;
use crate::world::{World, key_of, name_of};

/// Most steps of one request: for each of a whole slice that lost its permission one, and a few.
const STEPS_MAX: usize = 200;

/// What came of a request.
#[derive(Debug)]
pub struct Performed {
    pub answer: Result<Reply, Refusal>,
    /// The lock ended, by this.
    pub ended: Option<Event>,
    pub deleted: bool,
    /// It was granted to somebody, who asked or who waited.
    pub granted: Option<Event>,
    /// It was changed in place so many times.
    pub changes: usize,
    /// Somebody who waited was served or refused, or might have been: what the command itself did is not to be told apart.
    pub passed: bool,
}

/// What was found out for one request.
#[derive(Default)]
struct Found {
    permitted: BTreeSet<WaiterId>,
    may_grant: bool,
    asked_disk: usize,
}

impl World {
    /// Does `request` for the key, step by step, until it is done.
    pub fn perform(&mut self, place: Place, request: &Request<'_>) -> Performed {
        let name = name_of(place);
        let turns = self.node.counters().turns;
        let others_wait = self.waits_in_time(place);
        let mut run = Run::new(key_of(place, &name), request);
        let mut done = Performed {
            answer: Ok(Reply::Null),
            ended: None,
            deleted: false,
            granted: None,
            changes: 0,
            passed: false,
        };
        let (mut found, mut said, mut blocked) = (Found::default(), Said::Yes, None);
        for _ in 0..STEPS_MAX {
            let answered = run.answered();
            let now = self.now();
            let step = run.next(self.locks.get_mut(&place), said, &mut self.node, now);
            crate::tell(&step);
            assert!(answered.is_none_or(|answer| step == Step::Done(answer)), "it was over, and then {step:?}");
            assert!(blocked.is_none() || matches!(step, Step::Done(_)), "who waits has nothing done for it");
            said = Said::Yes;
            // A turn that comes about before the command is decided is told before that.
            let turn_came = self.node.counters().turns > turns;
            done.passed |= turn_came;
            match step {
                Step::Store(event) => {
                    self.may_store(place, event, request, &done, &found, turn_came);
                    let granted = run.granted();
                    if event == Event::HandedOver {
                        let is_owners = |id: &WaiterId| {
                            granted.as_ref().is_some_and(|lock| lock.first().owner() == self.waits[&id.0].owner)
                        };
                        assert!(found.permitted.iter().any(is_owners), "nobody asked whether its user may have it");
                        done.passed = true;
                    }
                    self.is_stored(place, granted);
                    done.granted = Some(event);
                }
                Step::Replace => {
                    assert!(
                        done.ended.is_none() && self.locks.get(&place).is_some_and(|lock| lock.is_expired(self.boot))
                    );
                    self.oracle.ended(place);
                    self.may_store(place, Event::Acquired, request, &done, &found, turn_came);
                    self.is_stored(place, run.granted());
                    done.granted = Some(Event::Acquired);
                }
                Step::Changed(event, _) => {
                    let lock = self.locks.get(&place).expect("only what is there is changed");
                    assert!(done.ended.is_none() && !lock.is_expired(self.boot), "only what is held is changed");
                    self.oracle.changed(place, lock);
                    if !matches!(request, Request::Release(_)) {
                        self.may_promise(place);
                    }
                    assert!(matches!(event, None | Some(Event::Extended)));
                    done.changes += 1;
                }
                Step::Left(event) => panic!("{event:?}: nobody holds a lock with others"),
                Step::Tell(event) => {
                    self.may_end(place, event, request, &done);
                    self.oracle.ended(place);
                    done.ended = Some(event);
                    done.passed = true;
                }
                Step::Delete(event) => {
                    assert!(!done.deleted && done.granted.is_none(), "it was deleted, or is somebody's");
                    assert_eq!(event.is_none(), done.ended.is_some(), "that it ended is told once");
                    if let Some(event) = event {
                        self.may_end(place, event, request, &done);
                        self.oracle.ended(place);
                        assert!(!self.waits_in_time(place), "somebody waits, and is not asked for");
                        done.ended = Some(event);
                    }
                    assert!(self.take(place).is_some(), "only what is there is deleted");
                    done.deleted = true;
                }
                Step::Ask(question) => {
                    said = self.says(place, question, request, &mut found);
                    done.passed |= !matches!(question, Question::OnDisk);
                }
                Step::LookAtSlots | Step::Redirect => panic!("{step:?}: there is no cluster"),
                Step::Block => {
                    let id = self.new_client();
                    assert!(self.node.waiting().len() < self.node.waiting().max as usize);
                    blocked = Some(id);
                    said = Said::Blocked(id);
                }
                Step::Write => {
                    self.is_hindered_for_disk();
                    self.save(false);
                }
                Step::Done(answer) => {
                    if found.asked_disk > 0 {
                        self.is_hindered_for_disk();
                    }
                    if let Some(id) = blocked {
                        assert_eq!(answer, Ok(Reply::Later));
                        self.waits_now(place, id, request);
                    } else {
                        assert_ne!(answer, Ok(Reply::Later), "nobody answers it");
                    }
                    if answer.is_err() {
                        assert_ne!(done.granted, Some(Event::Acquired), "a refused command changes nothing");
                    }
                    let held = self.locks.contains_key(&place);
                    assert!(done.ended.is_none() || !held || done.granted.is_some(), "what ended is still there");
                    if matches!(request, Request::Acquire { .. } | Request::Look) {
                        assert!(done.passed || !others_wait, "nobody looked at those who wait");
                    }
                    done.answer = answer;
                    return done;
                }
            }
        }
        panic!("{request:?} is never done");
    }

    /// What the server says, and the disk.
    fn says(&mut self, place: Place, question: Question, request: &Request<'_>, found: &mut Found) -> Said {
        match question {
            Question::IsServedHere => panic!("there is no cluster"),
            Question::IsPermitted(id) => {
                assert!(self.is_free(place, request), "nobody is next while it is held");
                let waits = self.waits.get(&id.0).expect("who is asked about waits");
                assert!(waits.place == place && !self.forbidden.contains(&id), "{id:?}");
                if self.doubt() == 3 {
                    self.forbidden.insert(id);
                    return Said::Refused(Refusal::Forbidden);
                }
                found.permitted.insert(id);
                Said::Yes
            }
            Question::MayGrant(by) => {
                let itself = matches!(request, Request::Expire(_) | Request::Look);
                assert_eq!(by, if itself { By::Itself } else { By::Command });
                assert!(self.node.waiting().len_of(place.0, &name_of(place)) > 0, "nobody is there to be granted it");
                let refusal = match self.doubt() {
                    1 => Refusal::NotYet,
                    3 => Refusal::Poisoned,
                    _ => {
                        found.may_grant = true;
                        return Said::Yes;
                    }
                };
                found.may_grant = false;
                if refusal == Refusal::Poisoned {
                    // Everybody is told, and whoever was told of a free lock before cannot get it either.
                    self.was_poisoned = true;
                    self.oracle.nobody_is_told(place);
                }
                self.is_hindered_for_disk();
                Said::Refused(refusal)
            }
            Question::OnDisk => {
                found.asked_disk += 1;
                assert!(found.asked_disk <= 2, "by who was before, and by the command");
                self.looks_at_disk();
                Said::Yes
            }
        }
    }

    fn is_free(&self, place: Place, request: &Request<'_>) -> bool {
        // Released or broken in this very step, or its lease is over.
        !self.is_held(place) || matches!(request, Request::Release(_) | Request::Break(None))
    }

    /// The lock in the key may end by this.
    fn may_end(&self, place: Place, event: Event, request: &Request<'_>, done: &Performed) {
        assert!(done.ended.is_none() && done.granted.is_none() && done.changes == 0, "{event:?} after {done:?}");
        let lock = self.locks.get(&place).expect("only what is there ends");
        match (event, request) {
            (Event::Expired, _) => assert!(lock.is_expired(self.boot), "{lock:?} is held"),
            (Event::Released, Request::Release(ask)) => {
                assert!(self.is_held_by(place, ask.owner.bytes()));
                assert!(ask.token.is_none_or(|token| token == lock.first().token()));
            }
            (Event::Broken, Request::Break(None)) => assert!(self.is_held(place)),
            _ => panic!("{request:?} ends nothing by {event:?}"),
        }
    }

    /// The lock may be stored: nobody has it, it is the turn of its owner, and it was asked whether it may be granted.
    fn may_store(
        &mut self,
        place: Place,
        event: Event,
        request: &Request<'_>,
        done: &Performed,
        found: &Found,
        turn_came: bool,
    ) {
        assert!(done.granted.is_none() && done.changes == 0, "{event:?} after {done:?}");
        let was_held = self.locks.get(&place).is_some_and(|lock| !lock.is_expired(self.boot));
        assert!(!was_held || done.ended.is_some(), "{event:?}: it is held");
        self.may_promise(place);
        match event {
            Event::HandedOver => {
                assert!(found.may_grant, "nobody asked whether it may be granted");
            }
            Event::Acquired => {
                assert!(matches!(request, Request::Acquire { .. }));
                if turn_came {
                    self.told_of_turns();
                }
                let told = self.oracle.is_kept(place, self.boot);
                assert!(told || !self.waits_in_time(place), "{request:?} passed those who wait");
            }
            _ => panic!("nothing is stored by {event:?}"),
        }
    }

    fn is_stored(&mut self, place: Place, lock: Option<Lock>) {
        let lock = lock.expect("there is something to store");
        let guarded = self.node.guard().armed(self.boot).is_some();
        self.oracle.granted(place, &lock, self.boot, guarded);
        let name = name_of(place);
        assert!(
            lock.first().token().get() <= self.node.tokens().ceiling_of(&name),
            "above what the node has heard of the disk"
        );
        if let Some(disk) = self.disk.as_ref() {
            assert!(lock.first().token().get() <= disk.ceiling_of(&name), "above what the disk has");
        }
        // In place of what is there: its entry is the one's that follows.
        match self.locks.get_mut(&place) {
            Some(held) => held.replace(lock),
            None => drop(self.locks.insert(place, lock)),
        }
    }

    /// Nothing is promised that a later incarnation does not know of.
    fn may_promise(&self, place: Place) {
        if let Some(disk) = self.disk.as_ref() {
            assert!(disk.is_up_to_it(), "{place:?} is promised before the disk knows");
            assert!(disk.is_of(self.node.ledger().incarnation()));
        }
    }

    /// The request is in the queue, as long as it asked for.
    fn waits_now(&mut self, place: Place, id: WaiterId, request: &Request<'_>) {
        let waiting = &self.node.waiting();
        let waiter = waiting.of(place.0, &name_of(place)).find(|waiter| waiter.id == id).expect("it waits");
        let (owner, ms, ttl) = match request {
            Request::Acquire { ask: Acquire { owner, ttl, patience, .. }, .. } => (owner, patience.ms(), Some(*ttl)),
            Request::Wait(Wait { owner, patience, .. }) => (owner, patience.ms(), None),
            _ => panic!("{request:?} does not wait"),
        };
        assert_eq!(waiter.owner(), *owner);
        assert_eq!(ttl, if let Want::Lock { ttl, .. } = waiter.want { Some(ttl) } else { None });
        self.enters(place, waiter.clone(), ms, request);
    }

    /// The turns that came before what is stored now.
    fn told_of_turns(&mut self) {
        for (id, answer) in self.node.take_answers(usize::MAX) {
            if answer == Answer::Turn(1) {
                self.is_told(id, answer);
            } else {
                self.outbox.push((id, answer));
            }
        }
    }
}
