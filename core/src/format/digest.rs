//! A digest of all locks, which shows whether the loaded locks are those at the end of the last incarnation.

use sha2::{Digest as _, Sha256};

use super::fields::flags;
use crate::lock::Lock;
use crate::lock::grant::Grant;
use crate::request::NoteSequence;
use crate::values::key::Key;
use crate::values::mode::Mode;
use crate::values::time::BootTime;

/// Sums over the hashes of all locks; their order does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocksDigest {
    /// The number of grants in the digest.
    pub count: u64,
    /// The sum of hashes that include the deadlines on this boot's clock. It is equal for two sets of locks only if
    /// they are equal to the microsecond.
    pub exact: u128,
    /// The sum of hashes that include the ttls, and no deadlines. It is the same for the same locks after another boot,
    /// when their leases start again in full.
    pub other_boot: u128,
}

impl LocksDigest {
    /// Adds the grants of the lock in `key` for whose deadlines `counts` returns true.
    pub fn add(&mut self, key: Key<'_>, lock: &Lock, counts: impl Fn(BootTime) -> bool) {
        let picked = lock.grants().filter(|(_, grant)| counts(grant.deadline()));
        picked.for_each(|(mode, grant)| self.add_grant(key, mode, grant));
    }

    fn add_grant(&mut self, Key { db, name }: Key<'_>, mode: Mode, grant: &Grant) {
        let mut hash = Sha256::new();
        hash.update(db.to_le_bytes());
        for bytes in [name, grant.owner(), grant.note()] {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        hash.update(grant.token().get().to_le_bytes());
        hash.update(grant.holds().to_le_bytes());
        hash.update(grant.ttl_ms().to_le_bytes());
        // A grant that was not adopted has the same hash as in versions without adoption, so that their digests stay
        // valid.
        hash.update([flags(grant)]);
        // An exclusive grant has the same hash as before other modes existed, so that digests of earlier versions stay
        // valid.
        match mode {
            Mode::Exclusive => {}
            Mode::Shared => hash.update([0; 4]),
            Mode::Permit(permit) => {
                hash.update(permit.number().to_le_bytes());
                hash.update(permit.limit().to_le_bytes());
            }
        }
        if grant.note_sequence() > NoteSequence::FIRST {
            hash.update(grant.note_sequence().get().to_le_bytes());
        }
        let other_boot = short(hash.clone());
        hash.update(grant.deadline().as_us().to_le_bytes());
        self.count += 1;
        self.exact = self.exact.wrapping_add(short(hash));
        self.other_boot = self.other_boot.wrapping_add(other_boot);
    }
}

fn short(hash: Sha256) -> u128 {
    let bytes: [u8; 32] = hash.finalize().into();
    u128::from_le_bytes(std::array::from_fn(|n| bytes[n]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    fn of(locks: &[(u32, &str, Lock)]) -> LocksDigest {
        let mut digest = LocksDigest::default();
        for (db, name, lock) in locks {
            digest.add(Key { db: *db, name: name.as_bytes() }, lock, |_| true);
        }
        digest
    }

    #[test]
    fn order_does_not_matter_and_everything_else_does() {
        let both = of(&[(0, "a", mine(1)), (1, "b", mine(2))]);
        assert_eq!(both, of(&[(1, "b", mine(2)), (0, "a", mine(1))]));
        let mut extended = mine(1);
        extended.prolong(Default::default(), at(500).boot, ttl(1_000));
        let mut renoted = mine(1);
        renoted.grant_mut(Default::default()).set_note(Default::default(), NoteSequence::new(Some(1)).unwrap());
        let mut adopted = mine(1);
        adopted.grant_mut(Default::default()).mark_adopted();
        for other in [
            of(&[]),
            of(&[(0, "a", mine(1))]),
            of(&[(0, "a", mine(1)), (1, "b", mine(1))]),
            of(&[(1, "a", mine(1)), (1, "b", mine(2))]),
            of(&[(0, "b", mine(1)), (1, "a", mine(2))]),
            of(&[(0, "a", suspect()), (1, "b", mine(2))]),
            of(&[(0, "a", extended.clone()), (1, "b", mine(2))]),
            of(&[(0, "a", adopted), (1, "b", mine(2))]),
            of(&[(0, "a", renoted), (1, "b", mine(2))]),
        ] {
            assert_ne!(other.exact, both.exact);
        }
        // After another boot leases start again in full, so only the ttl counts.
        let later = of(&[(0, "a", extended), (1, "b", mine(2))]);
        assert_eq!(later.other_boot, both.other_boot);
    }
}
