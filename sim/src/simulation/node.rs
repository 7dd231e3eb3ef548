//! A node of a run: machine, server, files and replica.

use palisade_core::{AofFile, FileId, IncarnationId, NodeState};

use super::machine::Machine;
use super::plan::{self, Keeps};
use crate::history::TimeUs;
use crate::server::Server;

/// A node: its machine, its server while that runs, and its files.
#[derive(Default)]
pub(super) struct Node {
    pub(super) machine: Machine,
    pub(super) server: Option<Server>,
    /// Lives of the process.
    pub(super) lives: u32,
    pub(super) keeps: Keeps,
    /// Its first id; another with a new disk.
    pub(super) id: u128,
    pub(super) files: Files,
    /// How many files were made on its disk: each is another one.
    pub(super) files_made: u64,
    /// A copy of its files.
    pub(super) copy: Option<Files>,
    /// A state file that lies aside while another one is used.
    pub(super) aside: Option<(NodeState, FileId)>,
    /// A state that the disk has not finished.
    pub(super) writing: Option<NodeState>,
    pub(super) hangs_until: TimeUs,
    /// What its replica has, and when it had it; newest last.
    pub(super) replica: Vec<(TimeUs, Followed)>,
    pub(super) armed: Option<TimeUs>,
    /// For how many looks in a row somebody has waited there for a lock that is free.
    pub(super) idle_ticks: u32,
    /// When its process ended last.
    pub(super) died: TimeUs,
    /// What it told its replicas last, and when.
    pub(super) told: (TimeUs, u64, u32),
}

/// What is on the disk of a node.
#[derive(Clone, Default)]
pub(super) struct Files {
    /// The state file, and which file that is.
    pub(super) state: Option<(NodeState, FileId)>,
    /// The data, and which file the AOF is.
    pub(super) data: Option<Vec<(u32, Vec<u8>)>>,
    pub(super) aof: Option<AofFile>,
    /// Which incarnation uses the data.
    pub(super) stamp: Option<IncarnationId>,
}

/// What a replica knows of its master.
#[derive(Clone)]
pub(super) struct Followed {
    pub(super) locks: Vec<(u32, Vec<u8>)>,
    pub(super) ceiling: u64,
    pub(super) outstanding_ttl_ms: u32,
}

impl Node {
    /// Node `n`, which was never started.
    pub(super) fn new(n: usize, machine: &plan::Machine) -> Self {
        Self { machine: Machine::new(machine), keeps: machine.keeps, id: n as u128 + 1, ..Self::default() }
    }

    /// A file that was not there before.
    pub(super) fn new_file(&mut self) -> FileId {
        self.files_made += 1;
        FileId { number: self.files_made, born_ns: 0 }
    }

    /// The state file is replaced by one that says this.
    pub(super) fn write(&mut self, state: NodeState) {
        let file = self.new_file();
        self.files.state = Some((NodeState { file: Some(file), ..state }, file));
    }
}
