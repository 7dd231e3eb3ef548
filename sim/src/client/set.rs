//! The set of nodes that a client works with.

use palisade_core::Members;
use palisade_core::quorum::NodeId;

/// No server is this one: a member that could not be asked when the set was founded.
const NOBODY: NodeId = NodeId(0);

/// A version of the set, as a client works with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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
    pub(super) fn ids(&self) -> Vec<Option<NodeId>> {
        self.seats.iter().map(|seat| seat.id.map(NodeId)).collect()
    }
}
