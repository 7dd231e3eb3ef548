//! Leases that the node keeps alive while a connection is open: checks the promise of KEEPALIVE in its simplest form.

use palisade_core::engine::{Reply, Request};
use palisade_core::limits::RENEW_AGAIN_MS;
use palisade_core::request::Owner;
use palisade_core::{BootTime, Grant, Refusal, Renewal, WaiterId};

use crate::clients::{CONNECTIONS, KeptLease, Wish};
use crate::oracle::{Place, grant_of};
use crate::world::{State, World, key_of, name_of};

/// Returns the parts of a grant that a renewal must not change: all except the deadline.
fn lasting(grant: &Grant) -> (&[u8], u64, u32, BootTime, &[u8], u64, [bool; 2]) {
    let note = (grant.note(), grant.note_sequence().get());
    let marks = [grant.is_from_outside(), grant.is_adopted()];
    (grant.owner(), grant.token().get(), grant.holds(), grant.granted(), note.0, note.1, marks)
}

impl World {
    /// Notes that the lease of `owner` has to be kept alive from now on, because the owner receives its grant.
    pub fn keeps(&mut self, place: Place, owner: &[u8], wish: Wish) {
        self.check_kept();
        let now = self.boot;
        let name = name_of(place);
        let (_, grant) = grant_of(&self.locks[&place], owner).expect("it was granted");
        let (granted, at) = (grant.granted(), (place, owner.to_vec()));
        let earlier = self.keeping.kept.get(&at).filter(|kept| granted == kept.granted);
        let until = now.plus_ms(wish.ms).max(earlier.map_or(now, |kept| kept.until));
        let owner = Owner::new(owner).expect("an owner when it came");
        self.node.keepalives_mut().keep(key_of(place, &name), owner, granted, wish.ttl, wish.keep, now);
        let left = self.kept_ms(&at, granted);
        assert_eq!(left, Some(until.ms_since(now)), "of {wish:?}, after {earlier:?}");
        let (client, ttl_ms) = (wish.client, wish.ttl.ms());
        let kept = KeptLease { client, ttl_ms, granted, until, again: now, is_moved: false };
        self.keeping.kept.insert(at, kept);
    }

    /// Returns for how long the node keeps alive the grant of this owner that began at `granted`, in milliseconds; `None`
    /// if it does not.
    fn kept_ms(&self, (place, owner): &(Place, Vec<u8>), granted: BootTime) -> Option<u64> {
        let owner = Owner::new(owner).expect("an owner when it came");
        let lock = self.node.keepalives().of(key_of(*place, &name_of(*place)))?;
        lock.left_ms(owner, granted, self.boot)
    }

    /// Ends a connection, and with it the requests that wait on it.
    pub fn hang_up(&mut self, which: u8) {
        let at = usize::from(which) % CONNECTIONS;
        let client = self.keeping.open_at(at);
        self.keeping.ended[at] += 1;
        let of_client = |(id, wish): (&WaiterId, &Wish)| (wish.client == client).then_some(*id);
        let gone: Vec<WaiterId> = self.keeping.waiting.iter().filter_map(of_client).collect();
        for id in gone {
            self.keeping.waiting.remove(&id);
            assert!(self.waits.remove(&id.0).is_some() && self.node.leave_queue(id, self.boot).is_some());
        }
    }

    /// Performs a due renewal. Checks that it changes only the length of a lease.
    pub fn renew(&mut self, place: Place, renewal: &Renewal) {
        self.keeping.refused = false;
        let mut before = self.state(place);
        let queue = |world: &Self| {
            let waiting = world.node.waiting();
            let ids: Vec<WaiterId> = waiting.of(key_of(place, &name_of(place))).map(|waiter| waiter.id).collect();
            (ids, waiting.has_answers(), world.outbox.len(), world.waits.len(), world.watchers.len())
        };
        let queue_before = queue(self);
        let done = self.perform(place, &Request::Renew(renewal));
        let mut after = self.state(place);
        assert_eq!(queue(self), queue_before, "who waits gets nothing by it, and loses nothing");
        let is_one_effect =
            done.ended.is_none() && !done.deleted && !done.acquired && done.handed_over + done.left == 0;
        assert!(is_one_effect && !done.passed && done.changes <= 1, "{done:?}");
        if done.changes == 1 {
            assert_eq!(done.answer, Ok(Reply::Null));
            self.is_prolonged(place, renewal, &before, &after);
            (before.0, after.0) = (None, None);
            before.4.renewals += 1;
        } else if let Err(refusal) = done.answer {
            self.is_not_prolonged(place, renewal, refusal);
        }
        assert_eq!(after, before, "{done:?} changes nothing else");
    }

