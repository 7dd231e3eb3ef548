//! What a key holds while it is locked.

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

/// One lock: the grants by which it is held. It is held until the last of their deadlines has passed; after that it is free,
/// whether or not it is still in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    /// One owner has it alone.
    Exclusive(Grant),
    /// Readers hold it, or holders of permits; at least one.
    Joint(Box<Holders>),
}

impl Lock {
    /// A lock that was free and is granted in `mode`, of a key with this past, which an exclusive grant need not know.
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

    /// Whether all leases are over.
    pub fn is_expired(&self, now: BootTime) -> bool {
        now > self.end()
    }

    /// When the last lease ends.
    pub fn end(&self) -> BootTime {
        match self {
            Self::Exclusive(grant) => grant.deadline,
            Self::Joint(holders) => holders.end(),
        }
    }

    /// When the first lease ends.
    pub fn next_end(&self) -> BootTime {
        match self {
            Self::Exclusive(grant) => grant.deadline,
            Self::Joint(holders) => holders.next_end(),
        }
    }

    /// The grant whose lease ended first, if any is over at `now` while others hold.
    pub(crate) fn ended(&self, now: BootTime) -> Option<GrantId> {
        match self {
            Self::Joint(holders) if now > holders.next_end() && now <= holders.end() => Some(holders.first_to_end()),
            _ => None,
        }
    }

    /// How many grants there are, of which some may be over.
    pub fn len(&self) -> usize {
        match self {
            Self::Exclusive(_) => 1,
            Self::Joint(holders) => holders.len(),
        }
    }

    /// Whether there is no grant: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// How many grants hold at `now`.
    pub fn live_len(&self, now: BootTime) -> usize {
        match self {
            Self::Exclusive(grant) => usize::from(!grant.is_expired(now)),
            Self::Joint(holders) => holders.live_len(now),
        }
    }

    /// The grant of `owner`.
    #[inline]
    pub fn find(&self, owner: Owner<'_>) -> Option<GrantId> {
        match self {
            Self::Exclusive(grant) => grant.is_of(owner).then_some(GrantId::default()),
            Self::Joint(holders) => holders.find(owner),
        }
    }

    /// The grant with this token that lasts longest: of readers and of different permits several may have one.
    pub(crate) fn last_with_token(&self, token: Token) -> Option<GrantId> {
        match self {
            Self::Exclusive(grant) => (grant.token == token).then(GrantId::default),
            Self::Joint(holders) => holders.last_with_token(token),
        }
    }

    /// Returns true if more than `most` grants have this token.
    pub(crate) fn has_more_with_token(&self, token: Token, most: usize) -> bool {
        match self {
            Self::Exclusive(_) => false,
            Self::Joint(holders) => holders.with_token(token).nth(most).is_some(),
        }
    }

    /// The grant of this name.
    pub fn grant(&self, id: GrantId) -> &Grant {
        match self {
            Self::Exclusive(grant) => grant,
            Self::Joint(holders) => holders.grant(id),
        }
    }

    /// The grant of this name, to change what is found by nothing but its name: not its token, nor its deadline.
    pub(crate) fn grant_mut(&mut self, id: GrantId) -> &mut Grant {
        match self {
            Self::Exclusive(grant) => grant,
            Self::Joint(holders) => holders.grant_mut(id),
        }
    }

    /// The mode of the grant of this name.
    pub fn mode(&self, id: GrantId) -> Mode {
        match self {
            Self::Exclusive(_) => Mode::Exclusive,
            Self::Joint(holders) => holders.mode(id),
        }
    }

    /// The oldest grant.
    pub fn first(&self) -> &Grant {
        self.oldest().1
    }

    /// The mode of the oldest grant, and that grant.
    #[inline]
    pub(crate) fn oldest(&self) -> (Mode, &Grant) {
        match self {
            Self::Exclusive(grant) => (Mode::Exclusive, grant),
            Self::Joint(holders) => (holders.mode(holders.oldest()), holders.grant(holders.oldest())),
        }
    }

    /// The name of the oldest grant.
    pub fn first_id(&self) -> GrantId {
        match self {
            Self::Exclusive(_) => GrantId::default(),
            Self::Joint(holders) => holders.oldest(),
        }
    }

