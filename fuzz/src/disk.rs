//! A disk whose progress the input determines, under a server that sometimes refuses. A node has to work with both.

use palisade_core::BootId;
use palisade_core::{IncarnationId, Node, NodeState, Now, Tokens};

use crate::record::HERE;

/// The state that the disk has, which a later incarnation would find; and the state that is being written.
#[derive(Default)]
pub struct Disk {
    handed: Option<(u64, NodeState)>,
    there: Option<(u64, NodeState)>,
    /// The number of the state that must be on the disk before the node may promise anything.
    needed: u64,
    /// True if another server has taken the state file.
    pub is_taken: bool,
    /// True if the node knows that another server has taken the state file.
    is_known_as_taken: bool,
}

impl Disk {
    /// The boot of the machine on which the node runs.
    pub const BOOT: BootId = HERE;

    /// Begins to write a state of `node`. With `needed`, the node may promise nothing before the state is written.
    pub fn save(&mut self, node: &mut Node, needed: bool, now: Now) {
        let Some((number, state)) = node.state_to_write(needed, now) else { return };
        assert!(self.handed.iter().chain(&self.there).all(|(earlier, _)| number > *earlier), "the newest alone counts");
        if needed {
            self.needed = number;
        }
        self.handed = Some((number, state));
    }

    /// Completes the write that is under way.
    pub fn finish(&mut self) {
        if let Some(handed) = self.handed.take() {
            self.there = Some(handed);
        }
    }

    /// Tells `node` which states are on the disk by now.
    pub fn is_looked_at(&mut self, node: &mut Node) {
        if let Some((number, state)) = &self.there {
            node.on_written(*number, state.ceiling);
            node.on_stamped();
        }
        node.set_file_taken(self.is_taken);
        self.is_known_as_taken = self.is_taken;
    }

    /// Returns true if the disk has everything that a later incarnation must know, and the node does not know of
    /// another server that has taken the file. (The node notices that only when it writes.)
    pub fn is_up_to_it(&self) -> bool {
        !self.is_known_as_taken && self.there.as_ref().is_some_and(|(number, _)| *number >= self.needed)
    }

    /// Returns the highest token of `name` that may be issued: a later incarnation starts above it.
    pub fn ceiling_of(&self, name: &[u8]) -> u64 {
        let Some((_, state)) = &self.there else { return 0 };
        let mut tokens = Tokens::new(0);
        tokens.set_ceiling(state.ceiling);
        tokens.restore_stripes(&state.stripes);
        tokens.ceiling_of(name)
    }

    /// Returns true if the state on the disk, if there is one, is of this incarnation.
    pub fn is_of(&self, incarnation: IncarnationId) -> bool {
        self.there.as_ref().is_none_or(|(_, state)| state.incarnation() == incarnation)
    }
}
