//! The queue of one key: the waiting requests in order, and the reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::history::log::FailedWait;
use crate::lock::modes::Modes;
use crate::queue::kept::Reservations;
use crate::queue::shares::{Load, Loads, UserId};
use crate::request::{Behind, Note, Owner, Ttl};
use crate::values::limits::ANSWERS_A_PASS_MAX;
use crate::values::mode::{Mode, Wanted};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The id of a waiting request, by which its client is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

impl WaiterId {
    /// The bit in the id of a request whose answer goes to a listener. Ids of blocked clients have no such bit.
    const HEARD: u64 = 1 << 63;

    /// Creates an id from `number`, which is unique among the requests whose answers go to listeners.
    pub(crate) fn of_listener(number: u64) -> Self {
        Self(Self::HEARD | number)
    }

    /// Returns whether the answer goes to a listener, and not to a blocked client.
    pub fn is_heard(self) -> bool {
        self.0 & Self::HEARD != 0
    }
}

/// The object of a waiting request: the lock itself, or a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// An `ACQUIRE … WAIT`, which asks for the lock.
    Lock {
        /// The length of the lease, from the grant on.
        ttl: Ttl,
        /// The token that a quorum client proposes.
        fence: Option<Token>,
        /// True if the owner may be repeating a request (RETRY).
        retry: bool,
    },
    /// A LOCK.WAIT, which asks for a turn: the answer that the lock is free, and a short reservation.
    Turn,
}

/// A waiting request, as its queue stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The id of the client to answer.
    pub id: WaiterId,
    /// The object of the request: the lock itself, or a turn.
    pub want: Want,
    /// The mode that the request asks for.
    pub wanted: Wanted,
    /// The time at which the wait began.
    pub since: BootTime,
    /// The time at which the wait ends at the latest.
    pub until: BootTime,
    /// True if the request waits only for the disk and not for other requests. It is answered as soon as the node knows
    /// who holds the lock.
    pub at_once: bool,
    /// The number of callers that wait behind the request in its client. All requests of one owner have the same
    /// number.
    pub behind: Behind,
    /// True if the request need not wait for those before it, because its owner held the lock together with others when
    /// it arrived.
    pub(crate) is_of_holder: bool,
    /// The user in whose share the request's place and bytes count.
    pub(crate) user: UserId,
    owner: Box<[u8]>,
    /// The note; requests of one owner with equal notes share it.
    note: Arc<[u8]>,
}

impl Waiter {
    /// Creates a request of `owner` for the exclusive lock, made at `since`, which waits for `ms` milliseconds.
    pub fn new(id: WaiterId, owner: Owner<'_>, note: Note<'_>, want: Want, since: BootTime, ms: u32) -> Self {
        let (until, owner, note) = (since.plus_ms(ms), owner.bytes().into(), Arc::<[u8]>::from(note.bytes()));
        let (wanted, behind) = (Wanted::Exclusive, Behind::default());
        let user = UserId::default();
        Self { id, want, wanted, since, until, at_once: false, behind, is_of_holder: false, user, owner, note }
    }

    /// Returns the load of the request in the queue of `name`: the place and bytes that it takes. A request with a
    /// listener takes bytes only, because the listener counts its place.
    pub(crate) fn load(&self, name: &[u8]) -> Load {
        let load = Load::of_entry(!self.id.is_heard(), &[name, &self.owner]);
        let blocked = if self.id.is_heard() { Load::NONE } else { Load::of_blocked(name) };
        load.plus(self.load_of_note()).plus(blocked)
    }

    fn load_of_note(&self) -> Load {
        Load { places: 0, bytes: self.note.len() as u64 }
    }

    /// Returns what the log needs to know if the wait fails.
    pub(crate) fn failed_wait(&self) -> FailedWait<'_> {
        let Self { owner, note, wanted, since, until, .. } = self;
        FailedWait { owner, note, wanted: *wanted, since: *since, until: *until }
    }

    fn asks_for_lock_in(&self, mode: Mode) -> bool {
        self.want != Want::Turn && self.wanted.is(mode)
    }

    /// Returns the owner for which the request waits.
    pub fn owner(&self) -> Owner<'_> {
        Owner::new(&self.owner).expect("an owner when it came")
    }

    /// Returns the note for people.
    pub fn note(&self) -> Note<'_> {
        Note::new(&self.note).expect("a note when it came")
    }
}

