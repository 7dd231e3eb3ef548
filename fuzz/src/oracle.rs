//! A record of a node's promises, kept apart from the node: grants and turns, by the simplest reading of the contract.
//! Each call reports an action of the node, and panics if that action was not allowed.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::quorum::floors::Floors;
use palisade_core::request::{NoteSequence, Owner};
use palisade_core::{BootTime, Grant as Stored, Lock, Mode, Refusal, Token, Wanted};

/// The result of a request that may be refused.
pub type Done<T = ()> = std::result::Result<T, Refusal>;

/// A database, and one of the few names of keys.
pub type Place = (u32, u8);

/// A grant on which its holder may rely.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    owner: Vec<u8>,
    mode: Mode,
    token: Token,
    holds: u32,
    deadline: BootTime,
    note: (NoteSequence, Vec<u8>),
    adopted: bool,
    /// True if the grant is in no key any longer, and its holder does not know that.
    dropped: bool,
}

impl Grant {
    fn of(mode: Mode, grant: &Stored) -> Self {
        let (owner, token) = (grant.owner().to_vec(), grant.token());
        let note = (grant.note_sequence(), grant.note().to_vec());
        let (holds, deadline, adopted) = (grant.holds(), grant.deadline(), grant.is_adopted());
        Self { owner, mode, token, holds, deadline, note, adopted, dropped: false }
    }

    fn is_live(&self, now: BootTime) -> bool {
        now <= self.deadline
    }
}

/// A reservation for an owner whose turn has come.
#[derive(Debug)]
struct ReservedTurn {
    owner: Vec<u8>,
    mode: Mode,
    until: BootTime,
}

/// A node's promises about one key.
#[derive(Debug, Default)]
struct Promises {
    grants: Vec<Grant>,
    told: Vec<ReservedTurn>,
    /// The number of turns that ended or were withdrawn since the last grant.
    unused: u32,
    floors: Floors,
}

/// A node's promises.
#[derive(Debug, Default)]
pub struct Oracle {
    places: BTreeMap<Place, Promises>,
}

impl Oracle {
    fn at(&mut self, place: Place) -> &mut Promises {
        self.places.entry(place).or_default()
    }

    /// Records that `grant` was granted in `mode` at `now`, by a node that must not be `guarded`.
    pub fn granted(&mut self, place: Place, (mode, grant): (Mode, &Stored), now: BootTime, guarded: bool) {
        assert!(!guarded, "granted while guarded");
        let it = self.at(place);
        it.end_turns(|told| now > told.until);
        it.grants.retain(|held| held.is_live(now));
        // An owner's own evicted lock does not keep it out, but keeps other owners out.
        for held in it.grants.iter().filter(|held| !(held.dropped && held.owner == grant.owner())) {
            let together = !held.dropped && held.mode.is_compatible(mode) && held.owner != grant.owner();
            assert!(together, "{place:?} is still held: {held:?}, then {mode:?} {grant:?}");
        }
        it.told.retain(|told| told.owner != grant.owner());
        for told in &it.told {
            assert!(told.mode.is_compatible(mode), "{place:?} is kept: {told:?}, then {mode:?} {grant:?}");
        }
        it.is_above(mode, grant.token());
        assert_eq!((grant.holds(), grant.deadline()), (1, now.plus_ms(grant.ttl_ms())));
        it.unused = 0;
        it.add(mode, grant);
    }

    /// Records that the key now holds `lock`, which a client moved or restored there.
    pub fn holds(&mut self, place: Place, lock: &Lock) {
        let it = self.at(place);
        it.grants.clear();
        lock.grants().for_each(|(mode, grant)| it.add(mode, grant));
    }

    /// Records that an owner changed its grant in place: extended it, re-entered, raised its token, or released some
    /// holds.
    pub fn changed(&mut self, place: Place, (mode, grant): (Mode, &Stored)) {
        let it = self.at(place);
        let held = it.take(grant.owner());
        assert_eq!(held.mode, mode, "{held:?} has another mode");
        it.changes(&held, mode, grant);
    }

    /// Records that the note of a grant was replaced.
    pub fn noted(&mut self, place: Place, (mode, grant): (Mode, &Stored)) {
        let it = self.at(place);
        let mut held = it.take(grant.owner());
        assert!(grant.note_sequence() > held.note.0, "{held:?} got an older note: {grant:?}");
        held.note = (grant.note_sequence(), grant.note().to_vec());
        assert_eq!(held, Grant::of(mode, grant), "only the note changes");
        it.grants.push(held);
    }

