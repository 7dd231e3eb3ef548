//! The installed peers, and their versions.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::cluster::Cluster;
use super::etcd::Etcd;
use super::zookeeper::ZooKeeper;
use crate::results::{Outcome, Table};

/// The folder of the scripts of peers in other languages, from the repository's root.
const SCRIPTS: &str = "bench/peers";

/// The language of a program.
#[derive(Clone, Copy, PartialEq)]
pub enum Language {
    /// Python, with the name of the script.
    Python(&'static str),
    Node,
    Go,
    Java,
}

/// Where the peers are installed.
#[derive(clap::Args)]
pub struct Installed {
    /// The folder in which `make setup-peers` installed the peers.
    #[arg(long, default_value = "target/peers")]
    pub peers: PathBuf,

    /// The etcd server.
    #[arg(long, default_value = "etcd")]
    pub etcd: PathBuf,

    /// A folder on a disk, for the data of etcd and ZooKeeper.
    #[arg(long, default_value = "target/peers/data")]
    pub disk: PathBuf,

    /// A folder in memory, for the data of etcd and ZooKeeper.
    #[arg(long, default_value = "/dev/shm")]
    pub memory: PathBuf,
}

impl Installed {
    /// Returns a program in `language`; `None` if its libraries are not installed.
    pub fn command(&self, language: Language) -> Option<Command> {
        let script = |name: &str| Path::new(SCRIPTS).join(name);
        let (needed, mut command) = match language {
            Language::Python(name) => {
                let python = self.peers.join("python/bin/python");
                let mut command = Command::new(&python);
                command.arg(script(name));
                (python, command)
            }
            Language::Node => {
                let packages = std::path::absolute(self.peers.join("node")).ok()?;
                let mut command = Command::new("node");
                command.arg(script("redlock.mjs")).env("PEERS_NODE", &packages);
                (packages.join("node_modules"), command)
            }
            Language::Go => {
                let program = self.peers.join("go/peers");
                (program.clone(), Command::new(program))
            }
            Language::Java => {
                let mut command = Command::new("java");
                command.arg("-cp").arg(self.class_path()).arg("Peers");
                (self.peers.join("java/classes"), command)
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        needed.exists().then_some(command)
    }

    /// Returns Java's class path of all peers.
    fn class_path(&self) -> OsString {
        let mut path = self.peers.join("java/classes").into_os_string();
        path.push(":");
        path.push(self.peers.join("java/lib/*"));
        path
    }

    /// Adds a note to `table` about the peers that are left out.
    pub fn note_missing(&self, table: &mut Table) {
        let all = [
            ("etcd", self.etcd_version().is_some()),
            ("the packages for Python", self.command(Language::Python("")).is_some()),
            ("the packages for Node.js", self.command(Language::Node).is_some()),
            ("the program in Go", self.command(Language::Go).is_some()),
            ("the program in Java, with ZooKeeper", self.command(Language::Java).is_some()),
        ];
        let missing: Vec<&str> = all.iter().filter(|(_, is_here)| !is_here).map(|(name, _)| *name).collect();
        if !missing.is_empty() {
            table.note(format!(
                "Not installed, and left out: {}. `make setup-peers` installs them.",
                missing.join(", ")
            ));
        }
    }

    /// Returns clusters of etcd and ZooKeeper, on disk and in memory, as far as they are installed.
    pub async fn clusters(&self) -> Vec<Cluster> {
        let mut all: Vec<Cluster> =
            self.etcds().await.into_iter().map(|(name, etcd)| Cluster::Etcd(name, etcd)).collect();
        if self.command(Language::Java).is_some() {
            let places = [("ZooKeeper on disk", &self.disk), ("ZooKeeper in memory", &self.memory)];
            for (name, folder) in places.into_iter().filter(|(_, folder)| **folder != self.memory || folder.is_dir()) {
                all.push(Cluster::ZooKeeper(name, ZooKeeper::start(&self.class_path(), folder).await));
            }
        }
        all
    }

    /// Returns the names and versions of the installed clusters.
    pub fn cluster_versions(&self) -> Vec<String> {
        self.etcd_version().into_iter().chain(self.zookeeper_version()).collect()
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

    /// Returns the name and version of ZooKeeper, if it is installed: those of its library.
    fn zookeeper_version(&self) -> Option<String> {
        let names = std::fs::read_dir(self.peers.join("java/lib"))
            .ok()?
            .filter_map(|file| file.ok()?.file_name().into_string().ok());
        let version = |name: String| {
            let version = name.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
            version.starts_with(|first: char| first.is_ascii_digit()).then(|| format!("ZooKeeper {version}"))
        };
        names.filter_map(version).next()
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
