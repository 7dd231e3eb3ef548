//! The content of a key while it is locked.

pub mod deadlines;
mod entries;
pub mod entry;
pub mod grant;
pub mod holders;
pub mod known;
pub mod modes;
pub mod phase;
mod ring;
mod slab;
pub(crate) mod spare;
mod text;
pub mod waited;

use crate::lock::entry::DeadlineEntry;
use crate::lock::grant::{Grant, GrantId};
use crate::lock::holders::Holders;
use crate::lock::phase::Past;
use crate::request::{Owner, Ttl};
use crate::values::mode::Mode;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// A lock: the grants by which it is held. It is held until the last of their deadlines has passed. After that it is
/// free, whether or not it is still in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    /// A lock that one owner holds alone.
    Exclusive(Grant),
    /// A joint lock: readers, or holders of permits. There is at least one.
    Joint(Box<Holders>),
}

impl Lock {
    /// Creates the lock of a key that was free and is granted in `mode`. `past` has the tokens that the key had before;
    /// an exclusive grant does not need it.
    #[inline(always)]
    pub(crate) fn of(mode: Mode, grant: Grant, past: Past) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive(grant),
            mode => {
                let mut holders = Holders::default();
                holders.phase(past);
                holders.join(mode, grant);
                Self::Joint(Box::new(holders))
            }
        }
    }

    /// Returns whether all leases are over, so that the lock is free.
    pub fn is_expired(&self, now: BootTime) -> bool {
        now > self.end()
    }

    /// Returns the time at which the last lease ends.
    pub fn end(&self) -> BootTime {
        match self {
            Self::Exclusive(grant) => grant.deadline,
            Self::Joint(holders) => holders.end(),
        }
    }

    /// Returns the time at which the first lease ends.
    pub fn next_end(&self) -> BootTime {
        match self {
            Self::Exclusive(grant) => grant.deadline,
            Self::Joint(holders) => holders.next_end(),
        }
    }

    /// Returns the grant whose lease ended first, if one is over at `now` while other grants still hold.
    pub(crate) fn ended(&self, now: BootTime) -> Option<GrantId> {
        match self {
            Self::Joint(holders) if now > holders.next_end() && now <= holders.end() => Some(holders.first_to_end()),
            _ => None,
        }
    }

    /// Returns the number of grants. The leases of some may be over.
    pub fn len(&self) -> usize {
        match self {
            Self::Exclusive(_) => 1,
            Self::Joint(holders) => holders.len(),
        }
    }

    /// Returns false: a lock always has a grant.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the number of grants whose leases are not over at `now`.
    pub fn live_len(&self, now: BootTime) -> usize {
        match self {
            Self::Exclusive(grant) => usize::from(!grant.is_expired(now)),
            Self::Joint(holders) => holders.live_len(now),
        }
    }

    /// Returns the id of the grant of `owner`, if it has one.
    #[inline]
    pub fn find(&self, owner: Owner<'_>) -> Option<GrantId> {
        match self {
            Self::Exclusive(grant) => grant.is_of(owner).then_some(GrantId::default()),
            Self::Joint(holders) => holders.find(owner),
        }
    }

    /// Iterates over the ids of the grants with this token. Several readers may share one, and so may holders of
    /// different permits.
    pub(crate) fn with_token(&self, token: Token) -> impl Iterator<Item = GrantId> {
        let (exclusive, holders) = match self {
            Self::Exclusive(grant) => (Some(GrantId::default()).filter(|_| grant.token() == token), None),
            Self::Joint(holders) => (None, Some(holders)),
        };
        exclusive.into_iter().chain(holders.into_iter().flat_map(move |holders| holders.with_token(token)))
    }

    /// Returns the id of the grant with this token that lasts longest.
    pub(crate) fn last_with_token(&self, token: Token) -> Option<GrantId> {
        match self {
            Self::Exclusive(grant) => (grant.token == token).then(GrantId::default),
            Self::Joint(holders) => holders.last_with_token(token),
        }
    }

    /// Returns whether more than `most` grants have this token.
    pub(crate) fn has_more_with_token(&self, token: Token, most: usize) -> bool {
        match self {
            Self::Exclusive(_) => false,
            Self::Joint(holders) => holders.with_token(token).nth(most).is_some(),
        }
    }

    /// Returns the grant with this id.
    pub fn grant(&self, id: GrantId) -> &Grant {
        match self {
            Self::Exclusive(grant) => grant,
            Self::Joint(holders) => holders.grant(id),
        }
    }

    /// Returns the grant with this id, for changes to fields by which no tree is sorted: the token and the deadline
    /// must stay.
    pub(crate) fn grant_mut(&mut self, id: GrantId) -> &mut Grant {
        match self {
            Self::Exclusive(grant) => grant,
            Self::Joint(holders) => holders.grant_mut(id),
        }
    }

    /// Returns the mode of the grant with this id.
    pub fn mode(&self, id: GrantId) -> Mode {
        match self {
            Self::Exclusive(_) => Mode::Exclusive,
            Self::Joint(holders) => holders.mode(id),
        }
    }

    /// Returns the oldest grant of the lock.
    pub fn first(&self) -> &Grant {
        self.oldest().1
    }

    /// Returns the mode of the oldest grant, and that grant.
    #[inline]
    pub(crate) fn oldest(&self) -> (Mode, &Grant) {
        match self {
            Self::Exclusive(grant) => (Mode::Exclusive, grant),
            Self::Joint(holders) => (holders.mode(holders.oldest()), holders.grant(holders.oldest())),
        }
    }

    /// Returns the id of the oldest grant.
    pub fn first_id(&self) -> GrantId {
        match self {
            Self::Exclusive(_) => GrantId::default(),
            Self::Joint(holders) => holders.oldest(),
        }
    }

    /// Iterates over all grants, the oldest first.
    pub fn grants(&self) -> impl Iterator<Item = (Mode, &Grant)> {
        let (single, joint) = match self {
            Self::Exclusive(grant) => (Some((Mode::Exclusive, grant)), None),
            Self::Joint(holders) => (None, Some(holders.iter())),
        };
        single.into_iter().chain(joint.into_iter().flatten())
    }

    /// Returns the largest token of the grants that hold at `now`; `None` if all are over.
    pub(crate) fn largest_token(&self, now: BootTime) -> Option<Token> {
        match self {
            Self::Exclusive(grant) => (!grant.is_expired(now)).then_some(grant.token),
            Self::Joint(holders) => holders.largest_token(now),
        }
    }

    /// Returns the largest token of all grants, and the longest lease that any of them ever had, in milliseconds.
    pub(crate) fn highest(&self) -> Option<(Token, u32)> {
        match self {
            Self::Exclusive(grant) => Some((grant.token, grant.ttl_ms())),
            Self::Joint(holders) => holders.highest(),
        }
    }

    /// Marks all grants as suspect: they keep others out until their deadlines, and can only be released.
    pub fn mark_suspect(&mut self) {
        match self {
            Self::Exclusive(grant) => grant.mark_suspect(),
            Self::Joint(holders) => holders.mark_suspect(),
        }
    }

    /// Ensures that no later grant of this lock has `token`, or a smaller one: a reader that proposes it gets a larger
    /// one.
    pub(crate) fn retire(&mut self, token: Token) {
        if let Self::Joint(holders) = self {
            holders.retire(token);
        }
    }

    /// Notes that the lock came to its key from elsewhere (RENAME, RESTORE, ...), so that the tokens of its own past do
    /// not count here.
    pub(crate) fn forget_past(&mut self) {
        if let Self::Joint(holders) = self {
            holders.forget_phase();
        }
    }

    /// Returns the number of places for grants that the lock has memory for. To drop it takes the longer, the more it has.
    pub fn places(&self) -> usize {
        match self {
            Self::Exclusive(_) => 1,
            Self::Joint(holders) => holders.places(),
        }
    }

    /// Returns the heap memory that a lock takes beside the value itself, in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Exclusive(grant) => grant.heap_bytes(),
            Self::Joint(holders) => size_of::<Holders>() + holders.heap_bytes(),
        }
    }

    /// Replaces this lock by `next` under the same key; `next` takes over the entry in the deadlines. Returns the old
    /// lock: to drop one with many holders takes long, so the caller may do that in another thread.
    pub fn replace(&mut self, mut next: Lock) -> Lock {
        next.set_entry(self.entry());
        std::mem::replace(self, next)
    }

    /// Returns this lock's entry in the node's deadlines.
    pub fn entry(&self) -> DeadlineEntry {
        match self {
            Self::Exclusive(grant) => grant.entry,
            Self::Joint(holders) => holders.entry,
        }
    }

    pub(super) fn set_entry(&mut self, entry: DeadlineEntry) {
        match self {
            Self::Exclusive(grant) => grant.entry = entry,
            Self::Joint(holders) => holders.entry = entry,
        }
    }

    // The functions below make the changes that rules decide on.

    /// Removes one grant of several, and returns it.
    pub(crate) fn take(&mut self, id: GrantId) -> Option<Grant> {
        match self {
            Self::Joint(holders) if holders.len() > 1 => Some(holders.take(id)),
            _ => None,
        }
    }

    /// Extends the lease of this grant to at least `ttl` from `now`: it never becomes shorter. Returns whether it
    /// became longer.
    pub(crate) fn prolong(&mut self, id: GrantId, now: BootTime, ttl: Ttl) -> bool {
        match self {
            Self::Exclusive(grant) => grant.prolong(now, ttl),
            Self::Joint(holders) => holders.prolong(id, now, ttl),
        }
    }

    /// Gives this grant a larger token.
    pub(crate) fn set_token(&mut self, id: GrantId, token: Token) {
        match self {
            Self::Exclusive(grant) => grant.token = token,
            Self::Joint(holders) => holders.set_token(id, token),
        }
    }

    /// Converts the lock to `mode`. The grant with this id is the only one that holds. `past` has the tokens that the
    /// key had before. Returns the lock as it was: to drop one with many ended grants takes long.
    pub(crate) fn convert(&mut self, id: GrantId, mode: Mode, past: Past) -> Lock {
        let entry = self.entry();
        let mut grant = self.grant(id).clone();
        grant.entry = DeadlineEntry::default();
        let before = std::mem::replace(self, Self::of(mode, grant, past));
        self.set_entry(entry);
        before
    }
}

/// Returns the lock `held` of a key; `None` if it is free at `now`.
pub(crate) fn live(held: Option<&mut Lock>, now: BootTime) -> Option<&mut Lock> {
    held.filter(|lock| !lock.is_expired(now))
}

/// Returns the lock and the grant that `owner` holds at `now`. If a token is named, the grant must have it.
#[inline]
pub(crate) fn live_of<'a>(
    held: Option<&'a mut Lock>,
    owner: Owner<'_>,
    token: Option<Token>,
    now: BootTime,
) -> Option<(&'a mut Lock, GrantId)> {
    let lock = held?;
    let is_meant = |grant: &Grant| !grant.is_expired(now) && token.is_none_or(|token| token == grant.token);
    let id = lock.find(owner).filter(|&id| is_meant(lock.grant(id)))?;
    Some((lock, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock is no larger than one grant: allocators give sizes of 64 bytes, and another field would cost every lock
    /// 16 bytes more.
    #[test]
    fn a_lock_is_as_large_as_its_only_grant() {
        assert_eq!((size_of::<Grant>(), size_of::<Lock>()), (64, 64));
    }
}