    /// Records that a grant was converted at `now`.
    pub fn converted(&mut self, place: Place, (mode, grant): (Mode, &Stored), now: BootTime, guarded: bool) {
        let it = self.at(place);
        let held = it.take(grant.owner());
        match (held.mode, mode) {
            (Mode::Exclusive, Mode::Shared) => assert_eq!(held.token, grant.token()),
            (Mode::Shared, Mode::Exclusive) => {
                assert!(!guarded, "a reader became a writer while guarded");
                // The client that moves a lock to a barred key is responsible for the consequences.
                let others = it.grants.iter().filter(|other| !other.dropped && other.is_live(now)).count();
                assert_eq!(others, 0, "{:?} beside {grant:?}", it.grants);
                let kept = it.told.iter().find(|told| now <= told.until && told.owner != grant.owner());
                assert!(kept.is_none(), "{kept:?} beside {grant:?}");
                it.told.clear();
                it.is_above(mode, grant.token());
            }
            modes => panic!("{modes:?} is no conversion"),
        }
        assert_eq!((held.holds, held.deadline), (grant.holds(), grant.deadline()));
        it.changes(&held, mode, grant);
    }

    /// Records that the grant of `owner` left a lock that others hold.
    pub fn left(&mut self, place: Place, owner: &[u8]) {
        self.at(place).take(owner);
    }

    /// Records that a grant of `owner` left a lock because its lease had ended. A later grant may have ended it here
    /// already.
    pub fn ran_out(&mut self, place: Place, owner: &[u8]) {
        self.at(place).grants.retain(|grant| grant.dropped || grant.owner != owner);
    }

    /// Records that `owner` released its grant, or that an operator broke it. Earlier evicted grants of the owner end
    /// too.
    pub fn gave_up(&mut self, place: Place, owner: &[u8]) {
        self.at(place).grants.retain(|grant| !(grant.dropped && grant.owner == owner));
    }

    /// Records that all holders of the lock released their grants, or that an operator broke them.
    pub fn all_gave_up(&mut self, place: Place) {
        let held = self.at(place).grants.iter().filter(|grant| !grant.dropped);
        let owners: Vec<_> = held.map(|grant| grant.owner.clone()).collect();
        owners.iter().for_each(|owner| self.gave_up(place, owner));
    }

    /// Records that the lock was released or broken, or ended with its last lease.
    pub fn ended(&mut self, place: Place) {
        self.at(place).grants.retain(|grant| grant.dropped);
    }

    /// Records that the lock is in no key any longer, and that its holders do not know that.
    pub fn dropped(&mut self, place: Place) {
        self.at(place).grants.iter_mut().for_each(|grant| grant.dropped = true);
    }

    /// Records an operator's confirmation that no owner relies on the dropped locks.
    pub fn nothing_was_dropped(&mut self) {
        self.places.values_mut().for_each(|it| it.grants.retain(|grant| !grant.dropped));
    }

    /// Records that two databases were swapped, with their locks and the record of their tokens. Dropped grants and
    /// reservations stay with the database that they were in.
    pub fn swapped(&mut self, one: u32, other: u32) {
        let names: BTreeSet<u8> = self.places.keys().map(|(_, name)| *name).collect();
        for name in names {
            let mut first = std::mem::take(self.at((one, name)));
            let mut second = std::mem::take(self.at((other, name)));
            std::mem::swap(&mut first.floors, &mut second.floors);
            let take = |it: &mut Promises| it.grants.extract_if(.., |grant| !grant.dropped).collect::<Vec<_>>();
            let (from_first, from_second) = (take(&mut first), take(&mut second));
            for (it, came) in [(&mut first, from_second), (&mut second, from_first)] {
                // The client that moves a lock to a key is responsible for the locks that were evicted there.
                it.grants.retain(|_| came.is_empty());
                it.grants.extend(came);
            }
            (*self.at((one, name)), *self.at((other, name))) = (first, second);
        }
    }

    /// Records that `owner` was notified that the lock is reserved for it in `mode` until `until`.
    pub fn told(&mut self, place: Place, owner: &[u8], mode: Mode, (now, until): (BootTime, BootTime)) {
        let it = self.at(place);
        it.told.retain(|told| told.owner != owner);
        it.end_turns(|told| now > told.until);
        // An owner's own evicted lock does not keep it out.
        let is_own = |held: &&Grant| held.dropped && held.owner == owner;
        for held in it.grants.iter().filter(|held| held.is_live(now) && !is_own(held)) {
            assert!(!held.dropped && held.mode.is_compatible(mode), "{owner:?} was told of {mode:?} beside {held:?}");
        }
        for told in &it.told {
            assert!(told.mode.is_compatible(mode), "{owner:?} was told of {mode:?} beside {told:?}");
        }
        it.told.push(ReservedTurn { owner: owner.to_vec(), mode, until });
    }

    /// Records that `owner` withdrew its waiting requests.
    pub fn took_back(&mut self, place: Place, owner: &[u8]) {
        self.at(place).end_turns(|told| told.owner == owner);
    }

    /// Records that the lock is no longer reserved for anybody.
    pub fn nobody_is_told(&mut self, place: Place) {
        self.at(place).told.clear();
    }