    /// Every grant, the oldest first.
    pub fn grants(&self) -> impl Iterator<Item = (Mode, &Grant)> {
        let (single, joint) = match self {
            Self::Exclusive(grant) => (Some((Mode::Exclusive, grant)), None),
            Self::Joint(holders) => (None, Some(holders.iter())),
        };
        single.into_iter().chain(joint.into_iter().flatten())
    }

    /// The largest token of those who hold it at `now`, if anybody does.
    pub(crate) fn largest_token(&self, now: BootTime) -> Option<Token> {
        match self {
            Self::Exclusive(grant) => (!grant.is_expired(now)).then_some(grant.token),
            Self::Joint(holders) => holders.largest_token(now),
        }
    }

    /// The largest token of all grants, and the longest lease that any of them ever had, in milliseconds.
    pub(crate) fn highest(&self) -> Option<(Token, u32)> {
        match self {
            Self::Exclusive(grant) => Some((grant.token, grant.ttl_ms())),
            Self::Joint(holders) => holders.highest(),
        }
    }

    /// All grants came from outside: they keep others out until their deadlines and can be released, nothing else.
    pub fn mark_suspect(&mut self) {
        match self {
            Self::Exclusive(grant) => grant.mark_suspect(),
            Self::Joint(holders) => holders.mark_suspect(),
        }
    }

    /// No later grant has this token, or a smaller one: a reader that proposes it gets a larger one.
    pub(crate) fn retire(&mut self, token: Token) {
        if let Self::Joint(holders) = self {
            holders.retire(token);
        }
    }

    /// It came to its key from elsewhere.
    pub(crate) fn forget_past(&mut self) {
        if let Self::Joint(holders) = self {
            holders.forget_phase();
        }
    }

    /// Heap memory of a lock beside the value itself, in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Exclusive(grant) => grant.heap_bytes(),
            Self::Joint(holders) => size_of::<Holders>() + holders.heap_bytes(),
        }
    }

    /// `next` takes this lock's place under the same key, and so its entry in the deadlines. Returns the lock that was there,
    /// as a caller may drop one of many holders elsewhere.
    pub fn replace(&mut self, mut next: Lock) -> Lock {
        next.set_entry(self.entry());
        std::mem::replace(self, next)
    }

    /// This lock's entry in the node's deadlines.
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

    // What rules do to it.

    /// Takes out one grant of several.
    pub(crate) fn take(&mut self, id: GrantId) -> Option<Grant> {
        match self {
            Self::Joint(holders) if holders.len() > 1 => Some(holders.take(id)),
            _ => None,
        }
    }

    /// The lease of this grant ends at the earliest `ttl` from `now`: it never gets shorter. Whether it got longer.
    pub(crate) fn prolong(&mut self, id: GrantId, now: BootTime, ttl: Ttl) -> bool {
        match self {
            Self::Exclusive(grant) => grant.prolong(now, ttl),
            Self::Joint(holders) => holders.prolong(id, now, ttl),
        }
    }

    /// The token of this grant is raised.
    pub(crate) fn set_token(&mut self, id: GrantId, token: Token) {
        match self {
            Self::Exclusive(grant) => grant.token = token,
            Self::Joint(holders) => holders.set_token(id, token),
        }
    }

    /// The grant of this name, the only one that holds, does so in `mode` from now on; the key has this past.
    pub(crate) fn convert(&mut self, id: GrantId, mode: Mode, past: Past) {
        let entry = self.entry();
        let mut grant = self.grant(id).clone();
        grant.entry = DeadlineEntry::default();
        *self = Self::of(mode, grant, past);
        self.set_entry(entry);
    }
}

/// The lock a key holds at `now`, if it is held.
pub(crate) fn live(held: Option<&mut Lock>, now: BootTime) -> Option<&mut Lock> {
    held.filter(|lock| !lock.is_expired(now))
}

/// The lock that `owner` holds at `now`, by a grant with `token` if one is named, and that grant.
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

    /// Of the sizes that allocators give, 64 is one; a field more costs every lock 16 bytes.
    #[test]
    fn a_lock_is_as_large_as_its_only_grant() {
        assert_eq!((size_of::<Grant>(), size_of::<Lock>()), (64, 64));
    }
}
