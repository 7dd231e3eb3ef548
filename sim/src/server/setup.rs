//! A node's settings, and the content of its disk when it starts.

use palisade_core::{BootId, Found as Ties, NodeState};

/// A node's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// `lock.max-ttl`, in milliseconds.
    pub max_ttl_ms: u32,
    /// `lock.max-clock-skew`, in milliseconds.
    pub skew_ms: u32,
    /// `lock.handoff-window`, in milliseconds.
    pub window_ms: u32,
}

/// The content of a server's disk when it starts.
#[derive(Clone, Debug)]
pub struct Found {
    /// The state file, if there is a readable one.
    pub state: Option<NodeState>,
    /// The facts that show whether the data is that of the state file: file identities, stamp, AOF.
    pub ties: Ties,
    /// The locks in the file that the server loads, by key, as records.
    pub locks: Vec<(u32, Vec<u8>)>,
    /// True if the server loads `locks` from the AOF, not from an RDB file.
    pub from_aof: bool,
    /// True if the AOF is on from now on, synced at every command.
    pub aof_always: bool,
    /// The identity of the machine's present boot.
    pub boot: BootId,
}
