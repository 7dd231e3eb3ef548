//! What happens when a lock ends, or its queue is looked at: it passes to the first who waits, and to those behind it as long as they
//! may hold it together; or the key goes.
//!
//! The stages stand in the order in which they come.

use super::step::{By, Event, Question, Said, Step};
use crate::history::ending::Ending;
use crate::history::grant_events::Happened;
use crate::lock::Lock;
use crate::lock::modes::Modes;
use crate::node::Node;
use crate::queue::of_key::{Waiter, WaiterId};
use crate::queue::waiting::Next;
use crate::refusal::Refusal;
use crate::rules::hand_over::{HandedOver, hand_over};
use crate::values::key::Key;
use crate::values::limits::ANSWERS_A_PASS_MAX;
use crate::values::time::Now;

/// A lock on its way to the first who waits for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    by: By,
    stage: Stage,
    /// The lock in the key has ended: if nobody gets it, the key goes.
    has_ended: bool,
    /// So many who waited were served, or found to have lost their permission.
    served: usize,
    /// The server lets the node grant.
    may_grant: bool,
    /// It was asked what is on the disk.
    asked_disk: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The lock in the key ends, by this.
    Ends(Event),
    /// Somebody else may hold it; else it is free.
    Looked,
    /// It is free: the node has to know what it may grant in its slot.
    Free,
    Slot,
    SlotSaid,
    /// It is free for the one whose turn it is, if the user may have it.
    First,
    FirstSaid(WaiterId),
    /// Somebody waits.
    Waits,
    MayGrantSaid,
    /// The rule decides.
    Decides,
    /// The lock is stored for the one who waited.
    Stored,
    /// Somebody was served: perhaps the next can be too.
    Again,
    /// Nobody gets it any more.
    Stays,
    Over,
}

impl Passing {
    /// The lock in the key ends, by `event`.
    pub(super) fn ended(event: Event, by: By) -> Self {
        Self { by, stage: Stage::Ends(event), has_ended: true, served: 0, may_grant: false, asked_disk: false }
    }

    /// Somebody may wait, and the key may be free.
    pub(super) fn look(by: By) -> Self {
        Self { stage: Stage::Looked, has_ended: false, ..Self::ended(Event::Expired, by) }
    }

