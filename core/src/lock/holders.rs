//! The grants of a joint lock: readers, or holders of permits.
//!
//! Every operation takes about as long with one holder as with a hundred thousand, whatever owners and tokens clients
//! choose. Ordered trees find a grant by its owner (by a hash with a random key), by the end of its lease, and by its
//! token (clients may give many grants one token). [`Modes`] tells which modes may join.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use crate::lock::entry::DeadlineEntry;
use crate::lock::grant::{Grant, GrantId};
use crate::lock::modes::Modes;
use crate::lock::phase::{Past, Phase};
use crate::request::{Owner, Ttl};
use crate::values::mode::Mode;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The number of holders in a piece of the table: as many as fit into 4 KiB. A single list would have to move as it
/// grows, which would keep the server waiting.
const PIECE: usize = 4_096 / size_of::<Option<Holder>>();

#[cfg(test)]
thread_local! {
    /// The number of grants that were found by their token, which tests check.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The index that stands for no holder.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Holder {
    grant: Grant,
    mode: Mode,
    /// The indexes of the next older and the next younger holder, [`NONE`] at the ends.
    before: u32,
    after: u32,
}

/// The hash of an owner, and the index of its grant, sorted by hash. (A hash table would stop the server for tens of
/// milliseconds when it doubles.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
struct Owned {
    hash: u64,
    place: u32,
}

/// The end of a lease, and the index of its holder. Packed without padding, because each holder has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
struct End {
    due: BootTime,
    place: u32,
}

/// The token of a grant, the end of its lease, and the index of its holder, in this order of sorting. So the last one
/// of a token is the grant that lasts longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
struct Tokened {
    token: Token,
    due: BootTime,
    place: u32,
}

impl Tokened {
    fn new(grant: &Grant, place: u32) -> Self {
        Self { token: grant.token, due: grant.deadline, place }
    }
}

/// The grants of a joint lock: at least one once it is stored.
#[derive(Clone, Debug)]
pub struct Holders {
    pieces: Vec<Vec<Option<Holder>>>,
    /// The unused indexes in `pieces`.
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    hasher: RandomState,
    owners: BTreeSet<Owned>,
    tokens: BTreeSet<Tokened>,
    /// The end of each lease with the index of its holder, sorted by time.
    ends: BTreeSet<End>,
    modes: Modes,
    /// The longest lease that any grant of this lock ever had, in milliseconds.
    longest_ttl_ms: u32,
    /// The lower bounds for new tokens, from the tokens issued since the lock was last free. `None` if the node does
    /// not know when the lock was last free under its present name.
    phase: Option<Phase>,
    /// The value of [`Past::swaps`] when the present phase began. If the node's value differs, the lock may have come
    /// from another key.
    swaps: u32,
    /// The lock's entry in the node's deadlines.
    pub(super) entry: DeadlineEntry,
}

/// Creates a lock without holders, which `Holders::join` then adds.
impl Default for Holders {
    fn default() -> Self {
        Self {
            pieces: vec![],
            free: vec![],
            oldest: NONE,
            newest: NONE,
            hasher: RandomState::new(),
            owners: BTreeSet::new(),
            tokens: BTreeSet::new(),
            ends: BTreeSet::new(),
            modes: Modes::default(),
            longest_ttl_ms: 0,
            phase: None,
            swaps: 0,
            entry: DeadlineEntry::default(),
        }
    }
}

impl Holders {
    /// Adds a grant in `mode`. The caller has checked that the mode is compatible with all others and that the owner
    /// has no grant.
    pub(crate) fn join(&mut self, mode: Mode, grant: Grant) -> GrantId {
        let place = self.free.pop().unwrap_or_else(|| self.new_place());
        self.modes.add(mode);
        let hash = self.hasher.hash_one(grant.owner());
        *self.place(place) = Some(Holder { grant, mode, before: self.newest, after: NONE });
        match self.newest {
            NONE => self.oldest = place,
            newest => self.holder_mut(newest).after = place,
        }
        self.newest = place;
        self.owners.insert(Owned { hash, place });
        self.list(place);
        GrantId(place)
    }