    /// Checks that the renewal extended the lease as far as it may, because its connection is open.
    fn is_prolonged(&self, place: Place, renewal: &Renewal, before: &State, after: &State) {
        let grants = |state: &State| -> Vec<_> {
            state.0.iter().flat_map(|lock| lock.grants()).map(|(mode, grant)| (mode, grant.clone())).collect()
        };
        let (before, after) = (grants(before), grants(after));
        assert_eq!(before.len(), after.len());
        let pairs = before.iter().zip(&after);
        for ((mode, before), (still, after)) in pairs.clone() {
            assert_eq!((mode, lasting(before)), (still, lasting(after)));
        }
        let mut longer = pairs.filter(|((_, before), (_, after))| {
            (before.deadline(), before.ttl_ms()) != (after.deadline(), after.ttl_ms())
        });
        let (((_, before), (_, after)), None) = (longer.next().expect("one is prolonged"), longer.next()) else {
            panic!("more than one is prolonged")
        };
        let kept = self.keeping.kept.get(&(place, before.owner().to_vec())).expect("it is kept");
        assert!(kept.client == renewal.client() && self.keeping.is_open(kept.client), "{kept:?}: nobody is there");
        assert_eq!(before.granted(), kept.granted, "{kept:?} is of another grant than {before:?}");
        // The node is sure of a grant if it made the grant after the cause of its guard, or if the cause was a flush
        // that left the grant in place.
        let is_sure = self.node.guard().armed(self.boot).is_none_or(|armed| before.granted() > armed.since);
        assert!(!self.keeping.refused && is_sure && !self.node.is_suspect(before), "{before:?} is not to be promised");
        let left_us = before.deadline().us_since(self.boot);
        assert!(left_us <= u64::from(kept.ttl_ms) * 1_000 * 2 / 3, "{before:?} has most of its lease left");
        let ms = u64::from(kept.ttl_ms).min(kept.until.ms_since(self.boot)) as u32;
        assert!(after.deadline() > before.deadline() && after.deadline() <= kept.until);
        assert_eq!((after.deadline(), after.ttl_ms()), (self.boot.plus_ms(ms), ms));
    }

    /// Checks that the node had a reason not to renew the lease, and will soon try again.
    fn is_not_prolonged(&mut self, place: Place, renewal: &Renewal, refusal: Refusal) {
        let of_client =
            |(at, kept): &(&(Place, Vec<u8>), &mut KeptLease)| at.0 == place && kept.client == renewal.client();
        let lock = &self.locks[&place];
        let is_late = self.disk.as_ref().is_some_and(|disk| !disk.is_up_to_it() || disk.is_taken);
        let is_guarded = self.node.guard().armed(self.boot).is_some();
        let mut is_suspect = false;
        for (at, kept) in self.keeping.kept.iter_mut().filter(of_client) {
            is_suspect |= grant_of(lock, &at.1).is_some_and(|(_, grant)| self.node.is_suspect(grant));
            kept.again = self.boot.plus_ms(RENEW_AGAIN_MS);
        }
        assert!(self.keeping.refused || is_late || is_guarded || is_suspect, "{refusal:?} of {renewal:?}");
    }

    /// Returns true if the node has to keep this lease alive: the grant and the connection are still there, and the
    /// lease ends before the time that the holder asked for.
    fn is_to_be_kept(&self, (place, owner): &(Place, Vec<u8>), kept: &KeptLease) -> bool {
        let Some((_, grant)) = self.locks.get(place).and_then(|lock| grant_of(lock, owner)) else { return false };
        let is_same = !kept.is_moved && !grant.is_expired(self.boot) && grant.granted() == kept.granted;
        is_same && self.keeping.is_open(kept.client) && kept.until.ms_since(grant.deadline()) > 0
    }

    /// Checks that the node keeps alive exactly those leases that it has to.
    pub fn check_kept(&mut self) {
        let mut all = std::mem::take(&mut self.keeping.kept);
        all.retain(|at, kept| {
            let left = self.kept_ms(at, kept.granted);
            assert!(left.is_none_or(|left| left == kept.until.ms_since(self.boot)), "{kept:?}: {left:?}");
            assert!(left.is_some() || !self.is_to_be_kept(at, kept), "{kept:?} was forgotten");
            left.is_some()
        });
        self.keeping.kept = all;
        assert_eq!(self.node.keepalives().len(), self.keeping.kept.len(), "{:?}", self.keeping.kept);
    }

    /// Checks, after all due work, that every lease that is kept alive lasts for another two thirds of its length, or
    /// until the time that its holder asked for. So no lease ends if the node does its background work within that
    /// time.
    pub fn every_kept_lease_lasts(&self) {
        for (at, kept) in &self.keeping.kept {
            if self.boot < kept.again || !self.is_to_be_kept(at, kept) {
                continue;
            }
            let deadline = grant_of(&self.locks[&at.0], &at.1).expect("it is held").1.deadline();
            let lasts = self.boot.plus_us(u64::from(kept.ttl_ms) * 1_000 * 2 / 3);
            assert!(deadline >= lasts, "{at:?}, {kept:?}, ends at {deadline:?}");
        }
    }
}