    /// Returns the mode that is reserved for `owner` at `now`.
    pub fn kept_for(&self, place: Place, owner: &[u8], now: BootTime) -> Option<Mode> {
        let mut told = self.places.get(&place)?.told.iter().filter(|told| now <= told.until);
        told.find(|told| told.owner == owner).map(|told| told.mode)
    }

    /// Returns true if the lock is not reserved for an owner other than `owner` at `now`.
    pub fn is_kept_for_nobody_but(&self, place: Place, owner: &[u8], now: BootTime) -> bool {
        let told = self.places.get(&place).into_iter().flat_map(|it| &it.told);
        told.filter(|told| now <= told.until).all(|told| told.owner == owner)
    }

    /// Returns the number of turns in a row that may have gone unused.
    pub fn unused_turns(&self, place: Place, now: BootTime) -> u32 {
        let Some(it) = self.places.get(&place) else { return 0 };
        it.unused + it.told.iter().filter(|told| now > told.until).count() as u32
    }

    /// Returns true if the grants and reservations of other owners permit `owner` to get `wanted` at `now`.
    pub fn admits(&self, place: Place, owner: &[u8], wanted: Wanted, now: BootTime) -> bool {
        let Some(it) = self.places.get(&place) else { return true };
        let held = it.grants.iter().filter(|held| held.is_live(now) && !held.dropped).map(|held| held.mode);
        let told = it.told.iter().filter(|told| now <= told.until && told.owner != owner).map(|told| told.mode);
        let others: Vec<Mode> = held.chain(told).collect();
        wanted.modes().any(|mode| others.iter().all(|other| other.is_compatible(mode)))
    }

    /// Returns the correct answer to a resource that asks about `token`, for a lock that the node is sure of.
    pub fn left_ms(&self, place: Place, token: Token, now: BootTime) -> Option<u64> {
        let grants = self.places.get(&place)?.grants.iter();
        let alike = grants.filter(|grant| !grant.dropped && grant.is_live(now) && grant.token == token);
        alike.map(|grant| grant.deadline.ms_since(now)).max()
    }

    /// Checks that the keys hold exactly the grants that have not ended.
    pub fn is_kept_by(&self, locks: &BTreeMap<Place, Lock>, now: BootTime) {
        let by_owner = |mut grants: Vec<Grant>| {
            grants.retain(|grant| !grant.dropped && grant.is_live(now));
            grants.sort_by(|one, other| one.owner.cmp(&other.owner));
            grants
        };
        for (place, it) in &self.places {
            let stored = locks.get(place).into_iter().flat_map(Lock::grants);
            let stored = by_owner(stored.map(|(mode, grant)| Grant::of(mode, grant)).collect());
            assert_eq!(stored, by_owner(it.grants.clone()), "{place:?}");
            for (n, grant) in stored.iter().enumerate() {
                let others = stored[n + 1..].iter();
                others.for_each(|other| assert!(grant.mode.is_compatible(other.mode), "{grant:?} beside {other:?}"));
            }
        }
        assert!(locks.keys().all(|place| self.places.contains_key(place)), "nobody was granted what is there");
    }
}

impl Promises {
    fn add(&mut self, mode: Mode, grant: &Stored) {
        self.floors.add(mode, grant.token().get());
        self.grants.push(Grant::of(mode, grant));
    }

    /// Checks that `token` of a new grant in `mode` is large enough.
    fn is_above(&self, mode: Mode, token: Token) {
        assert!(token.get() > self.floors.floor_of(mode), "{mode:?} with {token:?} after {:?}", self.floors);
    }

    fn take(&mut self, owner: &[u8]) -> Grant {
        let own = self.grants.iter().position(|grant| grant.owner == owner && !grant.dropped);
        self.grants.remove(own.expect("only what is held is changed, or ends"))
    }

    fn changes(&mut self, held: &Grant, mode: Mode, grant: &Stored) {
        assert!(grant.deadline() >= held.deadline, "{held:?} got shorter: {grant:?}");
        assert!(grant.token() >= held.token, "{held:?} got a smaller token: {grant:?}");
        assert_eq!(held.note, (grant.note_sequence(), grant.note().to_vec()));
        assert!(grant.is_adopted() || !held.adopted, "{held:?} is adopted no longer: {grant:?}");
        self.add(mode, grant);
    }

    /// Ends the reservations that satisfy `such`.
    fn end_turns(&mut self, such: impl Fn(&ReservedTurn) -> bool) {
        let before = self.told.len();
        self.told.retain(|told| !such(told));
        self.unused += (before - self.told.len()) as u32;
    }
}

/// Returns the grant of `owner` in `lock`.
pub fn grant_of<'a>(lock: &'a Lock, owner: &[u8]) -> Option<(Mode, &'a Stored)> {
    let id = lock.find(Owner::new(owner).ok()?)?;
    Some((lock.mode(id), lock.grant(id)))
}
