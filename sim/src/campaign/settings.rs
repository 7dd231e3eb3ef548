//! The settings of a campaign.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::cluster;
use super::kinds::Kind;

/// The number of independent nodes: two may be down at a time.
pub const NODES: usize = 5;

/// The number of tasks of each client process.
const TASKS: u32 = 11;

/// The number of tasks of each client process in a brief campaign, low enough that all that wait at the end get their
/// turn soon.
const TASKS_IN_BRIEF: u32 = 5;

/// The settings of a campaign.
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
    /// The length of the faults, in seconds
    #[arg(long, default_value_t = 300)]
    pub seconds: u64,
    /// The seed of all choices; random unless given
    // Ten digits are easy to type again.
    #[arg(long, env = "PALISADE_SEED", default_value_t = rand::random::<u64>() % 10_000_000_000, hide_default_value = true)]
    pub seed: u64,
    /// `lock.max-ttl` in milliseconds, and the longest lease that is requested
    #[arg(long = "max-ttl", default_value_t = 2_000)]
    pub max_ttl_ms: u64,
    /// `lock.max-clock-skew` in milliseconds.
    #[arg(long = "max-clock-skew", default_value_t = 1_000)]
    pub skew_ms: u64,
    /// The folder for the report; what is there is replaced.
    #[arg(long, default_value = "target/chaos", value_parser = absolute)]
    pub out: PathBuf,
    /// Lose disks and state files even while a token is further ahead of the clock than the skew, which no promise
    /// covers: see docs/chaos.md.
    #[arg(long)]
    pub lose_disks_at_any_time: bool,
    /// Break a cluster of six instead of five independent nodes; `--faults` do not apply to it.
    #[arg(long, conflicts_with = "faults")]
    pub cluster: bool,
    /// Only lets masters die and their replicas take over, and moves slots, under the faults of clients and links
    #[arg(long, requires = "cluster")]
    pub brief: bool,
    /// Injects only these of the faults that can be left out [default: all]; none of them if no name follows
    #[arg(long, value_delimiter = ',', num_args = 0..)]
    pub faults: Option<Vec<Kind>>,
}

fn absolute(path: &str) -> io::Result<PathBuf> {
    std::path::absolute(path)
}

impl Settings {
    /// Returns the number of tasks of each client process. The first keeps the client's own key, the others want the
    /// contended keys.
    pub fn tasks(&self) -> u32 {
        if self.brief { TASKS_IN_BRIEF } else { TASKS }
    }

    /// Returns true if this fault is part of the campaign.
    pub fn does(&self, kind: Kind) -> bool {
        let is_asked_for = !self.cluster && self.faults.as_ref().is_none_or(|faults| faults.contains(&kind));
        is_asked_for && (kind != Kind::OutagesUnderElect || self.palisade.is_some())
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        if self.cluster { cluster::NODES } else { NODES }
    }
}
