//! The set of nodes that a client works with, and how it takes up the next version.

use std::sync::Arc;

use palisade_core::quorum::{NodeId, Refused};
use palisade_core::{Members, Now};

use super::{Client, Stage, Status, Step};
use crate::rules::Rule;

/// No server is this one: a member that could not be asked when the set was founded.
const NOBODY: NodeId = NodeId(0);

/// A version of the set, as a client works with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Set {
    version: u64,
    seats: Vec<Seat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seat {
    node: usize,
    id: Option<u128>,
}

impl Set {
    /// What a client is configured with: so many names, and nobody told it of a version.
    pub fn of_names(nodes: usize) -> Self {
        Self { version: 0, seats: (0..nodes).map(|node| Seat { node, id: None }).collect() }
    }

    /// `members`, whose nodes are in these places.
    pub fn of_members(members: &Members, place: impl Fn(&str) -> usize) -> Self {
        let seat = |member: &palisade_core::Member| Seat { node: place(&member.address), id: member.id };
        Self { version: members.version, seats: members.list.iter().map(seat).collect() }
    }

    /// Which version; 0: none.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn len(&self) -> usize {
        self.seats.len()
    }

    /// The place of the node in this seat, and which server that is; before the first version, whichever has the name.
    pub(super) fn seat(&self, seat: usize) -> (usize, Option<NodeId>) {
        let Seat { node, id } = self.seats[seat];
        (node, (self.version > 0).then(|| id.map_or(NOBODY, NodeId)))
    }

    /// Which server is in each seat, as far as that is known.
    fn ids(&self) -> Vec<Option<NodeId>> {
        self.seats.iter().map(|seat| seat.id.map(NodeId)).collect()
    }
}

impl Client {
    /// The version that it works with.
    pub fn version(&self) -> u64 {
        self.works_with.version
    }

    /// It learns that `set` is the set of nodes: what it holds goes over, what it asks or waits for begins anew.
    pub fn learns(&mut self, set: Arc<Set>, now: Now) -> Step {
        if set.version <= self.version() {
            return Step::default();
        }
        self.works_with = set;
        let stays = match self.stage {
            Stage::Idle => false,
            Stage::Acquiring { .. } | Stage::Waiting(_) => self.without.is(Rule::AcquisitionsBeginAnew),
            Stage::Holding { .. } => self.without.is(Rule::HeldByTheNewMajority),
        };
        match self.stage {
            _ if stays => Step::default(),
            Stage::Idle => Step::default(),
            Stage::Acquiring { .. } => self.give_back(Status::Refused(Refused::TooFewNodes { is_lasting: false }), now),
            Stage::Waiting(_) => self.give_back(Status::Told(None), now),
            Stage::Holding { .. } => self.moves(now),
        }
    }

    /// Its process was killed, and starts with the names that it is configured with.
    pub fn starts_from(&mut self, set: Arc<Set>) {
        self.works_with = set;
    }

    fn moves(&mut self, now: Now) -> Step {
        self.asks = Arc::clone(&self.works_with);
        self.open.clear();
        let ids = self.works_with.ids();
        self.keeps(now, |keeping, random| keeping.move_to(&ids, now.boot, random))
    }
}
