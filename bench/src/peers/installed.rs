//! The installed peers, and their versions.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::etcd::Etcd;
use crate::results::{Outcome, Table};

/// The folder of the scripts of peers in other languages, from the repository's root.
const SCRIPTS: &str = "bench/peers";

/// Where the peers are installed.
#[derive(clap::Args)]
pub struct Installed {
    /// The folder in which `make setup-peers` installed the peers for Python and Node.js.
    #[arg(long, default_value = "target/peers")]
    pub peers: PathBuf,

    /// The etcd server.
    #[arg(long, default_value = "etcd")]
    pub etcd: PathBuf,

    /// A folder on a disk, for etcd's data.
    #[arg(long, default_value = "target/peers/etcd")]
    pub disk: PathBuf,

    /// A folder in memory, for etcd's data.
    #[arg(long, default_value = "/dev/shm")]
    pub memory: PathBuf,
}

impl Installed {
    /// Returns a peer in Python; `None` if its packages are not installed.
    pub fn python(&self, script: &str) -> Option<Command> {
        let program = self.peers.join("python/bin/python");
        let mut command = Command::new(&program);
        command.arg(Path::new(SCRIPTS).join(script));
        program.exists().then_some(command)
    }

    /// Returns a peer in Node.js; `None` if its packages are not installed.
    pub fn node(&self, script: &str) -> Option<Command> {
        let packages = std::path::absolute(self.peers.join("node")).ok()?;
        let mut command = Command::new("node");
        command.arg(Path::new(SCRIPTS).join(script)).env("PEERS_NODE", &packages);
        packages.join("node_modules").exists().then_some(command)
    }

    /// Adds a note to `table` about the peers that are left out.
    pub fn note_missing(&self, table: &mut Table) {
        let all = [
            ("etcd", self.etcd_version().is_some()),
            ("the packages for Python", self.python("").is_some()),
            ("the packages for Node.js", self.node("").is_some()),
        ];
        let missing: Vec<&str> = all.iter().filter(|(_, is_here)| !is_here).map(|(name, _)| *name).collect();
        if !missing.is_empty() {
            table.note(format!(
                "Not installed, and left out: {}. `make setup-peers` installs them.",
                missing.join(", ")
            ));
        }
    }

    /// Returns clusters of etcd, on disk and in memory, or none.
    pub async fn etcds(&self) -> Vec<(&'static str, Etcd)> {
        if self.etcd_version().is_none() {
            return Vec::new();
        }
        let mut etcds = vec![("etcd on disk", Etcd::start(&self.etcd, &self.disk).await)];
        if self.memory.is_dir() {
            etcds.push(("etcd in memory", Etcd::start(&self.etcd, &self.memory).await));
        }
        etcds
    }

    /// Returns the name and version of etcd, if it is installed.
    pub fn etcd_version(&self) -> Option<String> {
        let output = std::process::Command::new(&self.etcd).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Some(format!("etcd {}", text.lines().next()?.rsplit(' ').next()?))
    }
}

/// Returns the name and version of a crate that is compiled into this program.
pub fn crate_version(name: &str) -> String {
    let locked = include_str!("../../../Cargo.lock");
    let version = locked.split_once(&format!("name = \"{name}\"\nversion = \""));
    let version = version.and_then(|(_, rest)| rest.split('"').next());
    format!("{name} {} (Rust)", version.expect("it is a dependency"))
}

/// An outcome, with names and versions of the measured programs.
pub type Measured = (Outcome, Vec<String>);