    /// Adds a grant, or replaces the grant that its owner has. `None` if it is incompatible with the other grants;
    /// nothing changes then.
    pub(crate) fn put(&mut self, mode: Mode, grant: Grant) -> Option<GrantId> {
        let own = self.find(Owner::new(grant.owner()).ok()?);
        let before = own.map(|own| self.mode(own));
        before.iter().for_each(|&before| self.modes.remove(before));
        if !self.modes.admits(mode) {
            before.iter().for_each(|&before| self.modes.add(before));
            return None;
        }
        let Some(GrantId(place)) = own else { return Some(self.join(mode, grant)) };
        self.modes.add(mode);
        self.unlist(place);
        let holder = self.holder_mut(place);
        (holder.mode, holder.grant) = (mode, grant);
        self.list(place);
        Some(GrantId(place))
    }

    /// Removes the grant with this id, and returns it.
    pub(crate) fn take(&mut self, GrantId(place): GrantId) -> Grant {
        self.unlist(place);
        let hash = self.hasher.hash_one(self.holder(place).grant.owner());
        self.owners.remove(&Owned { hash, place });
        let Holder { grant, mode, before, after } = self.place(place).take().expect("a grant of this lock");
        match before {
            NONE => self.oldest = after,
            before => self.holder_mut(before).after = after,
        }
        match after {
            NONE => self.newest = before,
            after => self.holder_mut(after).before = before,
        }
        self.modes.remove(mode);
        self.free.push(place);
        grant
    }

    /// Adds the grant at the index `place` to the trees `ends` and `tokens`, and its token to the lower bounds for
    /// later grants.
    fn list(&mut self, place: u32) {
        let Holder { grant, mode, .. } = holder_at(&self.pieces, place);
        if let Some(phase) = &mut self.phase {
            phase.on_grant(*mode, grant.token);
        }
        self.longest_ttl_ms = self.longest_ttl_ms.max(grant.ttl_ms());
        self.ends.insert(End { due: grant.deadline, place });
        self.tokens.insert(Tokened::new(grant, place));
    }

    /// Removes the grant at the index `place` from the trees of deadlines and tokens. The caller then changes its
    /// deadline or token and calls [`Self::list`], or removes the grant.
    fn unlist(&mut self, place: u32) {
        let grant = &self.holder(place).grant;
        let (end, tokened) = (End { due: grant.deadline, place }, Tokened::new(grant, place));
        self.ends.remove(&end);
        self.tokens.remove(&tokened);
    }

    pub(super) fn prolong(&mut self, GrantId(place): GrantId, now: BootTime, ttl: Ttl) -> bool {
        self.unlist(place);
        let longer = self.holder_mut(place).grant.prolong(now, ttl);
        self.list(place);
        longer
    }

    pub(super) fn set_token(&mut self, GrantId(place): GrantId, token: Token) {
        self.unlist(place);
        self.holder_mut(place).grant.token = token;
        self.list(place);
    }

    pub(super) fn mark_suspect(&mut self) {
        self.pieces.iter_mut().flatten().flatten().for_each(|holder| holder.grant.mark_suspect());
    }

    /// Returns the lower bounds for the tokens of new grants, from the tokens issued since the lock was last free. If
    /// that moment is unknown, the phase begins now: then the bounds can only be higher than necessary.
    pub(crate) fn phase(&mut self, past: Past) -> &Phase {
        if self.swaps != past.swaps {
            self.phase = None;
            self.swaps = past.swaps;
        }
        self.phase.get_or_insert_with(|| Phase::new(past.last))
    }

    /// Ensures that no later grant has this token, or a smaller one. (If it is unknown when the lock was last free,
    /// nothing has to be noted: later lower bounds are above all tokens anyway.)
    pub(super) fn retire(&mut self, token: Token) {
        if let Some(phase) = &mut self.phase {
            phase.on_grant(Mode::Exclusive, token);
        }
    }

    /// Forgets the tokens issued since the lock was last free (see [`Phase`]). The lock came to another key, or from
    /// elsewhere, so these are not the tokens of its key.
    pub(super) fn forget_phase(&mut self) {
        self.phase = None;
    }

    pub(crate) fn len(&self) -> usize {
        self.modes.len()
    }

    pub(super) fn live_len(&self, now: BootTime) -> usize {
        self.len() - self.ends.iter().take_while(|end| now > { end.due }).count()
    }

    pub(super) fn end(&self) -> BootTime {
        self.ends.last().map_or(BootTime::default(), |end| end.due)
    }

    pub(super) fn next_end(&self) -> BootTime {
        self.ends.first().map_or(BootTime::default(), |end| end.due)
    }

    /// Returns the id of the grant whose lease ends first.
    pub(super) fn first_to_end(&self) -> GrantId {
        GrantId(self.ends.first().map_or(self.oldest, |end| end.place))
    }

