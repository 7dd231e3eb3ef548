//! Clients with waiting requests: what they wait for, and their answers.

use palisade_core::engine::Request;
use palisade_core::limits::{DISK_WAIT_MS, UNUSED_TURNS_MAX};
use palisade_core::request::Ticket;
use palisade_core::{Answer, Deadlines, Lock, Mode, Refusal, Waiter, WaiterId, Want, Wanted};

use crate::clients::{Stands, Waits};
use crate::oracle::{Place, grant_of};
use crate::world::{World, key_of, name_of};

/// The number of answers that are sent at a time: so few that some are often left for the next time.
const ANSWERS_A_PASS: usize = 2;

impl World {
    pub fn new_client(&mut self) -> WaiterId {
        self.clients += 1;
        WaiterId(self.clients)
    }

    /// Notes that the request waits as `waiter`, for up to `ms` milliseconds.
    pub fn enter(&mut self, place: Place, waiter: Waiter, ms: u32, request: &Request<'_>) {
        let ttl_ms = match waiter.want {
            Want::Lock { ttl, .. } => Some(ttl.ms()),
            Want::Turn => None,
        };
        let (owner, since, until) = (waiter.owner().bytes().to_vec(), waiter.since, waiter.until);
        let (at_once, wanted) = (waiter.at_once, waiter.wanted);
        let stands = self.stands(place, &waiter, request);
        if at_once {
            let Request::Acquire(ask) = request else { panic!("{request:?} waits for the disk alone") };
            assert!(self.may_block && ask.fence.is_none());
            self.is_hindered_for_disk();
        } else {
            assert!(ms > 0);
        }
        assert_eq!((since, until), (self.boot, self.boot.plus_ms(if at_once { DISK_WAIT_MS } else { ms })));
        let is_first = self.line(place).all(|(_, other)| stands < other.stands);
        let may_have_it = is_first && self.oracle.admits(place, &owner, wanted, self.boot);
        if at_once || !self.is_held(place) || self.is_held_by(place, &owner) || may_have_it {
            let due = self.node.next_due();
            assert!(due.is_some_and(|due| due <= self.boot.max(self.hindered)), "nobody looks after {owner:?}");
        }
        let waits = Waits { place, owner, wanted, stands, ttl_ms, since, until, at_once, taken_back: false };
        self.waits.insert(waiter.id.0, waits);
    }

    /// Iterates over the requests in the queue that have no answer yet, each with its number of arrival.
    fn line(&self, place: Place) -> impl Iterator<Item = (u64, &Waits)> {
        let name = name_of(place);
        let ids: Vec<u64> = self.node.waiting().of(key_of(place, &name)).map(|waiter| waiter.id.0).collect();
        ids.into_iter().filter_map(|id| Some((id, self.waits.get(&id)?)))
    }

    /// Returns the position in the queue of `waiter`, whose request has just arrived.
    fn stands(&self, place: Place, waiter: &Waiter, request: &Request<'_>) -> Stands {
        let (id, ticket) = (waiter.id.0, if let Request::Wait(ask) = request { ask.ticket } else { None });
        let is_own =
            |waits: &Waits| waits.owner == *waiter.owner().bytes() && waits.wanted.word() == waiter.wanted.word();
        let own = self.line(place).filter(|(_, waits)| is_own(waits));
        match (ticket.map(Ticket::get), own.map(|(_, waits)| waits.stands).min()) {
            (Some(ticket), _) => (ticket, id, 0),
            (None, Some((ticket, arrival, _))) => (ticket, arrival, id),
            (None, None) => (self.line(place).map(|(_, waits)| waits.stands.0).max().unwrap_or(0), id, 0),
        }
    }

    /// Returns true if no other request comes before that of `owner`, which was just answered. The smaller ticket comes
    /// first. After [`UNUSED_TURNS_MAX`] turns that nobody used, the earlier request may come first instead.
    pub fn is_next(&self, place: Place, owner: &[u8]) -> bool {
        let own = || self.waits.iter().filter(|(_, waits)| waits.place == place && waits.owner == owner);
        let others = || self.line(place).filter(|(_, waits)| waits.owner != owner && self.boot <= waits.until);
        let first = own().map(|(_, waits)| waits.stands).min();
        let by_ticket = others().all(|(_, other)| first < Some(other.stands));
        let longest = own().map(|(id, _)| *id).min();
        let by_arrival = || others().all(|(id, _)| longest < Some(id));
        by_ticket || self.oracle.unused_turns(place, self.boot) >= UNUSED_TURNS_MAX && by_arrival()
    }

    /// Checks that the first request in each queue cannot get the lock, because of a holder or a reservation.
    pub fn nobody_waits_for_what_is_free(&self) {
        if self.is_hindered() {
            return;
        }
        let places: std::collections::BTreeSet<Place> = self.waits.values().map(|waits| waits.place).collect();
        for place in places {
            if self.oracle.unused_turns(place, self.boot) >= UNUSED_TURNS_MAX || self.has_just_ended(place) {
                continue;
            }
            let Some((_, first)) = self.line(place).min_by_key(|(_, waits)| waits.stands) else { continue };
            // A client may have moved a lock to the key that the first waiting owner itself holds. If it waits to
            // write, it is answered when the queue is next looked at.
            let waits_for_itself = first.wanted != Wanted::Exclusive && self.is_held_by(place, &first.owner);
            assert!(!waits_for_itself, "{:?} waits for {place:?}, which it holds", first.owner);
            let had_turn = first.ttl_ms.is_none() && self.oracle.kept_for(place, &first.owner, self.boot).is_some();
            let may_have_it = self.oracle.admits(place, &first.owner, first.wanted, self.boot);
            assert!(had_turn || !may_have_it, "{:?} waits for {place:?}, which is free for it", first.owner);
        }
    }

