//! The reservations of one lock for owners whose turn it is: owner, mode and end of each.

use std::collections::{BTreeMap, BTreeSet};

use crate::lock::modes::Modes;
use crate::queue::shares::Load;
use crate::request::Owner;
use crate::values::mode::{Mode, Wanted};
use crate::values::time::BootTime;

/// A turn for which the lock is reserved.
#[derive(Clone, Copy, Debug)]
struct ReservedTurn {
    mode: Mode,
    until: BootTime,
    /// The time since which the owner had waited when its turn came.
    since: BootTime,
}

/// The reservations of one lock. There can be several if their modes are compatible.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    turns: BTreeMap<Box<[u8]>, ReservedTurn>,
    ends: BTreeSet<(BootTime, Box<[u8]>)>,
    modes: Modes,
    /// The sum of the lengths of all owners, in bytes.
    owner_bytes: usize,
}

impl Reservations {
    /// Returns the load of the reservations of the lock `name`: the places and bytes that they take.
    pub(crate) fn load(&self, name: &[u8]) -> Load {
        let turns = self.turns.len() as u64;
        let each = Load::of_entry(true, &[name]).bytes;
        // Each owner's name is in two tables.
        Load { places: turns, bytes: turns * each + 2 * self.owner_bytes as u64 }
    }

    /// Reserves the lock for `owner`, which had waited since `since` and is answered that its turn has come. `mode` is
    /// compatible with all other reservations.
    pub(crate) fn keep(&mut self, owner: Owner<'_>, mode: Mode, until: BootTime, since: BootTime) {
        let owner: Box<[u8]> = owner.bytes().into();
        self.modes.add(mode);
        self.owner_bytes += owner.len();
        self.ends.insert((until, owner.clone()));
        self.turns.insert(owner, ReservedTurn { mode, until, since });
    }

    /// Ends the reservation of `owner`; returns whether there was one.
    pub(crate) fn end(&mut self, owner: &[u8]) -> bool {
        let Some((owner, ReservedTurn { mode, until, .. })) = self.turns.remove_entry(owner) else { return false };
        self.modes.remove(mode);
        self.owner_bytes -= owner.len();
        self.ends.remove(&(until, owner));
        true
    }

    /// Ends all reservations of the lock; returns their number.
    pub(crate) fn end_all(&mut self) -> usize {
        std::mem::take(self).turns.len()
    }

    /// Ends the first reservation whose end is over at `now`; returns its owner, if there was one.
    pub(crate) fn end_one_over(&mut self, now: BootTime) -> Option<Box<[u8]>> {
        let owner = self.ends.first().filter(|(until, _)| now > *until).map(|(_, owner)| owner.clone())?;
        self.end(&owner).then_some(owner)
    }

    /// Returns the mode that is reserved for `owner`, if one is.
    pub(crate) fn mode_of(&self, owner: Owner<'_>) -> Option<Mode> {
        self.turns.get(owner.bytes()).map(|told| told.mode)
    }

    /// Returns the time since which `owner` had waited when its turn came, if it has a reservation.
    pub(crate) fn since(&self, owner: Owner<'_>) -> Option<BootTime> {
        self.turns.get(owner.bytes()).map(|told| told.since)
    }

    /// Returns the mode in which `owner` may have the lock. It is compatible with the reservations of others and with
    /// the modes `held`.
    pub(crate) fn admitted(&self, owner: Owner<'_>, wanted: Wanted, held: &Modes) -> Option<Mode> {
        match self.mode_of(owner) {
            None => held.admitted(wanted, &self.modes),
            Some(own) => {
                let mut others = self.modes.clone();
                others.remove(own);
                held.admitted(wanted, &others)
            }
        }
    }

    /// Returns the owner and the end of the reservation that ends first.
    pub(crate) fn first(&self) -> Option<(Owner<'_>, BootTime)> {
        let (until, owner) = self.ends.first()?;
        Some((Owner::new(owner).expect("an owner when it came"), *until))
    }

    /// Iterates over the owner, the mode and the end of every reservation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Mode, BootTime)> {
        self.turns.iter().map(|(owner, told)| (&**owner, told.mode, told.until))
    }

    /// Returns whether there are no reservations.
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    const ANY: Wanted = Wanted::Permit { limit: 3, number: None };

    #[test]
    fn turns_stand_side_by_side_and_end_one_by_one() {
        let (mut kept, held) = (Reservations::default(), Modes::default());
        kept.keep(owner("a"), permit(1, 3), at(20).boot, at(0).boot);
        kept.keep(owner("b"), permit(2, 3), at(10).boot, at(0).boot);
        assert_eq!(kept.admitted(owner("c"), ANY, &held), Some(permit(3, 3)));
        assert_eq!(kept.admitted(owner("a"), ANY, &held), Some(permit(1, 3)), "its own does not stand in its way");
        assert_eq!(kept.admitted(owner("c"), Wanted::Exclusive, &held), None);
        assert_eq!(kept.first(), Some((owner("b"), at(10).boot)));
        assert_eq!(kept.end_one_over(at(10).boot), None, "kept through its end");
        assert_eq!(
            (kept.end_one_over(at(11).boot).as_deref(), kept.end_one_over(at(11).boot)),
            (Some(&b"b"[..]), None)
        );
        assert_eq!(kept.admitted(owner("c"), ANY, &held), Some(permit(2, 3)));
        assert!(kept.end(b"a") && !kept.end(b"a") && kept.is_empty());
        assert_eq!(kept.admitted(owner("c"), Wanted::Exclusive, &held), Some(Mode::Exclusive));
    }

    #[test]
    fn what_is_held_counts_too() {
        let (mut kept, mut held) = (Reservations::default(), Modes::default());
        kept.keep(owner("a"), permit(1, 3), at(20).boot, at(0).boot);
        held.add(permit(2, 3));
        assert_eq!(kept.admitted(owner("c"), ANY, &held), Some(permit(3, 3)));
        assert_eq!(kept.end_all(), 1);
        assert_eq!(kept.admitted(owner("c"), ANY, &held), Some(permit(1, 3)));
    }
}
