//! Chooses which of several permits to ask for.
//!
//! A permit over a quorum is one number that a majority granted: an exclusive lock on that number. A client that wants
//! one of `limit` permits names the same number to all nodes. Another client may have that number, or be asking for it.
//!
//! 1. The client first draws any number at random ([`first`]). If few permits are held, that number is probably free,
//!    and one round trip is enough.
//! 2. If it is not free, the client asks the nodes who holds what (LOCK.INFO). It draws from the numbers that a
//!    majority shows as free, and of those from the ones that most nodes show ([`Choice`]). LOCK.INFO reserves nothing,
//!    so it hinders nobody.
//! 3. If no number is free at a majority, or others wait already, it joins the queues with one ticket for all nodes
//!    ([`Turn`](super::Turn)). Then it asks for the number that most nodes reserve for it. If that fails too, it asks
//!    the nodes again.
//!
//! Eight clients at once for eight permits on five nodes need one round at the median and three at the 99th percentile
//! (test `a_burst_for_as_many_permits_as_there_are`). If they queued instead of asking first, they would need dozens.
//! Each node would reserve another number for each client, and that keeps the other clients out until the number is
//! given back. If all took the lowest free number, they would collide again and again.

use std::collections::{BTreeMap, BTreeSet};

use super::ask::{NodeId, majority};
use crate::values::mode::Mode;

/// Draws the number to ask for when nothing is known yet: from 1 to `limit`, by the random number `random`.
pub fn first(limit: u16, random: u64) -> u16 {
    // The remainder is below `limit`, which has 16 bits.
    1 + u16::try_from(random % u64::from(limit.max(1))).unwrap_or(0)
}

/// Returns the permit numbers up to `limit` that a node could grant, if the owners it shows have the modes `grants`. If
/// requests wait there, it could grant none.
pub fn free(limit: u16, grants: &[Mode], has_waiters: bool) -> Vec<u16> {
    let (mut least, mut taken) = (limit, BTreeSet::new());
    for grant in grants {
        match grant {
            Mode::Permit(permit) if permit.number() <= limit => {
                least = least.min(permit.limit());
                taken.insert(permit.number());
            }
            // A permit above the limit, or a lock of another mode, is incompatible with every permit.
            _ => return vec![],
        }
    }
    if has_waiters {
        return vec![];
    }
    (1..=least).filter(|number| !taken.contains(number)).collect()
}

/// A query of all nodes, which finds a permit number that is free at a majority.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The answer of each node so far.
    views: Vec<View>,
}

/// The answer of one node, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum View {
    /// The node has not answered yet.
    Open,
    /// The node cannot be asked, or did not answer in time.
    None,
    /// The server that answered, and the numbers that are free there.
    Free(NodeId, Vec<u16>),
}

/// The state of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceProgress {
    /// More nodes have to answer.
    Goes,
    /// A number is free at a majority: the caller asks for [`Choice::number`] now.
    Free,
    /// No number is free at a majority: the caller joins the queues.
    Full,
}

impl Choice {
    /// Begins a query of `nodes` nodes.
    pub fn begin(nodes: usize) -> Self {
        Self { views: vec![View::Open; nodes] }
    }

    /// Handles the numbers that are free on `node` (see [`free`]), and the id of its server. `None` if the node cannot
    /// be asked or did not answer in time.
    pub fn on_view(&mut self, node: usize, view: Option<(NodeId, Vec<u16>)>) -> ChoiceProgress {
        self.views[node] = view.map_or(View::None, |(id, free)| View::Free(id, free));
        let needed = majority(self.views.len());
        let most = self.counts().into_values().max().unwrap_or(0);
        let open = self.views.iter().filter(|view| **view == View::Open).count();
        if most >= needed {
            ChoiceProgress::Free
        } else if most + open >= needed {
            ChoiceProgress::Goes
        } else {
            ChoiceProgress::Full
        }
    }

    /// Returns for each number how many servers it is free on.
    fn counts(&self) -> BTreeMap<u16, usize> {
        let (mut counts, mut servers) = (BTreeMap::new(), BTreeSet::new());
        for view in &self.views {
            // Two names for one server count as one.
            if let View::Free(id, free) = view
                && servers.insert(id)
            {
                free.iter().for_each(|number| *counts.entry(*number).or_default() += 1);
            }
        }
        counts
    }

