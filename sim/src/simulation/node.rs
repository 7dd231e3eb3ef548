//! A node of a run: its machine, server, files and replica.

use palisade_core::{AofFile, FileId, IncarnationId, NodeState};

use super::machine::Machine;
use super::plan::{self, Keeps};
use crate::history::TimeUs;
use crate::server::Server;

/// A node: its machine, its server while it runs, and its files.
#[derive(Default)]
pub(super) struct Node {
    pub(super) machine: Machine,
    pub(super) server: Option<Server>,
    /// The number of times that the server process was started.
    pub(super) lives: u32,
    pub(super) keeps: Keeps,
    /// The id that the server gets when it starts without a state file. A new disk changes it.
    pub(super) id: u128,
    pub(super) files: Files,
    /// The number of files made on the node's disk. The id of a file derives from it.
    pub(super) files_made: u64,
    /// A copy of the node's files.
    pub(super) copy: Option<Files>,
    /// A state file set aside while another one is in use.
    pub(super) aside: Option<(NodeState, FileId)>,
    /// A state that the disk has not finished writing.
    pub(super) writing: Option<NodeState>,
    pub(super) hangs_until: TimeUs,
    /// The states that the replica received, with their times, newest last.
    pub(super) replica: Vec<(TimeUs, Followed)>,
    pub(super) armed: Option<TimeUs>,
    /// The number of consecutive checks in which a request waited there for a free lock.
    pub(super) idle_ticks: u32,
    /// The last end of the node's process.
    pub(super) died: TimeUs,
    /// The last ceiling of tokens and the last longest lease that the node sent to its replicas, with the time of
    /// sending.
    pub(super) told: (TimeUs, u64, u32),
}

/// The files on the disk of a node.
#[derive(Clone, Default)]
pub(super) struct Files {
    /// The state file, and its id.
    pub(super) state: Option<(NodeState, FileId)>,
    /// The locks in the last snapshot, as records by key; `None` if there is none.
    pub(super) data: Option<Vec<(u32, Vec<u8>)>>,
    /// The AOF, with its id.
    pub(super) aof: Option<AofFile>,
    /// The incarnation that uses the data.
    pub(super) stamp: Option<IncarnationId>,
}

/// A replica's knowledge of its master.
#[derive(Clone)]
pub(super) struct Followed {
    pub(super) locks: Vec<(u32, Vec<u8>)>,
    pub(super) ceiling: u64,
    pub(super) outstanding_ttl_ms: u32,
}

impl Node {
    /// Returns node `n`, whose server was never started.
    pub(super) fn new(n: usize, machine: &plan::Machine) -> Self {
        Self { machine: Machine::new(machine), keeps: machine.keeps, id: n as u128 + 1, ..Self::default() }
    }

    /// Returns the id of a new file.
    pub(super) fn new_file(&mut self) -> FileId {
        self.files_made += 1;
        FileId { number: self.files_made, born_ns: 0 }
    }

    /// Replaces the state file by one with this state.
    pub(super) fn write(&mut self, state: NodeState) {
        let file = self.new_file();
        self.files.state = Some((NodeState { file: Some(file), ..state }, file));
    }
}
