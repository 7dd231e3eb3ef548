//! Leases that the node keeps as long as a connection is open: what KEEPALIVE promises, by the plainest reading.

use std::collections::BTreeMap;

use palisade_core::engine::{Reply, Request, Said};
use palisade_core::limits::{KEEPALIVE_MAX_MS, KEEPALIVE_TTL_MIN_MS, NOTE_BYTES_MAX, RENEW_AGAIN_MS};
use palisade_core::request::{Owner, Ttl};
use palisade_core::{BootTime, ClientId, Grant, KeepAlive, Refusal, Renewal, WaiterId};

use crate::node::Done;
use crate::oracle::{Place, grant_of};
use crate::world::{World, key_of, name_of};

/// So many connections are open at a time.
const CONNECTIONS: usize = 4;

/// A request's wish to have its lease kept.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    client: ClientId,
    ttl: Ttl,
    ms: u32,
    keep: KeepAlive,
}

/// A lease that is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    client: ClientId,
    ttl_ms: u32,
    since: BootTime,
    until: BootTime,
    /// Something stood in the way of its renewal, which is tried again then.
    again: BootTime,
    /// Somebody moved another lock to the key: whether that one is kept was promised to nobody.
    is_moved: bool,
}

/// Connections, and what is kept for them.
#[derive(Debug, Default)]
pub struct Keeping {
    /// So many connections have ended at each place.
    ended: [u64; CONNECTIONS],
    kept: BTreeMap<(Place, Vec<u8>), Kept>,
    waiting: BTreeMap<WaiterId, Wish>,
    /// The server refused to have a lease prolonged, in the request that is performed.
    refused: bool,
}

impl Keeping {
    /// The connection that is open at this place.
    fn open_at(&self, at: usize) -> ClientId {
        ClientId(self.ended[at] * CONNECTIONS as u64 + at as u64)
    }

    fn is_open(&self, client: ClientId) -> bool {
        self.open_at(client.0 as usize % CONNECTIONS) == client
    }

    /// What the note of a request leaves over says whether its lease is to be kept, for whom, and for how long.
    pub fn wish(&self, note: u16, ttl: Ttl) -> Done<Option<Wish>> {
        let Some(choice) = (usize::from(note) / (NOTE_BYTES_MAX + 2)).checked_sub(24) else { return Ok(None) };
        let (client, length) = (self.open_at(choice % CONNECTIONS), u64::from(ttl.ms()));
        let ms = match choice / CONNECTIONS {
            0 => None,
            1 => Some(length - 1),
            2 => Some(length),
            3 => Some(length + 1),
            4 => Some(length * 3),
            5 => Some(length * 50),
            6 => Some(120_000),
            7 => Some(3_600_000),
            8 => Some(KEEPALIVE_MAX_MS.into()),
            _ => Some(u64::from(KEEPALIVE_MAX_MS) + 1),
        };
        let keep = KeepAlive::new(client, ms, ttl);
        let bounds = length..=KEEPALIVE_MAX_MS.into();
        let is_possible = ttl.ms() >= KEEPALIVE_TTL_MIN_MS && ms.is_some_and(|ms| bounds.contains(&ms));
        assert_eq!(keep.is_ok(), is_possible, "{ms:?} of {ttl:?}");
        Ok(Some(Wish { client, ttl, ms: ms.unwrap_or_default() as u32, keep: keep? }))
    }

    /// The request waits under this name.
    pub fn waits(&mut self, id: WaiterId, wish: Option<Wish>) {
        if let Some(wish) = wish {
            self.waiting.insert(id, wish);
        }
    }

    /// It waits no more. What it wished for.
    pub fn waits_no_more(&mut self, id: WaiterId) -> Option<Wish> {
        self.waiting.remove(&id)
    }

    /// A grant of `owner` ended by its own word, or it has a new one: nothing of the earlier one is kept.
    pub fn ended(&mut self, place: Place, owner: &[u8]) {
        self.kept.remove(&(place, owner.to_vec()));
    }

    /// Somebody moved a lock to such a key.
    pub fn moved(&mut self, is_there: impl Fn(Place) -> bool) {
        let there = self.kept.iter_mut().filter(|((place, _), _)| is_there(*place));
        there.for_each(|(_, kept)| kept.is_moved = true);
    }

    /// The server is asked whether this client's lease may be prolonged, and is in `doubt`.
    pub fn may_renew(&mut self, place: Place, client: ClientId, doubt: u8) -> Said {
        let of_client = |(at, kept): (&(Place, _), &Kept)| at.0 == place && kept.client == client;
        assert!(self.kept.iter().any(of_client), "nothing is kept for {client:?} at {place:?}");
        self.refused = false;
        let refusal = match doubt {
            _ if !self.is_open(client) => return Said::No,
            1 => Refusal::NotYet,
            3 => Refusal::Poisoned,
            _ => return Said::Yes,
        };
        self.refused = true;
        Said::Refused(refusal)
    }
}