    /// Returns true if a lease of the present lock ended so recently that the timer may not have handled it yet.
    fn has_just_ended(&self, place: Place) -> bool {
        let end = self.locks.get(&place).map(Lock::next_end).filter(|end| self.boot > *end);
        end.is_some_and(|end| self.boot.us_since(end) <= Deadlines::LATE_US)
    }

    pub fn leave(&mut self, which: u8) {
        let Some(&id) = self.waits.keys().nth(usize::from(which) % self.waits.len().max(1)) else { return };
        self.waits.remove(&id);
        self.keeping.stop_waiting(WaiterId(id));
        assert!(self.node.leave_queue(WaiterId(id), self.boot).is_some());
        assert!(self.node.leave_queue(WaiterId(id), self.boot).is_none());
    }

    pub fn take_back(&mut self, place: Place, owner: &[u8]) {
        self.oracle.took_back(place, owner);
        let own = self.waits.values_mut().filter(|waits| waits.place == place && waits.owner == owner);
        own.for_each(|waits| waits.taken_back = true);
    }

    pub fn tell(&mut self, place: Place, owner: &[u8], mode: Mode) {
        let until = self.boot.plus_ms(self.node.waiting().handoff_window_ms);
        self.oracle.told(place, owner, mode, (self.boot, until));
    }

    /// Sends the answers that are ready. Checks that each request gets one, and the right one.
    pub fn deliver(&mut self) {
        for (id, answer) in std::mem::take(&mut self.outbox) {
            self.is_told(id, answer);
        }
        while self.node.waiting().has_answers() {
            let answers = self.node.take_answers(ANSWERS_A_PASS);
            assert!(answers.len() <= ANSWERS_A_PASS);
            answers.into_iter().for_each(|(id, answer)| self.is_told(id, answer));
        }
    }

    pub fn is_told(&mut self, id: WaiterId, answer: Answer) {
        let waits = self.waits.remove(&id.0).expect("one answer to a request that waits");
        let wish = self.keeping.stop_waiting(id);
        let was_forbidden = self.forbidden.remove(&id);
        assert_eq!(was_forbidden, answer == Answer::Refused(Refusal::Forbidden), "{answer:?}");
        let Waits { place, owner, wanted, ttl_ms, since, until, at_once, taken_back, .. } = waits;
        match answer {
            Answer::Granted { token, number, waited_ms, granted } => {
                let (mode, grant) = grant_of(&self.locks[&place], &owner).expect("it was granted");
                assert_eq!((grant.token(), mode.number(), grant.granted()), (token, number, granted));
                assert!(wanted.is(mode) && !grant.is_expired(self.boot));
                let waited_ms = u32::try_from(waited_ms).expect("no wait is longer");
                self.check_lasting(
                    place,
                    &owner,
                    since.plus_ms(waited_ms),
                    ttl_ms.expect("who asked for it is granted it"),
                );
                wish.into_iter().for_each(|wish| self.keeps(place, &owner, wish));
            }
            Answer::Turn(number) if !self.is_held_by(place, &owner) => {
                // The time of this request is over. It may be answered like another request of its owner whose time is
                // not over.
                assert!(self.boot <= until || self.oracle.kept_for(place, &owner, self.boot).is_some());
                let mode = wanted.modes().find(|mode| mode.number() == number).expect("one that was wanted");
                self.tell(place, &owner, mode);
            }
            Answer::Turn(_) => {}
            // The request could not get the lock, or others came before it. Those still wait, or got this answer a
            // moment ago.
            Answer::TimedOut(_) if at_once && !taken_back => {
                let may_have_it = self.oracle.admits(place, &owner, wanted, self.boot);
                let told = Some((place, self.boot));
                let was_behind = std::mem::replace(&mut self.told_at_once, told) == told;
                let others = was_behind || self.waits_in_time(place);
                assert!(!may_have_it || others || self.is_hindered(), "{owner:?} was to wait");
            }
            Answer::TimedOut(_) => assert!(self.boot > until || taken_back, "{owner:?} was to wait until {until:?}"),
            Answer::Refused(Refusal::NotYet) => {
                assert!(self.boot > until && ttl_ms.is_some(), "{owner:?} was to wait until {until:?}")
            }
            Answer::Refused(Refusal::Poisoned) => assert!(self.was_poisoned),
            // Nobody can be granted the lock any more, so the reservations have ended too.
            Answer::Refused(Refusal::TokensExhausted) => self.oracle.nobody_is_told(place),
            Answer::Refused(refusal) => assert!(!refusal.to_string().is_empty()),
            Answer::Broken(_) => panic!("there are too few owners for a BREAK in slices"),
        }
    }
}
