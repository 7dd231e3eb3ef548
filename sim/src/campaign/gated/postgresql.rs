//! A PostgreSQL of the campaign's own, with a table behind a fence.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::store::connect;
use crate::campaign::machine::{kill, signal_to};
use crate::campaign::patience::{PATIENCE, until};

/// The fences of docs/fencing.md.
const INSTALL: &str = include_str!("../../../../fences/postgresql/install.sql");

/// The SQL that creates the table of the resource, and the user that writes to it.
const FURNISH: &str = "
    CREATE TABLE landed (place bigserial PRIMARY KEY, entry text NOT NULL);
    SELECT palisade.protect('landed', '{lock}');
    CREATE ROLE app LOGIN;
    GRANT SELECT, INSERT ON landed TO app;
    GRANT USAGE ON landed_place_seq TO app;
    GRANT USAGE ON SCHEMA palisade TO app;
    GRANT EXECUTE ON FUNCTION palisade.fence TO app;
";

/// The user as which PostgreSQL runs, because it refuses to run as root. Debian's package creates this user.
const USER: &str = "postgres";

/// Returns the folder of PostgreSQL's programs: that of the newest version that is installed.
pub fn programs() -> Option<PathBuf> {
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let all = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path());
    all.filter(|path| path.join("bin/postgres").exists()).max_by_key(version).map(|path| path.join("bin"))
}

/// A PostgreSQL server, running or not.
#[derive(Debug)]
pub struct PostgreSql {
    programs: PathBuf,
    folder: TempDir,
    log: PathBuf,
    child: Option<Child>,
}

impl PostgreSql {
    /// Creates a database with the table, which the lock `lock` protects, and starts its server.
    ///
    /// # Errors
    /// The database cannot be created; the text says why.
    pub async fn make(programs: PathBuf, logs: &Path, lock: &str) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("palisade-chaos-postgresql-").tempdir();
        let folder = folder.map_err(|why| why.to_string())?;
        if geteuid().is_root() {
            let owned = Command::new("chown").arg(USER).arg(folder.path()).status().await;
            owned.ok().filter(std::process::ExitStatus::success).ok_or("there is no user postgres")?;
        }
        let mut made = Self { programs, folder, log: logs.join("postgresql.log"), child: None };
        let mut initdb = made.program("initdb");
        initdb.arg("--pgdata").arg(made.data()).args(["--username", "boss", "--auth", "trust", "--no-sync"]);
        let made_data = initdb.args(["--locale", "C", "--encoding", "UTF8"]).output().await;
        let made_data = made_data.map_err(|why| why.to_string())?;
        if !made_data.status.success() {
            return Err(String::from_utf8_lossy(&made_data.stderr).into_owned());
        }
        made.start().await?;
        let boss = connect(&made.address("boss")).await.ok_or("it does not answer")?;
        for script in [INSTALL, &FURNISH.replace("{lock}", lock)] {
            boss.batch_execute(script).await.map_err(|why| format!("{why:?}"))?;
        }
        Ok(made)
    }

    /// Returns the parameters with which this user connects.
    pub fn address(&self, user: &str) -> String {
        format!("host={} user={user} dbname=postgres connect_timeout=2", self.folder.path().display())
    }

    /// Starts the server, and waits until it answers. Processes that a killed server left must end first.
    ///
    /// # Errors
    /// It does not answer in time.
    pub async fn start(&mut self) -> Result<(), String> {
        let address = self.address("boss");
        let answers = until!(PATIENCE, {
            if self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None))) {
                self.child = Some(self.spawn().map_err(|why| why.to_string())?);
            }
            connect(&address).await
        });
        answers.map(drop).ok_or_else(|| "PostgreSQL does not start: see its log".to_owned())
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut server = self.program("postgres");
        server.arg("-D").arg(self.data()).args(["-c", "listen_addresses="]);
        server.arg("-c").arg(format!("unix_socket_directories={}", self.folder.path().display()));
        // Nothing needs fsync, since the machine does not crash: the kernel keeps what a killed process wrote.
        server.args(["-c", "fsync=off"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        server.spawn()
    }

    /// Kills the server (kill -9). Its processes for connections end a moment later.
    pub async fn kill(&mut self) {
        kill(&mut self.child).await;
    }

    /// Kills the process of one connection (kill -9), so that the server ends all others and recovers.
    pub async fn kill_one(&mut self) {
        let Some(client) = connect(&self.address("boss")).await else { return };
        let Ok(row) = client.query_one("SELECT pg_backend_pid()", &[]).await else { return };
        if let Some(pid) = Pid::from_raw(row.get(0)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Shuts the server down. With `Signal::INT`, it rolls back open transactions first; with `Signal::QUIT`, it ends
    /// at once.
    pub async fn end(&mut self, signal: Signal) {
        signal_to(self.child.as_ref(), signal);
        if let Some(child) = &mut self.child {
            let _ = child.wait().await;
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the command of one of PostgreSQL's programs, which keeps its process id.
    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = Command::new(if geteuid().is_root() { Path::new("setpriv") } else { &path });
        if geteuid().is_root() {
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(&path);
        }
        command.current_dir(self.folder.path());
        command
    }
}
