//! The oracle: a record of a node's promises (grants and turns), which is kept apart from the node and reads the
//! contract in the simplest way. Each call reports something that the node did, and panics if the node was not allowed
//! to.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::quorum::floors::Floors;
use palisade_core::request::{NoteSequence, Owner};
use palisade_core::{BootTime, Grant as Stored, Lock, Mode, Refusal, Token, Wanted};

/// The result of a request, which may be refused.
pub type Done<T = ()> = std::result::Result<T, Refusal>;

/// A database, and the number of one of the few names of keys there.
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
    /// True if the grant is no longer in any key, but its holder does not know that.
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

/// The promises of a node about one key.
#[derive(Debug, Default)]
struct Promises {
    grants: Vec<Grant>,
    told: Vec<ReservedTurn>,
    /// The number of turns since the last grant; only those count that ended unused or were withdrawn.
    unused: u32,
    floors: Floors,
}

/// The promises of a node about all keys, by place.
#[derive(Debug, Default)]
pub struct Oracle {
    places: BTreeMap<Place, Promises>,
}

impl Oracle {
    fn at(&mut self, place: Place) -> &mut Promises {
        self.places.entry(place).or_default()
    }

    /// Notes that `grant` was granted in `mode` at `now`. The node must not be `guarded`.
    pub fn granted(&mut self, place: Place, (mode, grant): (Mode, &Stored), now: BootTime, guarded: bool) {
        assert!(!guarded, "granted while guarded");
        let it = self.at(place);
        it.end_turns(|told| now > told.until);
        it.grants.retain(|held| held.is_live(now));
        // The holder of an evicted lock may acquire it again; other owners may not.
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

    /// Notes that the key now has `lock`, which a client moved or restored there.
    pub fn holds(&mut self, place: Place, lock: &Lock) {
        let it = self.at(place);
        it.grants.clear();
        lock.grants().for_each(|(mode, grant)| it.add(mode, grant));
    }

    /// Notes that an owner changed its grant in place: it extended or re-entered it, raised its token, or released some
    /// holds.
    pub fn changed(&mut self, place: Place, (mode, grant): (Mode, &Stored)) {
        let it = self.at(place);
        let held = it.take(grant.owner());
        assert_eq!(held.mode, mode, "{held:?} has another mode");
        it.changes(&held, mode, grant);
    }

    /// Notes that the note of a grant was replaced.
    pub fn noted(&mut self, place: Place, (mode, grant): (Mode, &Stored)) {
        let it = self.at(place);
        let mut held = it.take(grant.owner());
        assert!(grant.note_sequence() > held.note.0, "{held:?} got an older note: {grant:?}");
        held.note = (grant.note_sequence(), grant.note().to_vec());
        assert_eq!(held, Grant::of(mode, grant), "only the note changes");
        it.grants.push(held);
    }

    /// Notes that a grant was converted to `mode` at `now`.
    pub fn converted(&mut self, place: Place, (mode, grant): (Mode, &Stored), now: BootTime, guarded: bool) {
        let it = self.at(place);
        let held = it.take(grant.owner());
        match (held.mode, mode) {
            (Mode::Exclusive, Mode::Shared) => assert_eq!(held.token, grant.token()),
            (Mode::Shared, Mode::Exclusive) => {
                assert!(!guarded, "a reader became a writer while guarded");
                // If a client moves a lock to a key with an evicted one, what follows is that client's fault.
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

    /// Notes that the grant of `owner` left a lock that others still hold.
    pub fn left(&mut self, place: Place, owner: &[u8]) {
        self.at(place).take(owner);
    }

    /// Notes that a grant of `owner` left a lock because its lease was over. The oracle may have removed that grant
    /// already, when the owner got a later one.
    pub fn ran_out(&mut self, place: Place, owner: &[u8]) {
        self.at(place).grants.retain(|grant| grant.dropped || grant.owner != owner);
    }

    /// Notes that `owner` released its grant, or that an operator broke it. Evicted grants that the owner had before
    /// end too.
    pub fn gave_up(&mut self, place: Place, owner: &[u8]) {
        self.at(place).grants.retain(|grant| !(grant.dropped && grant.owner == owner));
    }

    /// Notes that all holders of the lock released their grants, or that an operator broke them.
    pub fn all_gave_up(&mut self, place: Place) {
        let held = self.at(place).grants.iter().filter(|grant| !grant.dropped);
        let owners: Vec<_> = held.map(|grant| grant.owner.clone()).collect();
        owners.iter().for_each(|owner| self.gave_up(place, owner));
    }

    /// Notes that the lock was released or broken, or ended with its last lease.
    pub fn ended(&mut self, place: Place) {
        self.at(place).grants.retain(|grant| grant.dropped);
    }

    /// Notes that the lock is no longer in any key, but that its holders do not know that.
    pub fn dropped(&mut self, place: Place) {
        self.at(place).grants.iter_mut().for_each(|grant| grant.dropped = true);
    }

    /// Notes that an operator says that nobody relies on the dropped locks.
    pub fn nothing_was_dropped(&mut self) {
        self.places.values_mut().for_each(|it| it.grants.retain(|grant| !grant.dropped));
    }

    /// Records a SWAPDB: locks, and what is known of their tokens, change places. Reservations, and grants that were
    /// dropped, keep the number of their database.
    pub fn swapped(&mut self, one: u32, other: u32) {
        let names: BTreeSet<u8> = self.places.keys().map(|(_, name)| *name).collect();
        for name in names {
            let mut first = std::mem::take(self.at((one, name)));
            let mut second = std::mem::take(self.at((other, name)));
            std::mem::swap(&mut first.floors, &mut second.floors);
            let take = |it: &mut Promises| it.grants.extract_if(.., |grant| !grant.dropped).collect::<Vec<_>>();
            let (from_first, from_second) = (take(&mut first), take(&mut second));
            for (it, came) in [(&mut first, from_second), (&mut second, from_first)] {
                // If a client moves a lock to this key, the locks that were evicted there are that client's concern.
                it.grants.retain(|_| came.is_empty());
                it.grants.extend(came);
            }
            (*self.at((one, name)), *self.at((other, name))) = (first, second);
        }
    }

    /// Notes that `owner` was answered that its turn has come: the lock is reserved for it in `mode` until `until`.
    pub fn told(&mut self, place: Place, owner: &[u8], mode: Mode, (now, until): (BootTime, BootTime)) {
        let it = self.at(place);
        it.told.retain(|told| told.owner != owner);
        it.end_turns(|told| now > told.until);
        // The holder of an evicted lock may acquire it again.
        let is_own = |held: &&Grant| held.dropped && held.owner == owner;
        for held in it.grants.iter().filter(|held| held.is_live(now) && !is_own(held)) {
            assert!(!held.dropped && held.mode.is_compatible(mode), "{owner:?} was told of {mode:?} beside {held:?}");
        }
        for told in &it.told {
            assert!(told.mode.is_compatible(mode), "{owner:?} was told of {mode:?} beside {told:?}");
        }
        it.told.push(ReservedTurn { owner: owner.to_vec(), mode, until });
    }

    /// Notes that `owner` withdrew its waiting requests.
    pub fn took_back(&mut self, place: Place, owner: &[u8]) {
        self.at(place).end_turns(|told| told.owner == owner);
    }

    /// Notes that all reservations of the lock have ended.
    pub fn nobody_is_told(&mut self, place: Place) {
        self.at(place).told.clear();
    }

    /// Returns the mode in which the lock is reserved for `owner` at `now`, if it is.
    pub fn kept_for(&self, place: Place, owner: &[u8], now: BootTime) -> Option<Mode> {
        let mut told = self.places.get(&place)?.told.iter().filter(|told| now <= told.until);
        told.find(|told| told.owner == owner).map(|told| told.mode)
    }

    /// Returns true if the lock is not reserved for any owner but `owner` at `now`.
    pub fn is_kept_for_nobody_but(&self, place: Place, owner: &[u8], now: BootTime) -> bool {
        let told = self.places.get(&place).into_iter().flat_map(|it| &it.told);
        told.filter(|told| now <= told.until).all(|told| told.owner == owner)
    }

    /// Returns the number of turns in a row that may have gone unused.
    pub fn unused_turns(&self, place: Place, now: BootTime) -> u32 {
        let Some(it) = self.places.get(&place) else { return 0 };
        it.unused + it.told.iter().filter(|told| now > told.until).count() as u32
    }

    /// Returns true if `owner` may get `wanted` at `now`, as far as grants and reservations of other owners go.
    pub fn admits(&self, place: Place, owner: &[u8], wanted: Wanted, now: BootTime) -> bool {
        let Some(it) = self.places.get(&place) else { return true };
        let held = it.grants.iter().filter(|held| held.is_live(now) && !held.dropped).map(|held| held.mode);
        let told = it.told.iter().filter(|told| now <= told.until && told.owner != owner).map(|told| told.mode);
        let others: Vec<Mode> = held.chain(told).collect();
        wanted.modes().any(|mode| others.iter().all(|other| other.is_compatible(mode)))
    }

    /// Returns the milliseconds left that LOCK.CHECK must answer for `token`, unless the node refuses to answer; `None`
    /// if there is no such grant.
    pub fn left_ms(&self, place: Place, token: Token, now: BootTime) -> Option<u64> {
        let grants = self.places.get(&place)?.grants.iter();
        let alike = grants.filter(|grant| !grant.dropped && grant.is_live(now) && grant.token == token);
        alike.map(|grant| grant.deadline.ms_since(now)).max()
    }

    /// Checks that the keys have exactly those grants that have not ended.
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

    /// Checks that a new grant in `mode` may have `token`, which must be large enough.
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

    /// Ends the reservations for which `such` returns true.
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