/// What a renewal changes of a grant: nothing, but for how long it lasts.
fn lasting(grant: &Grant) -> (&[u8], u64, u32, BootTime, &[u8], u64, [bool; 2]) {
    let note = (grant.note(), grant.note_sequence().get());
    let marks = [grant.is_from_outside(), grant.is_adopted()];
    (grant.owner(), grant.token().get(), grant.holds(), grant.granted(), note.0, note.1, marks)
}

impl World {
    /// `owner` is told of its grant now.
    pub fn keeps(&mut self, place: Place, owner: &[u8], wish: Wish) {
        self.looks_at_kept();
        let now = self.boot;
        let name = name_of(place);
        let (_, grant) = grant_of(&self.locks[&place], owner).expect("it was granted");
        let at = (place, owner.to_vec());
        let earlier = self.keeping.kept.get(&at).filter(|kept| grant.granted() <= kept.since);
        let until = now.plus_ms(wish.ms).max(earlier.map_or(now, |kept| kept.until));
        let owner = Owner::new(owner).expect("an owner when it came");
        self.node.keep_alive(key_of(place, &name), owner, wish.ttl, wish.keep, now);
        let left = self.node.keepalives().left_ms(key_of(place, &name), owner, now);
        assert_eq!(left, Some(until.ms_since(now)), "of {wish:?}, after {earlier:?}");
        let kept = Kept { client: wish.client, ttl_ms: wish.ttl.ms(), since: now, until, again: now, is_moved: false };
        self.keeping.kept.insert(at, kept);
    }

    /// A connection ends: who waits over it goes too.
    pub fn hangs_up(&mut self, which: u8) {
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

    /// A lease that is kept is to be looked at: that changes nothing, but that it lasts longer.
    pub fn renews(&mut self, place: Place, renewal: &Renewal) {
        self.keeping.refused = false;
        let mut before = self.state(place);
        let queue = |world: &Self| {
            let waiting = world.node.waiting();
            let ids: Vec<WaiterId> = waiting.of(place.0, &name_of(place)).map(|waiter| waiter.id).collect();
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

    /// One grant, whose connection is open, lasts as much longer as it may.
    fn is_prolonged(&self, place: Place, renewal: &Renewal, before: &crate::world::State, after: &crate::world::State) {
        let grants = |state: &crate::world::State| -> Vec<_> {
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
        assert!(before.granted() <= kept.since, "{kept:?} is of an earlier grant than {before:?}");
        // What a flush left was never in doubt, and what was granted after the cause neither.
        let is_sure = self.node.guard().armed(self.boot).is_none_or(|armed| before.granted() > armed.since);
        assert!(!self.keeping.refused && is_sure && !self.node.is_suspect(before), "{before:?} is not to be promised");
        let left_us = before.deadline().us_since(self.boot);
        assert!(left_us <= u64::from(kept.ttl_ms) * 1_000 * 2 / 3, "{before:?} has most of its lease left");
        let ms = u64::from(kept.ttl_ms).min(kept.until.ms_since(self.boot)) as u32;
        assert!(after.deadline() > before.deadline() && after.deadline() <= kept.until);
        assert_eq!((after.deadline(), after.ttl_ms()), (self.boot.plus_ms(ms), ms));
    }

    /// There is a reason, and it is tried again soon.
    fn is_not_prolonged(&mut self, place: Place, renewal: &Renewal, refusal: Refusal) {
        let of_client = |(at, kept): &(&(Place, Vec<u8>), &mut Kept)| at.0 == place && kept.client == renewal.client();
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

    /// It is the grant that is kept, and it is not sure to last as long as its holder asked.
    fn is_to_be_kept(&self, (place, owner): &(Place, Vec<u8>), kept: &Kept) -> bool {
        let Some((_, grant)) = self.locks.get(place).and_then(|lock| grant_of(lock, owner)) else { return false };
        let is_same = !kept.is_moved && !grant.is_expired(self.boot) && grant.granted() <= kept.since;
        is_same && self.keeping.is_open(kept.client) && kept.until.ms_since(grant.deadline()) > 0
    }

    /// The node keeps what it has to, and nothing else.
    pub fn looks_at_kept(&mut self) {
        let mut all = std::mem::take(&mut self.keeping.kept);
        all.retain(|at, kept| {
            let owner = Owner::new(&at.1).expect("an owner when it came");
            let left = self.node.keepalives().left_ms(key_of(at.0, &name_of(at.0)), owner, self.boot);
            assert!(left.is_none_or(|left| left == kept.until.ms_since(self.boot)), "{kept:?}: {left:?}");
            assert!(left.is_some() || !self.is_to_be_kept(at, kept), "{kept:?} was forgotten");
            left.is_some()
        });
        self.keeping.kept = all;
        assert_eq!(self.node.keepalives().len(), self.keeping.kept.len(), "{:?}", self.keeping.kept);
    }

    /// The background did all that was due: every lease that is kept lasts for two thirds of its length more, or as long as its holder
    /// asked. So none ends whose node gets to its background in that time.
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
