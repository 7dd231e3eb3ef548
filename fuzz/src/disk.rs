//! A disk whose progress the input determines, and a server that sometimes refuses. A node must cope with both.

use palisade_core::BootId;
use palisade_core::{IncarnationId, Node, NodeState, Now, Tokens};

use crate::record::HERE;

/// The state that a later incarnation would find, and the state that is being written.
#[derive(Default)]
pub struct Disk {
    handed: Option<(u64, NodeState)>,
    there: Option<(u64, NodeState)>,
    /// The number of the state that must be on disk before the node may promise anything.
    needed: u64,
    /// True if another server uses the state file.
    pub is_taken: bool,
    /// True if the node knows that another server uses the state file.
    is_known_as_taken: bool,
}

impl Disk {
    /// The boot in which the node runs.
    pub const BOOT: BootId = HERE;

    /// Takes a state of `node` for writing. With `needed`, the node may not promise anything before it is written.
    pub fn save(&mut self, node: &mut Node, needed: bool, now: Now) {
        let Some((number, state)) = node.state_to_write(needed, now) else { return };
        assert!(self.handed.iter().chain(&self.there).all(|(earlier, _)| number > *earlier), "the newest alone counts");
        if needed {
            self.needed = number;
        }
        self.handed = Some((number, state));
    }

    /// Completes the pending write.
    pub fn finish(&mut self) {
        if let Some(handed) = self.handed.take() {
            self.there = Some(handed);
        }
    }

    /// Reports the progress of the disk to `node`.
    pub fn is_looked_at(&mut self, node: &mut Node) {
        if let Some((number, state)) = &self.there {
            node.written(*number, state.ceiling);
            node.stamped();
        }
        node.file_taken(self.is_taken);
        self.is_known_as_taken = self.is_taken;
    }

    /// Returns true if the disk has everything that a later incarnation must know, and the node knows of no other
    /// server that uses the file. (A node notices another server only when it writes.)
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

    /// Returns true if this incarnation writes to the disk.
    pub fn is_of(&self, incarnation: IncarnationId) -> bool {
        self.there.as_ref().is_none_or(|(_, state)| state.incarnation() == incarnation)
    }
}
