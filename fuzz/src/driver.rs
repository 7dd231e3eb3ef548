//! Performs the engine's steps in memory, and checks that each step is possible and each promise allowed.

use std::collections::BTreeSet;

use palisade_core::engine::{By, Event, Finding, Question, Reply, Request, Run, Step};
use palisade_core::record::{encode_change, encode_end};
use palisade_core::request::{Acquire, Wait};
use palisade_core::{Answer, Grant, GrantId, Lock, Mode, Refusal, WaiterId, Want, Wanted};

use crate::oracle::{Place, grant_of};
use crate::record::HERE;
use crate::world::{World, key_of, name_of};

/// The most steps that a request may take: two for each waiter that is served at a time, one for each grant that ends,
/// and a few more.
const STEPS_MAX: usize = 300;

/// The result of a request.
#[derive(Debug)]
pub struct Performed {
    pub answer: Result<Reply, Refusal>,
    /// The event that ended the lock, if it ended.
    pub ended: Option<Event>,
    pub deleted: bool,
    /// True if the lock was granted to the owner that sent the request.
    pub acquired: bool,
    /// The number of waiters to which the lock was handed over.
    pub handed_over: usize,
    /// The number of changes of grants that still held the lock after the change.
    pub changes: usize,
    /// The number of grants that ended while others kept holding the lock.
    pub left: usize,
    /// True if a waiter was served or refused, or may have been. Then the effect of the command itself cannot be
    /// recognised.
    pub passed: bool,
}

/// The answers that the engine has received to its questions in one request.
#[derive(Default)]
struct Found {
    permitted: BTreeSet<WaiterId>,
    may_grant: bool,
    asked_disk: usize,
    /// The owners whose turn has come in this request.
    told: BTreeSet<Vec<u8>>,
}