/// The place of a request in its queue: lower places are served earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    ticket: u64,
    /// A number that grows with each arrival. It orders requests with the same ticket.
    arrival: u64,
    /// The arrival number of a further request of an owner. The request has the place of the owner's first one.
    repeat: u64,
}

impl Place {
    /// Returns the number with which the request itself arrived, even if the request has the place of an earlier one.
    pub(crate) fn arrived(self) -> u64 {
        self.arrival.max(self.repeat)
    }
}

/// The result of a search for a request whose owner holds the lock.
pub(crate) enum Search<T> {
    /// There is one.
    Found(T),
    /// There is none.
    Nobody,
    /// There may be one: this step has looked at enough requests.
    Unfinished,
}

/// The queue of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiters: BTreeMap<Place, Waiter>,
    /// The owner of each request with the request's place, sorted by owner.
    owners: BTreeSet<(Box<[u8]>, Place)>,
    /// The place of each request, sorted by arrival.
    arrivals: BTreeMap<u64, Place>,
    /// The places of requests that wait only for the disk. They are answered as soon as the node knows who holds the
    /// lock.
    at_once: BTreeSet<Place>,
    /// The places of ACQUIREs whose owner has the turn in their mode. They need not wait for those before them.
    of_turns: BTreeSet<Place>,
    /// The places of requests whose owner held the joint lock when they arrived, unless it was found since that it no
    /// longer does. They need not wait for those before them.
    of_holders: BTreeSet<Place>,
    /// The number of callers that wait in their clients behind these requests. An owner with several requests counts
    /// once.
    behind: u64,
    /// The reservations of owners whose turn it is.
    pub(crate) kept: Reservations,
    /// The number of turns in a row that were not used, while others waited.
    unused_turns: u32,
    /// The time until which the hand-over is postponed. Only requests that can wait until then stay in the queue; the
    /// others are refused.
    pub(crate) postpone: BootTime,
    /// The place from which to continue to refuse requests that cannot wait until `postpone`; `None` if all were
    /// refused.
    pub(crate) not_told: Option<Place>,
    /// The last period in which the disk kept the node from handing over this lock, as numbered in [`super::waiting::Waiting`].
    pub(super) disk_wait: u64,
}

impl Queue {
    /// Adds a request at the place of its ticket: behind requests with the same or a smaller ticket, or at the end
    /// without one. If its owner has a request of the same kind already, the new one comes right behind it. So a client
    /// that connects again keeps its place. `loads` gets the changes of the owner's earlier requests; the caller counts
    /// the new one.
    pub(crate) fn join(&mut self, waiter: Waiter, ticket: Option<u64>, arrival: u64, loads: &mut Loads) -> Place {
        let is_alike = |place: &Place| self.waiters[place].wanted.is_like(waiter.wanted);
        let place = match (ticket, self.places_of(waiter.owner().bytes()).find(is_alike)) {
            (Some(ticket), _) => Place { ticket, arrival, repeat: 0 },
            (None, Some(first)) => Place { repeat: arrival, ..first },
            (None, None) => {
                let ticket = self.waiters.last_key_value().map_or(0, |(last, _)| last.ticket);
                Place { ticket, arrival, repeat: 0 }
            }
        };
        self.update_earlier(&waiter, loads);
        self.owners.insert((waiter.owner.clone(), place));
        self.arrivals.insert(place.arrived(), place);
        if waiter.at_once {
            self.at_once.insert(place);
        }
        if waiter.is_of_holder {
            self.of_holders.insert(place);
        }
        if self.kept.mode_of(waiter.owner()).is_some_and(|mode| waiter.asks_for_lock_in(mode)) {
            self.of_turns.insert(place);
        }
        self.waiters.insert(place, waiter);
        place
    }

    /// Copies the note and the number of callers behind a request to earlier requests of its owner, because a client
    /// that waits for long asks again with newer ones. (The note of a request for the lock itself becomes that of the
    /// grant, so it stays.) The note counts for each of them, because they keep it when the newer request has left.
    fn update_earlier(&mut self, waiter: &Waiter, loads: &mut Loads) {
        let earlier: Vec<_> = self.places_of(waiter.owner().bytes()).collect();
        for (n, place) in earlier.into_iter().enumerate() {
            let Some(before) = self.waiters.get_mut(&place) else { continue };
            if n == 0 {
                self.behind -= u64::from(before.behind.get());
            }
            before.behind = waiter.behind;
            if before.want == Want::Turn && waiter.want == Want::Turn {
                loads.remove(before.user, before.load_of_note());
                before.note = Arc::clone(&waiter.note);
                loads.add(before.user, before.load_of_note());
            }
        }
        self.behind += u64::from(waiter.behind.get());
    }