    pub(super) fn oldest(&self) -> GrantId {
        GrantId(self.oldest)
    }

    pub(crate) fn modes(&self) -> &Modes {
        &self.modes
    }

    pub(crate) fn find(&self, owner: Owner<'_>) -> Option<GrantId> {
        let hash = self.hasher.hash_one(owner.bytes());
        let alike = self.owners.range(Owned { hash, place: 0 }..=Owned { hash, place: NONE });
        alike.map(|owned| owned.place).find(|&place| self.holder(place).grant.is_of(owner)).map(GrantId)
    }

    /// Returns the id of the grant with this token that lasts longest.
    pub(super) fn last_with_token(&self, token: Token) -> Option<GrantId> {
        self.with_token(token).next_back()
    }

    /// Iterates over the ids of the grants with this token, in the order in which their leases end.
    pub(super) fn with_token(&self, token: Token) -> impl DoubleEndedIterator<Item = GrantId> {
        let first = Tokened { token, due: BootTime::default(), place: 0 };
        let last = Tokened { token, due: BootTime::from_us(u64::MAX), place: u32::MAX };
        self.tokens.range(first..=last).map(|tokened| {
            #[cfg(test)]
            LOOKS.set(LOOKS.get() + 1);
            GrantId(tokened.place)
        })
    }

    pub(crate) fn grant(&self, GrantId(place): GrantId) -> &Grant {
        &self.holder(place).grant
    }

    pub(super) fn grant_mut(&mut self, GrantId(place): GrantId) -> &mut Grant {
        &mut self.holder_mut(place).grant
    }

    pub(crate) fn mode(&self, GrantId(place): GrantId) -> Mode {
        self.holder(place).mode
    }

    /// Returns the largest token of all grants, and the longest lease that any of them ever had, in milliseconds.
    pub(super) fn highest(&self) -> Option<(Token, u32)> {
        self.tokens.last().map(|last| (last.token, self.longest_ttl_ms))
    }

    /// Returns the largest token of the holders at `now`, if there are any.
    pub(super) fn largest_token(&self, now: BootTime) -> Option<Token> {
        let live = self.tokens.iter().rev().find(|entry| now <= { entry.due });
        live.map(|live| live.token)
    }

    /// Iterates over all grants, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Mode, &Grant)> {
        let holder = |place: u32| (place != NONE).then(|| self.holder(place));
        std::iter::successors(holder(self.oldest), move |last| holder(last.after))
            .map(|holder| (holder.mode, &holder.grant))
    }

    pub(super) fn places(&self) -> usize {
        self.pieces.len() * PIECE
    }

    /// Estimates the memory of grants, tables and trees, in bytes. Slightly more than half of a tree's nodes is in use
    /// if leases end in the order in which they began.
    pub(super) fn heap_bytes(&self) -> usize {
        let texts: usize = self.pieces.iter().flatten().flatten().map(|holder| holder.grant.heap_bytes()).sum();
        self.pieces.len() * PIECE * size_of::<Option<Holder>>()
            + self.pieces.capacity() * size_of::<Vec<Holder>>()
            + self.free.capacity() * size_of::<u32>()
            + self.len() * (size_of::<Owned>() + size_of::<End>() + size_of::<Tokened>()) * 2
            + self.phase.as_ref().map_or(0, Phase::heap_bytes)
            + texts
    }

    fn new_place(&mut self) -> u32 {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let before = (self.pieces.len() - 1) * PIECE;
        let piece = self.pieces.last_mut().expect("one was added");
        piece.push(None);
        (before + piece.len() - 1) as u32
    }

    fn place(&mut self, place: u32) -> &mut Option<Holder> {
        &mut self.pieces[place as usize / PIECE][place as usize % PIECE]
    }

    fn holder(&self, place: u32) -> &Holder {
        holder_at(&self.pieces, place)
    }

    fn holder_mut(&mut self, place: u32) -> &mut Holder {
        self.place(place).as_mut().expect("a grant of this lock")
    }
}

fn holder_at(pieces: &[Vec<Option<Holder>>], place: u32) -> &Holder {
    pieces[place as usize / PIECE][place as usize % PIECE].as_ref().expect("a grant of this lock")
}

/// Equal if the same grants are in the same order of age. The indexes at which they are stored do not matter.
impl PartialEq for Holders {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter()) && self.entry == other.entry
    }
}

impl Eq for Holders {}
