//! A client process: what it is started with, and what its tasks share.

use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

use palisade_client::Client;
use tokio::sync::watch;

use super::journal::Journal;

/// What a client process is started with.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Which client it is.
    #[arg(long)]
    pub number: u32,
    /// Of its choices.
    #[arg(long)]
    pub seed: u64,
    /// Where it writes what it did.
    #[arg(long)]
    pub journal: PathBuf,
    /// Where the register is.
    #[arg(long)]
    pub register: PathBuf,
    /// The nodes.
    #[arg(long, value_delimiter = ',')]
    pub nodes: Vec<String>,
    /// The nodes are one cluster.
    #[arg(long)]
    pub cluster: bool,
    /// The sockets of the agents.
    #[arg(long, value_delimiter = ',')]
    pub agents: Vec<String>,
    /// So many keys, from 0 on, are wanted by all.
    #[arg(long)]
    pub contended_keys: u32,
    /// One more key, which nobody else wants while this client lives.
    #[arg(long)]
    pub own_key: u32,
    /// So many tasks.
    #[arg(long)]
    pub tasks: u32,
    /// The longest lease.
    #[arg(long)]
    pub max_ttl_ms: u64,
}

/// The name of a key.
pub fn key_name(key: u32) -> String {
    format!("chaos:{key}")
}

/// What the tasks of a process have in common.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) client: Client,
    pub(super) journal: Journal,
    /// So many acquisitions have begun.
    pub(super) acquisitions: AtomicU32,
    finish: watch::Receiver<bool>,
}

impl Shared {
    /// Begins a process in which nothing was acquired; `finish` says when to end it.
    pub(super) fn new(settings: Settings, client: Client, journal: Journal, finish: watch::Receiver<bool>) -> Self {
        Self { settings, client, journal, acquisitions: AtomicU32::new(0), finish }
    }

    /// What is held is to be given back, and nothing new begun.
    pub(super) fn is_to_finish(&self) -> bool {
        *self.finish.borrow()
    }
}