    /// Returns the number of callers that wait in their clients behind these requests. An owner with several requests
    /// counts once.
    pub(crate) fn behind(&self) -> u64 {
        self.behind
    }

    /// Removes and returns the request at `place`.
    pub(crate) fn leave(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.waiters.remove(&place)?;
        self.owners.remove(&(waiter.owner.clone(), place));
        self.arrivals.remove(&place.arrived());
        self.at_once.remove(&place);
        self.of_turns.remove(&place);
        self.of_holders.remove(&place);
        if self.places_of(waiter.owner().bytes()).next().is_none() {
            self.behind -= u64::from(waiter.behind.get());
        }
        if self.waiters.is_empty() {
            self.unused_turns = 0;
        }
        Some(waiter)
    }

    /// Returns the longest lease that `owner` asks for in `mode`. If `repeated`, only requests that may be repetitions
    /// count.
    pub(crate) fn longest_ttl(&self, owner: Owner<'_>, mode: Mode, repeated: bool) -> Option<Ttl> {
        let waiters = self.places_of(owner.bytes()).map(|place| &self.waiters[&place]);
        let ttl = |waiter: &Waiter| match waiter.want {
            Want::Lock { ttl, retry, .. } if retry || !repeated => Some(ttl),
            _ => None,
        };
        waiters.filter(|waiter| waiter.wanted.is(mode)).filter_map(ttl).max_by_key(|ttl| ttl.ms())
    }