impl World {
    /// Performs `request` for the key at `place`, step by step, until it is done. Checks each step.
    pub fn perform(&mut self, place: Place, request: &Request<'_>) -> Performed {
        let name = name_of(place);
        let mut turns = self.node.counters().turns;
        let others_wait = self.waits_in_time(place);
        let shared = self.node.share_name(key_of(place, &name));
        let mut run = Run::new(key_of(place, shared.as_deref().unwrap_or(&name)), request);
        let mut done = Performed {
            answer: Ok(Reply::Null),
            ended: None,
            deleted: false,
            acquired: false,
            handed_over: 0,
            changes: 0,
            left: 0,
            passed: false,
        };
        let (mut found, mut said, mut blocked) = (Found::default(), Finding::Yes, None);
        for _ in 0..STEPS_MAX {
            let answered = run.final_answer().copied();
            let now = self.now();
            let step = run.next(self.locks.get_mut(&place), said, &mut self.node, now);
            crate::tell(&step);
            assert!(answered.is_none_or(|answer| step == Step::Done(answer)), "it was over, and then {step:?}");
            assert!(
                blocked.is_none() || matches!(step, Step::Done(_) | Step::AnswerWatchers),
                "who waits has nothing done for it"
            );
            said = Finding::Yes;
            // If a turn came before the command was decided, it was noted earlier.
            if self.node.counters().turns > turns {
                turns = self.node.counters().turns;
                self.note_turns(&mut found);
                done.passed = true;
            }
            match step {
                Step::Store(event) => {
                    self.is_stored(place, run.take_granted());
                    self.is_granted(place, None, event, request, &mut done, &found);
                }
                Step::Replace => {
                    assert!(
                        done.ended.is_none() && self.locks.get(&place).is_some_and(|lock| lock.is_expired(self.boot))
                    );
                    self.oracle.ended(place);
                    self.is_stored(place, run.take_granted());
                    self.is_granted(place, None, Event::Acquired, request, &mut done, &found);
                }
                Step::Changed(Some(event @ (Event::Acquired | Event::HandedOver)), id) => {
                    self.is_granted(place, Some(id), event, request, &mut done, &found);
                }
                Step::Changed(event, id) => {
                    self.is_changed(place, event, id, request, &done);
                    done.changes += 1;
                }
                Step::Left(event) => {
                    self.has_left_others(place, event, &run.take_ended().expect("a grant that left"), request);
                    done.left += 1;
                }
                Step::Publish(event) => {
                    self.may_end(place, event, request, &done);
                    self.ended_by(place, event);
                    done.ended = Some(event);
                    done.passed = true;
                }
                Step::Delete(event) => {
                    assert!(
                        !done.deleted && !done.acquired && done.handed_over == 0,
                        "it was deleted, or is somebody's"
                    );
                    assert_eq!(event.is_none(), done.ended.is_some(), "that it ended is told once");
                    if let Some(event) = event {
                        self.may_end(place, event, request, &done);
                        self.ended_by(place, event);
                        assert!(!self.waits_in_time(place), "somebody waits, and is not asked for");
                        done.ended = Some(event);
                    }
                    assert!(self.take(place).is_some(), "only what is there is deleted");

                    done.deleted = true;
                }
                Step::Ask(question) => {
                    said = self.says(place, question, request, &mut found);
                    done.passed |= !matches!(question, Question::OnDisk | Question::MayRenew(_) | Question::WhoAsks);
                }
                Step::AnswerWatchers => self.notify_watchers(place),
                Step::ReadSlots | Step::Redirect => panic!("{step:?}: there is no cluster"),
                Step::Block if !self.may_block && matches!(request, Request::Acquire(_)) => said = Finding::No,
                Step::Block => {
                    let id = self.new_client();
                    blocked = Some(id);
                    said = Finding::Blocked(id);
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
                        self.begin_wait(place, id, request);
                    } else {
                        assert_ne!(answer, Ok(Reply::Later), "nobody answers it");
                    }
                    if answer.is_err() {
                        assert!(!done.acquired, "a refused command changes nothing");
                    }
                    let held = self.locks.contains_key(&place);
                    assert!(
                        done.ended.is_none() || !held || done.acquired || done.handed_over > 0,
                        "what ended is still there"
                    );
                    if matches!(request, Request::Acquire(_) | Request::Look) {
                        assert!(done.passed || !others_wait, "nobody looked at those who wait");
                    }
                    self.is_known_to_replicas(place);
                    done.answer = answer;
                    return done;
                }
            }
        }
        panic!("{request:?} is never done");
    }

    /// Answers a question of the engine, as the server and the disk of this world do.
    fn says(&mut self, place: Place, question: Question, request: &Request<'_>, found: &mut Found) -> Finding {
        match question {
            Question::IsServedHere => panic!("there is no cluster"),
            Question::IsPermitted(id) => {
                let waits = self.waits.get(&id.0).expect("who is asked about waits");
                assert!(
                    self.is_free_for(place, &waits.owner, waits.wanted, request),
                    "nobody is next while it is held"
                );
                assert!(waits.place == place && !self.forbidden.contains(&id), "{id:?}");
                if self.doubt() == 3 {
                    self.forbidden.insert(id);
                    return Finding::Refused(Refusal::Forbidden);
                }
                found.permitted.insert(id);
                Finding::Yes
            }
            Question::MayGrant(by) => {
                let itself = matches!(request, Request::Expire(_) | Request::Look);
                assert_eq!(by, if itself { By::Itself } else { By::Command });
                assert!(
                    self.node.waiting().len_of(key_of(place, &name_of(place))) > 0,
                    "nobody is there to be granted it"
                );
                let refusal = match self.doubt() {
                    1 => Refusal::NotYet,
                    3 => Refusal::Poisoned,
                    _ => {
                        found.may_grant = true;
                        return Finding::Yes;
                    }
                };
                found.may_grant = false;
                if refusal == Refusal::Poisoned {
                    // The server will never let the node grant again. So every waiter is answered, and even an owner
                    // with a reservation cannot get the lock.
                    self.was_poisoned = true;
                    self.oracle.nobody_is_told(place);
                }
                self.is_hindered_for_disk();
                Finding::Refused(refusal)
            }
            Question::MayRenew(client) => {
                assert!(matches!(request, Request::Renew(_)) && self.is_held(place), "nothing is to be prolonged");
                let doubt = self.doubt();
                self.keeping.may_renew(place, client, doubt)
            }
            Question::WhoAsks => Finding::Yes,
            Question::OnDisk => {
                found.asked_disk += 1;
                assert!(found.asked_disk <= 2, "by who was before, and by the command");
                self.check_disk();
                Finding::Yes
            }
        }
    }

    fn is_free_for(&self, place: Place, owner: &[u8], wanted: Wanted, request: &Request<'_>) -> bool {
        // This step may have released or broken the grant, or its lease may have ended.
        let may_have_ended = matches!(request, Request::Release(_) | Request::Break(_));
        may_have_ended || self.oracle.admits(place, owner, wanted, self.boot)
    }

    /// Checks that `event` may end the lock of the key in this request.
    fn may_end(&self, place: Place, event: Event, request: &Request<'_>, done: &Performed) {
        assert!(done.ended.is_none() && !done.acquired && done.handed_over + done.changes == 0, "{event:?}: {done:?}");
        let lock = self.locks.get(&place).expect("only what is there ends");
        match (event, request) {
            (Event::Expired, _) => assert!(lock.is_expired(self.boot), "{lock:?} is held"),
            (Event::Released, Request::Release(ask)) => {
                assert!(lock.len() == 1 && self.is_held_by(place, ask.owner.bytes()));
                assert!(ask.token.is_none_or(|token| token == lock.first().token()));
            }
            (Event::Broken, Request::Break(None)) => assert!(self.is_held(place)),
            (Event::Broken, Request::Break(Some(token))) => {
                assert!(lock.len() == 1 && lock.first().token() == *token);
            }
            _ => panic!("{request:?} ends nothing by {event:?}"),
        }
    }

    /// Tells the oracle that the lock ended by this event.
    fn ended_by(&mut self, place: Place, event: Event) {
        if matches!(event, Event::Released | Event::Broken) {
            self.oracle.all_gave_up(place);
        }
        self.oracle.ended(place);
    }

    fn has_left_others(&mut self, place: Place, event: Event, ended: &Grant, request: &Request<'_>) {
        match (event, request) {
            (Event::Expired, _) => assert!(ended.is_expired(self.boot), "{ended:?} holds"),
            (Event::Released, Request::Release(ask)) => {
                assert!(ended.is_of(ask.owner) && ask.token.is_none_or(|token| token == ended.token()));
            }
            (Event::Broken, Request::Break(Some(token))) => assert_eq!(ended.token(), *token),
            _ => panic!("{request:?} ends no grant by {event:?}"),
        }
        assert!(self.locks.get(&place).is_some_and(|lock| grant_of(lock, ended.owner()).is_none()));
        if event == Event::Expired {
            self.oracle.ran_out(place, ended.owner());
        } else {
            self.oracle.left(place, ended.owner());
            self.oracle.gave_up(place, ended.owner());
        }
        self.replica_news(place, |_, record, now| encode_end(ended, now, HERE, record));
    }

    /// Checks a change that an owner made to its grant in place.
    fn is_changed(&mut self, place: Place, event: Option<Event>, id: GrantId, request: &Request<'_>, done: &Performed) {
        let lock = self.locks.get(&place).expect("only what is there is changed");
        let (mode, grant) = (lock.mode(id), lock.grant(id).clone());
        // The same step may have ended the lock and granted it to the owner whose grant changes now.
        let is_held = done.ended.is_none() || done.handed_over > 0;
        assert!(is_held && !grant.is_expired(self.boot), "only what is held is changed");
        let lowers = matches!((event, request), (None, Request::Release(_)));
        match event {
            Some(Event::Converted) => {
                let guarded = self.node.guard().armed(self.boot).is_some();
                self.oracle.converted(place, (mode, &grant), self.boot, guarded);
                self.is_below_ceilings(place, &grant);
            }
            Some(Event::Noted) => self.oracle.noted(place, (mode, &grant)),
            None | Some(Event::Extended) => self.oracle.changed(place, (mode, &grant)),
            event => panic!("nothing is changed by {event:?}"),
        }
        if !lowers {
            self.may_promise(place);
        }
        self.replica_news(place, |lock, record, now| encode_change(lock, id, now, HERE, record));
    }

    /// Checks a grant: the lock was stored, or the grant `id` joined it. No other owner may hold the lock in an
    /// incompatible mode, and it must be the owner's turn. Before a hand-over, the engine must have asked whether the
    /// node may grant.
    fn is_granted(
        &mut self,
        place: Place,
        id: Option<GrantId>,
        event: Event,
        request: &Request<'_>,
        done: &mut Performed,
        found: &Found,
    ) {
        let lock = &self.locks[&place];
        let id = id.unwrap_or(lock.first_id());
        let (mode, grant) = (lock.mode(id), lock.grant(id).clone());
        assert!(!done.acquired, "{event:?} after {done:?}");
        self.may_promise(place);
        match event {
            Event::HandedOver => {
                assert!(found.may_grant, "nobody asked whether it may be granted");
                let is_owners = |id: &WaiterId| self.waits.get(&id.0).is_some_and(|waits| grant.owner() == waits.owner);
                assert!(found.permitted.iter().any(is_owners), "nobody asked whether its user may have it");
                let told = self.has_turn(place, mode, grant.owner(), found);
                assert!(told || self.is_next(place, grant.owner()), "{grant:?} passed those who came before");
                done.passed = true;
                done.handed_over += 1;
            }
            Event::Acquired => {
                let Request::Acquire(ask) = request else { panic!("{request:?} acquires nothing") };
                assert!(grant.is_of(ask.owner) && ask.wanted.is(mode));
                let told = self.has_turn(place, mode, grant.owner(), found);
                assert!(told || !self.waits_in_time(place), "{request:?} passed those who wait");
                done.acquired = true;
            }
            _ => panic!("nothing is granted by {event:?}"),
        }
        self.keeping.ended(place, grant.owner());
        let guarded = self.node.guard().armed(self.boot).is_some();
        self.oracle.granted(place, (mode, &grant), self.boot, guarded);
        self.is_below_ceilings(place, &grant);
        self.replica_news(place, |lock, record, now| encode_change(lock, id, now, HERE, record));
    }

    /// Returns true if the lock is reserved for `owner` in `mode`, or if the turn of `owner` has come in this request.
    fn has_turn(&self, place: Place, mode: Mode, owner: &[u8], found: &Found) -> bool {
        self.oracle.kept_for(place, owner, self.boot) == Some(mode) || found.told.contains(owner)
    }

    fn is_below_ceilings(&self, place: Place, grant: &Grant) {
        let (name, token) = (name_of(place), grant.token().get());
        assert!(token <= self.node.tokens().ceiling_of(&name), "above what the node has heard of the disk");
        if let Some(disk) = self.disk.as_ref() {
            assert!(token <= disk.ceiling_of(&name), "above what the disk has");
        }
    }

    fn is_stored(&mut self, place: Place, lock: Option<Box<Lock>>) {
        let lock = *lock.expect("there is something to store");
        assert_eq!(lock.len(), 1, "it is granted to one");
        // The new lock takes the place of the present one, and takes over its entry in the deadlines.
        match self.locks.get_mut(&place) {
            Some(held) => drop(held.replace(lock)),
            None => drop(self.locks.insert(place, lock)),
        }
    }

    /// Checks that a later incarnation would know all that the node promises here.
    fn may_promise(&self, place: Place) {
        if let Some(disk) = self.disk.as_ref() {
            assert!(disk.is_up_to_it(), "{place:?} is promised before the disk knows");
            assert!(disk.is_of(self.node.ledger().incarnation()));
        }
    }

    /// Checks that the request is in the queue, for the time that it asked for, and notes it.
    fn begin_wait(&mut self, place: Place, id: WaiterId, request: &Request<'_>) {
        let waiting = &self.node.waiting();
        let waiter = waiting.of(key_of(place, &name_of(place))).find(|waiter| waiter.id == id).expect("it waits");
        let (owner, wanted, ms, ttl) = match request {
            Request::Acquire(Acquire { owner, ttl, wanted, patience, .. }) => {
                (owner, *wanted, patience.ms(), Some(*ttl))
            }
            Request::Wait(Wait { owner, wanted, patience, .. }) => (owner, *wanted, patience.ms(), None),
            _ => panic!("{request:?} does not wait"),
        };
        assert_eq!((waiter.owner(), waiter.wanted), (*owner, wanted));
        assert_eq!(ttl, if let Want::Lock { ttl, .. } = waiter.want { Some(ttl) } else { None });
        self.enter(place, waiter.clone(), ms, request);
    }

    /// Takes the node's answers so far in this request. Notes the turns; the other answers go to the outbox.
    fn note_turns(&mut self, found: &mut Found) {
        for (id, answer) in self.node.take_answers(usize::MAX) {
            if matches!(answer, Answer::Turn(_)) {
                found.told.insert(self.waits[&id.0].owner.clone());
                self.is_told(id, answer);
            } else {
                self.outbox.push((id, answer));
            }
        }
    }
}
