//! What a campaign is run with.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::cluster;
use super::kinds::Kind;

/// Nodes that are independent: two may be away at a time.
pub const NODES: usize = 5;

/// Tasks of each.
const TASKS: u32 = 11;

/// The same in brief: those who wait at the end have all had their turn soon.
const TASKS_IN_BRIEF: u32 = 5;

/// What a campaign is run with.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// The server program.
    #[arg(long, default_value = "redis-server", env = "PALISADE_SERVER")]
    pub server: PathBuf,
    /// The module.
    #[arg(long, env = "PALISADE_MODULE", value_parser = absolute)]
    pub module: PathBuf,
    /// The `palisade` program, for outages under `palisade elect`; without it, they are left out.
    #[arg(long, env = "PALISADE_PROGRAM", value_parser = absolute)]
    pub palisade: Option<PathBuf>,
    /// For how long faults are done, in seconds.
    #[arg(long, default_value_t = 300)]
    pub seconds: u64,
    /// Of all choices; random unless given.
    // Ten digits are easy to type again.
    #[arg(long, env = "PALISADE_SEED", default_value_t = rand::random::<u64>() % 10_000_000_000, hide_default_value = true)]
    pub seed: u64,
    /// `lock.max-ttl` in milliseconds, and the longest lease that is asked for.
    #[arg(long = "max-ttl", default_value_t = 2_000)]
    pub max_ttl_ms: u64,
    /// `lock.max-clock-skew` in milliseconds.
    #[arg(long = "max-clock-skew", default_value_t = 1_000)]
    pub skew_ms: u64,
    /// The folder for the report; what is there is replaced.
    #[arg(long, default_value = "target/chaos", value_parser = absolute)]
    pub out: PathBuf,
    /// Lose disks and state files whatever tokens there are: excepted by the contract, see docs/chaos.md.
    #[arg(long)]
    pub lose_disks_at_any_time: bool,
    /// Break a cluster of six instead of five independent nodes; `--faults` do not apply to it.
    #[arg(long, conflicts_with = "faults")]
    pub cluster: bool,
    /// Of a cluster: a master that dies and slots that move, under the faults of clients and links; no other fault.
    #[arg(long, requires = "cluster")]
    pub brief: bool,
    /// Of the faults that can be left out, do these alone; all unless given, none of them if nothing follows.
    #[arg(long, value_delimiter = ',', num_args = 0..)]
    pub faults: Option<Vec<Kind>>,
}

fn absolute(path: &str) -> io::Result<PathBuf> {
    std::path::absolute(path)
}

impl Settings {
    /// Tasks of each client process; the first keeps a key of the client's own, the others want the keys that all want.
    pub fn tasks(&self) -> u32 {
        if self.brief { TASKS_IN_BRIEF } else { TASKS }
    }

    /// Whether this fault takes part.
    pub fn does(&self, kind: Kind) -> bool {
        let is_asked_for = !self.cluster && self.faults.as_ref().is_none_or(|faults| faults.contains(&kind));
        is_asked_for && (kind != Kind::OutagesUnderElect || self.palisade.is_some())
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        if self.cluster { cluster::NODES } else { NODES }
    }
}
