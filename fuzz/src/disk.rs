//! A disk whose progress the input determines, and a server that sometimes refuses: obstacles that a node must cope
//! with.

use palisade_core::BootId;
use palisade_core::{IncarnationId, Node, NodeState, Now, Tokens};

use crate::record::HERE;

/// The state that a later incarnation would find, and the one on its way to the disk.
#[derive(Default)]
pub struct Disk {
    handed: Option<(u64, NodeState)>,
    there: Option<(u64, NodeState)>,
    /// The number of the state that must be on disk before anything is promised.
    needed: u64,
    /// True if another server has the file.
    pub is_taken: bool,
    /// True if the node knows that.
    is_known_as_taken: bool,
}

impl Disk {
    /// The boot in which the node runs.
    pub const BOOT: BootId = HERE;

    /// Takes a state of `node` to write; with `needed`, it must be written before the node promises anything.
    pub fn save(&mut self, node: &mut Node, needed: bool, now: Now) {
        let Some((number, state)) = node.state_to_write(needed, now) else { return };
        assert!(self.handed.iter().chain(&self.there).all(|(earlier, _)| number > *earlier), "the newest alone counts");
        if needed {
            self.needed = number;
        }
        self.handed = Some((number, state));
    }

    /// Completes the write of the state that was handed out last.
    pub fn finish(&mut self) {
        if let Some(handed) = self.handed.take() {
            self.there = Some(handed);
        }
    }

    /// Reports the disk's progress to `node`.
    pub fn is_looked_at(&mut self, node: &mut Node) {
        if let Some((number, state)) = &self.there {
            node.written(*number, state.ceiling);
            node.stamped();
        }
        node.file_taken(self.is_taken);
        self.is_known_as_taken = self.is_taken;
    }

    /// Returns true if everything that a later incarnation must know is on disk, and the node knows of no other server;
    /// that shows only at a write.
    pub fn is_up_to_it(&self) -> bool {
        !self.is_known_as_taken && self.there.as_ref().is_some_and(|(number, _)| *number >= self.needed)
    }

    /// Returns the token above which a later incarnation begins: up to it, tokens of `name` may be issued.
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
