//! The node set that a client works with.

use palisade_core::Members;
use palisade_core::quorum::NodeId;

/// An id that no server has. It stands for the id of a member that did not answer when the first version of the set was
/// decided.
const NOBODY: NodeId = NodeId(0);

/// A version of the node set, in the form that a client needs.
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
    /// Returns the set of a client with `nodes` configured names and no known version.
    pub fn of_names(nodes: usize) -> Self {
        Self { version: 0, seats: (0..nodes).map(|node| Seat { node, id: None }).collect() }
    }

    /// Returns `members` as a set. `place` returns the number of the node at an address.
    pub fn of_members(members: &Members, place: impl Fn(&str) -> usize) -> Self {
        let seat = |member: &palisade_core::Member| Seat { node: place(&member.address), id: member.id };
        Self { version: members.version, seats: members.list.iter().map(seat).collect() }
    }

    /// Returns the version of the set; 0 if the client knows none.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn len(&self) -> usize {
        self.seats.len()
    }

    /// Returns where the member with this index is: its node's number, and the id of the server that must be there.
    /// `None` stands for any server, as before the first version.
    pub(super) fn seat(&self, seat: usize) -> (usize, Option<NodeId>) {
        let Seat { node, id } = self.seats[seat];
        (node, (self.version > 0).then(|| id.map_or(NOBODY, NodeId)))
    }

    /// Returns the id of the server for each index, where known.
    pub(super) fn ids(&self) -> Vec<Option<NodeId>> {
        self.seats.iter().map(|seat| seat.id.map(NodeId)).collect()
    }
}
