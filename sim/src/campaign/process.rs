//! A client process: its settings, and the state that its tasks share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use palisade_client::Client;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::journal::{Journal, Line};
use super::register::{Access, Connection};
use super::resource::Resource;
use crate::history::Holder;

/// The settings of a client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The client's number.
    pub number: u32,
    /// The seed of the process's choices.
    pub seed: u64,
    /// The path of the journal, to which the process writes what it did.
    pub journal: PathBuf,
    /// The register's path.
    pub register: PathBuf,
    /// The addresses of the nodes.
    pub nodes: Vec<String>,
    /// True if the nodes are one cluster.
    pub cluster: bool,
    /// The addresses of the agents.
    pub agents: Vec<String>,
    /// The resources that check tokens.
    pub resources: Vec<Resource>,
    /// The number of keys, from 0 on, for which all clients compete.
    pub contended_keys: u32,
    /// One more key, which no other client wants.
    pub own_key: u32,
    /// The number of tasks that take locks with the client crate.
    pub tasks: u32,
    /// The longest lease, in milliseconds.
    pub max_ttl_ms: u64,
}

/// Returns the name of a key.
pub fn key_name(key: u32) -> String {
    format!("chaos:{key}")
}

/// State that the tasks of a process share.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) client: Client,
    journal: Journal,
    acquisitions: AtomicU32,
    finish: watch::Receiver<bool>,
}

impl Shared {
    /// Returns the state of a process that has acquired nothing yet. `finish` becomes true when the process has to end.
    pub(super) fn new(settings: Settings, client: Client, journal: Journal, finish: watch::Receiver<bool>) -> Self {
        Self { settings, client, journal, acquisitions: AtomicU32::new(0), finish }
    }

    /// Returns true if the tasks must release their locks and begin nothing new.
    pub(super) fn is_to_finish(&self) -> bool {
        *self.finish.borrow()
    }

    pub(super) fn write(&self, line: Line) {
        self.journal.write(&line);
    }
}

/// State that every task of a client process has.
pub(super) struct Task {
    pub(super) shared: Arc<Shared>,
    pub(super) dice: ChaCha8Rng,
    register: Connection,
}

impl Task {
    /// Returns a task with its own random choices.
    pub(super) async fn new(shared: &Arc<Shared>, number: u64) -> Self {
        let register = Connection::open(&shared.settings.register).await.expect("the register is there");
        let dice = ChaCha8Rng::seed_from_u64(shared.settings.seed.wrapping_mul(1_000).wrapping_add(number));
        Self { shared: Arc::clone(shared), dice, register }
    }

    pub(super) fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.dice.random_range(from..=to))
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.dice.random_range(0..bound)
    }

    pub(super) fn once_in(&mut self, times: u32) -> bool {
        self.dice.random_ratio(1, times)
    }

    pub(super) fn write(&self, line: Line) {
        self.shared.write(line);
    }

    pub(super) fn is_to_finish(&self) -> bool {
        self.shared.is_to_finish()
    }

    /// Begins the next acquisition of this process, and returns its holder.
    pub(super) fn set_out(&self) -> Holder {
        let acquisition = self.shared.acquisitions.fetch_add(1, Ordering::Relaxed);
        Holder { client: self.shared.settings.number, acquisition }
    }

    /// Reads or writes the register. Returns its current number, or `None` if the token is too small.
    pub(super) async fn access(&mut self, access: Access) -> Option<u64> {
        self.register.access(access).await.expect("the register is there")
    }
}
