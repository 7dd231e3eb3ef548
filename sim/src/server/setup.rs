//! What a node is set to, and what it finds on its disk when it starts.

use palisade_core::{BootId, Found as Ties, NodeState};

/// How a node is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// `lock.max-ttl`, in milliseconds.
    pub max_ttl_ms: u32,
    /// `lock.max-clock-skew`, in milliseconds.
    pub skew_ms: u32,
    /// `lock.handoff-window`, in milliseconds.
    pub window_ms: u32,
}

/// What a server finds when it starts.
#[derive(Clone, Debug)]
pub struct Found {
    /// The state file, if there is a readable one.
    pub state: Option<NodeState>,
    /// What ties that to the data.
    pub ties: Ties,
    /// The locks in the file that it loads, by key, as records.
    pub locks: Vec<(u32, Vec<u8>)>,
    /// That file is the AOF.
    pub from_aof: bool,
    /// The AOF is on from here on, synced at every command.
    pub aof_always: bool,
    /// The boot of the machine.
    pub boot: BootId,
}