    /// What is done next; `None`: nothing. `held` is what the key holds, `said` the answer to the step before; a lock that is
    /// granted goes to `granted`.
    #[inline(never)]
    pub(super) fn next(
        &mut self,
        Key { db, name }: Key<'_>,
        mut held: Option<&mut Lock>,
        said: Said,
        granted: &mut Option<Box<Lock>>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        loop {
            match self.stage {
                Stage::Ends(event) => {
                    node.lock_ends(Key { db, name }, held.as_deref(), ending(event), now.boot);
                    if !node.waiting.has_queue(db, name) {
                        return self.then(Stage::Over, Step::Delete(Some(event)));
                    }
                    // Whether the slot is still served here shows only for a key that is not there.
                    let told = if node.slots.is_in_cluster() { Step::Delete(Some(event)) } else { Step::Tell(event) };
                    return self.then(Stage::Free, told);
                }
                Stage::Looked if matches!(held, Some(Lock::Exclusive(_))) => self.stage = Stage::Waits,
                Stage::Looked => self.stage = Stage::Free,
                Stage::Free if node.slots.needs_look(name) => return self.then(Stage::Slot, Step::LookAtSlots),
                Stage::Free => self.stage = Stage::Slot,
                Stage::Slot if node.slots.is_in_cluster() && held.is_none() => {
                    return self.then(Stage::SlotSaid, Step::Ask(Question::IsServedHere));
                }
                Stage::Slot => self.stage = Stage::First,
                Stage::SlotSaid if said == Said::No => return self.then(Stage::Stays, Step::Redirect),
                Stage::SlotSaid => self.stage = Stage::First,
                Stage::First => {
                    let modes = match held.as_deref() {
                        Some(Lock::Joint(holders)) if !self.has_ended => holders.modes(),
                        _ => Modes::free(),
                    };
                    match node.waiting.next(Key { db, name }, modes, now.boot) {
                        Next::Request(Waiter { id, .. }, _) => {
                            return self.then(Stage::FirstSaid(id), Step::Ask(Question::IsPermitted(id)));
                        }
                        Next::Blocked => self.stage = Stage::Waits,
                        Next::Nobody => self.stage = Stage::Stays,
                    }
                }
                Stage::FirstSaid(first) => match said {
                    // Rules of access may have changed since it came.
                    Said::Refused(refusal) => {
                        node.waiting.refuse(first, refusal, now.boot);
                        self.stage = Stage::Again;
                    }
                    _ => self.stage = Stage::Waits,
                },
                Stage::Waits if !self.may_grant && node.waiting.len_of(db, name) > 0 => {
                    return self.then(Stage::MayGrantSaid, Step::Ask(Question::MayGrant(self.by)));
                }
                Stage::Waits => self.stage = Stage::Decides,
                Stage::MayGrantSaid => match said {
                    Said::Refused(refusal) => self.postpone(db, name, refusal, node, now),
                    _ => {
                        self.may_grant = true;
                        self.stage = Stage::Decides;
                    }
                },
                Stage::Decides => {
                    let in_key = if self.has_ended { None } else { held.as_deref_mut() };
                    let somebody_waits = node.waiting.len_of(db, name) > 0;
                    let ready = if somebody_waits { node.ready(now.boot) } else { Ok(()) };
                    match ready.and_then(|()| hand_over(db, name, in_key, node, now)) {
                        Ok(HandedOver::Granted(lock)) => {
                            node.notice(Key { db, name }, &lock, lock.first_id(), Happened::HandedOver, now.boot);
                            *granted = Some(lock);
                            return self.then(Stage::Stored, Step::Store(Event::HandedOver));
                        }
                        Ok(HandedOver::Joined(id)) => {
                            if let Some(lock) = held.as_deref() {
                                node.notice(Key { db, name }, lock, id, Happened::HandedOver, now.boot);
                            }
                            node.schedule_expiry(Key { db, name }, held);
                            return self.then(Stage::Again, Step::Changed(Some(Event::HandedOver), id));
                        }
                        Ok(HandedOver::Prolonged(id)) => {
                            node.schedule_expiry(Key { db, name }, held);
                            return self.then(Stage::Again, Step::Changed(Some(Event::Extended), id));
                        }
                        Ok(HandedOver::Told | HandedOver::Answered) => self.stage = Stage::Again,
                        Ok(HandedOver::Stays) => self.stage = Stage::Stays,
                        Err(Refusal::NotYet) if !self.asked_disk => {
                            self.asked_disk = true;
                            return self.then(Stage::Decides, Step::Ask(Question::OnDisk));
                        }
                        Err(refusal) => {
                            self.postpone(db, name, refusal, node, now);
                            if refusal == Refusal::NotYet && node.wants_write(now) {
                                return Some(Step::Write);
                            }
                        }
                    }
                }
                Stage::Stored => {
                    self.has_ended = false;
                    node.schedule_expiry(Key { db, name }, held.as_deref_mut());
                    self.stage = Stage::Again;
                }
                Stage::Again => {
                    self.served += 1;
                    let is_exclusive = matches!(held, Some(Lock::Exclusive(_))) && !self.has_ended;
                    self.stage = if is_exclusive || !node.waiting.has_queue(db, name) {
                        Stage::Stays
                    } else if self.served == ANSWERS_A_PASS_MAX {
                        node.waiting.wake_at(db, name, now.boot);
                        Stage::Stays
                    } else {
                        Stage::First
                    };
                }
                Stage::Stays if self.has_ended && held.is_some() => return self.then(Stage::Over, Step::Delete(None)),
                Stage::Stays => self.stage = Stage::Over,
                Stage::Over => return None,
            }
        }
    }

    fn then(&mut self, stage: Stage, step: Step) -> Option<Step> {
        self.stage = stage;
        Some(step)
    }

    /// Nobody gets it now.
    fn postpone(&mut self, db: u32, name: &[u8], refusal: Refusal, node: &mut Node, now: Now) {
        node.waiting.postpone(db, name, refusal, now.boot);
        self.stage = Stage::Stays;
    }
}

/// How a grant ends that `event` tells of.
pub(super) fn ending(event: Event) -> Ending {
    match event {
        Event::Released => Ending::Released,
        Event::Broken => Ending::Broken,
        _ => Ending::Expired,
    }
}