    /// Searches the requests whose owner held the lock when they arrived for one whose owner still does, by `holds`.
    pub(crate) fn find_holder<T>(&mut self, holds: impl Fn(Owner<'_>) -> Option<T>) -> Search<T> {
        for _ in 0..ANSWERS_A_PASS_MAX {
            let Some(place) = self.of_holders.first() else { return Search::Nobody };
            if let Some(found) = holds(self.waiters[place].owner()) {
                return Search::Found(found);
            }
            self.of_holders.pop_first();
        }
        Search::Unfinished
    }

    /// Removes and returns the requests of `owner` for which `which` returns true.
    pub(crate) fn leave_all_of(&mut self, owner: Owner<'_>, which: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let places: Vec<_> = self.places_of(owner.bytes()).filter(|place| which(&self.waiters[place])).collect();
        places.into_iter().filter_map(|place| self.leave(place)).collect()
    }

    /// Removes and returns the requests at the front of the queue, at most `count`.
    pub(crate) fn leave_first(&mut self, count: usize) -> Vec<Waiter> {
        let places: Vec<_> = self.waiters.keys().take(count).copied().collect();
        places.into_iter().filter_map(|place| self.leave(place)).collect()
    }

    /// Checks `count` requests from the place `from` on, and removes those for which `which` returns true. Returns the
    /// removed ones, and the place from which to continue.
    pub(crate) fn leave_if(
        &mut self,
        from: Place,
        count: usize,
        which: impl Fn(&Waiter) -> bool,
    ) -> (Vec<Waiter>, Option<Place>) {
        let mut rest = self.waiters.range(from..);
        let looked_at: Vec<_> = rest.by_ref().take(count).collect();
        let next = rest.next().map(|(&place, _)| place);
        let places: Vec<_> =
            looked_at.into_iter().filter(|(_, waiter)| which(waiter)).map(|(&place, _)| place).collect();
        (places.into_iter().filter_map(|place| self.leave(place)).collect(), next)
    }

    /// Removes and returns at most `count` requests that wait only for the disk.
    pub(crate) fn leave_at_once(&mut self, count: usize) -> Vec<Waiter> {
        let places: Vec<_> = self.at_once.iter().take(count).copied().collect();
        places.into_iter().filter_map(|place| self.leave(place)).collect()
    }

    /// Returns whether any request waits only for the disk.
    pub(crate) fn has_at_once(&self) -> bool {
        !self.at_once.is_empty()
    }

    /// Reserves the lock for `owner` in `mode` until `until`; the owner has waited since `since`. Its ACQUIREs in that
    /// mode need not wait for other requests any longer.
    pub(crate) fn keep(&mut self, owner: Owner<'_>, mode: Mode, until: BootTime, since: BootTime) {
        self.kept.keep(owner, mode, until, since);
        let own: Vec<_> =
            self.places_of(owner.bytes()).filter(|place| self.waiters[place].asks_for_lock_in(mode)).collect();
        self.of_turns.extend(own);
    }

    /// Ends the reservation of `owner`; returns whether there was one. Its ACQUIREs wait for those before them again.
    pub(crate) fn end_turn(&mut self, owner: &[u8]) -> bool {
        let ended = self.kept.end(owner);
        if ended {
            self.wait_again(owner);
        }
        ended
    }

    /// Ends the first reservation whose end is over at `now`; returns whether there was one.
    pub(crate) fn end_turn_over(&mut self, now: BootTime) -> bool {
        let owner = self.kept.end_one_over(now);
        owner.is_some_and(|owner| {
            self.wait_again(&owner);
            true
        })
    }

    fn wait_again(&mut self, owner: &[u8]) {
        let own: Vec<_> = self.places_of(owner).collect();
        for place in own {
            self.of_turns.remove(&place);
        }
    }

    /// Returns an ACQUIRE whose owner has a reservation in its mode, if there is one.
    pub(crate) fn of_turn(&self, now: BootTime) -> Option<&Waiter> {
        self.of_turns.iter().map(|place| &self.waiters[place]).find(|waiter| {
            now <= waiter.until && self.kept.mode_of(waiter.owner()).is_some_and(|mode| waiter.wanted.is(mode))
        })
    }

    /// Returns the next request: the first in the queue or, after `unused_max` consecutive unused turns, the one that
    /// has waited longest.
    pub(crate) fn first(&self, unused_max: u32) -> Option<&Waiter> {
        if self.unused_turns >= unused_max {
            return self.arrivals.first_key_value().map(|(_, place)| &self.waiters[place]);
        }
        self.waiters.first_key_value().map(|(_, waiter)| waiter)
    }

    /// Returns the ACQUIRE of `owner` in the mode `wanted`, if it has one whose time is not over at `now`.
    pub(crate) fn request_for_lock(&self, owner: Owner<'_>, wanted: Wanted, now: BootTime) -> Option<&Waiter> {
        let mut own = self.places_of(owner.bytes()).map(|place| &self.waiters[&place]);
        own.find(|waiter| waiter.want != Want::Turn && waiter.wanted == wanted && now <= waiter.until)
    }

    /// Returns the number of requests of `owner` in the queue. Counts no further than `enough`.
    pub(crate) fn count_of(&self, owner: Owner<'_>, enough: usize) -> usize {
        self.places_of(owner.bytes()).take(enough).count()
    }

    /// Iterates over all requests, in the order of service.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values()
    }

    /// Returns the number of requests.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns whether the queue has neither requests nor reservations.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.kept.is_empty()
    }

    /// Returns whether the owner of the request at `place` is the first in the queue.
    pub(crate) fn is_owner_first(&self, place: Place) -> bool {
        self.waiters.first_key_value().is_some_and(|(_, first)| first.owner == self.waiters[&place].owner)
    }

    /// Counts a turn that ended without an acquisition, if requests are waiting.
    pub(crate) fn turn_was_not_used(&mut self) {
        if !self.waiters.is_empty() {
            self.unused_turns = self.unused_turns.saturating_add(1);
        }
    }

    /// Notes that the lock was acquired, so that the count of unused turns starts again.
    pub(crate) fn was_acquired(&mut self) {
        self.unused_turns = 0;
    }

    /// Returns the mode in which `owner` may have the lock if it asks for the mode `wanted`. It is compatible with
    /// `held`, the modes of the holders. `None` if others come before it.
    pub(crate) fn claim(&self, owner: Owner<'_>, wanted: Wanted, held: &Modes) -> Option<Mode> {
        match self.kept.mode_of(owner) {
            Some(mode) if wanted.is(mode) => held.admits(mode).then_some(mode),
            _ if !self.waiters.is_empty() => None,
            _ => self.kept.admitted(owner, wanted, held),
        }
    }

    fn places_of(&self, owner: &[u8]) -> impl Iterator<Item = Place> {
        let name: Box<[u8]> = owner.into();
        self.owners
            .range((name.clone(), Place::default())..)
            .take_while(move |(of, _)| *of == name)
            .map(|&(_, place)| place)
    }
}

#[cfg(test)]
mod tests;