    /// Returns the number that is free on the most servers, if those are a majority. If several are, `random` decides.
    pub fn number(&self, random: u64) -> Option<u16> {
        let mut counts = self.counts();
        counts.retain(|_, count| *count >= majority(self.views.len()));
        most(&counts, random)
    }
}

/// Returns one of the numbers with the highest count. If there are several, `random` decides.
pub(super) fn most(counts: &BTreeMap<u16, usize>, random: u64) -> Option<u16> {
    let highest = counts.values().max()?;
    let best: Vec<u16> = counts.iter().filter(|(_, count)| *count == highest).map(|(number, _)| *number).collect();
    let index = usize::try_from(random % best.len() as u64).unwrap_or(0);
    best.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::mode::Permit;
    use crate::values::mode::tests::all;

    #[test]
    fn the_first_number_is_one_of_them() {
        for limit in [1, 2, 8, 65_535] {
            for random in [0, 7, u64::MAX] {
                assert!((1..=limit).contains(&first(limit, random)));
            }
        }
        let numbers: BTreeSet<_> = (0..8).map(|random| first(8, random)).collect();
        assert_eq!(numbers.len(), 8, "each of them can be drawn");
    }

    /// Compares `free` with the rule of compatibility, applied to each number and each grant.
    #[test]
    fn free_is_what_goes_together_with_every_grant() {
        let modes = all(4);
        let sets = modes.iter().flat_map(|one| modes.iter().map(move |other| vec![*one, *other]));
        for grants in sets.chain(modes.iter().map(|one| vec![*one])).chain([vec![]]) {
            for limit in 1..=5 {
                let expected = (1..=limit).filter(|number| {
                    let wanted = Mode::Permit(Permit::new(*number, limit).unwrap());
                    grants.iter().all(|grant| grant.is_compatible(wanted))
                });
                assert_eq!(free(limit, &grants, false), expected.collect::<Vec<_>>(), "{limit} beside {grants:?}");
                assert!(free(limit, &grants, true).is_empty());
            }
        }
    }

    fn look(views: &[Option<(u128, &[u16])>]) -> (ChoiceProgress, Vec<u16>) {
        let mut choice = Choice::begin(5);
        let mut progress = ChoiceProgress::Goes;
        for (node, view) in views.iter().enumerate() {
            progress = choice.on_view(node, view.map(|(id, free)| (NodeId(id), free.to_vec())));
        }
        let numbers: BTreeSet<_> = (0..10).filter_map(|random| choice.number(random)).collect();
        (progress, numbers.into_iter().collect())
    }

    #[test]
    fn a_number_is_drawn_from_those_that_are_free_at_most_nodes() {
        use ChoiceProgress::*;
        let cases: [(&[Option<(u128, &[u16])>], _, &[u16]); 9] = [
            (&[], Goes, &[]),
            (&[Some((0, &[1, 2])), Some((1, &[1, 2]))], Goes, &[]),
            (&[Some((0, &[1, 2])), Some((1, &[1, 2])), Some((2, &[1, 2]))], Free, &[1, 2]),
            (&[Some((0, &[1, 2])), Some((1, &[1, 2])), Some((2, &[1, 2])), Some((3, &[2]))], Free, &[2]),
            // Nothing is free on three servers, which is enough to know that no number is free at a majority.
            (&[Some((0, &[])), Some((1, &[])), Some((2, &[]))], Full, &[]),
            // Each server has a free number, but no number is free at a majority.
            (&[Some((0, &[1])), Some((1, &[2])), Some((2, &[3])), Some((3, &[1])), Some((4, &[2]))], Full, &[]),
            // A majority may still show the number 3 as free.
            (&[None, None, Some((2, &[3])), Some((3, &[3]))], Goes, &[]),
            (&[None, None, None], Full, &[]),
            // A server that answers under three names counts once.
            (&[Some((0, &[3])), Some((0, &[3])), Some((0, &[3])), Some((1, &[3]))], Goes, &[]),
        ];
        for (views, progress, numbers) in cases {
            assert_eq!(look(views), (progress, numbers.to_vec()), "{views:?}");
        }
    }
}
