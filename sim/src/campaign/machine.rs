//! A server process with the module, in its own folder. The nemesis (the part that injects faults) starts, kills and
//! restarts it.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::{AsyncConnectionConfig, FromRedisValue, cmd};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::patience::{PATIENCE, until};

/// The data that a server keeps on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The AOF, synced before every answer.
    AofAlways,
    /// Snapshots from time to time.
    Snapshots,
    /// No data, only the node's state file.
    Nothing,
}

impl Durability {
    /// Every variant, to draw one of them.
    pub const ALL: [Self; 3] = [Self::AofAlways, Self::Snapshots, Self::Nothing];

    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::AofAlways => "AOF always",
            Self::Snapshots => "RDB only",
            Self::Nothing => "no persistence",
        }
    }

    fn options(self) -> [&'static str; 4] {
        match self {
            Self::AofAlways => ["--appendonly", "yes", "--save", ""],
            Self::Snapshots => ["--appendonly", "no", "--save", "5 1"],
            Self::Nothing => ["--appendonly", "no", "--save", ""],
        }
    }
}

/// Settings that all servers of a campaign share.
#[derive(Clone, Debug)]
pub struct Common {
    /// The server program.
    pub server: PathBuf,
    /// The module.
    pub module: PathBuf,
    /// The library that makes it possible to step the servers' wall clocks.
    pub shim: PathBuf,
    /// `lock.max-ttl`.
    pub max_ttl_ms: u64,
    /// `lock.max-clock-skew`.
    pub skew_ms: u64,
    /// The folder of the servers' logs.
    pub logs: PathBuf,
}

/// A wall clock that can be stepped under a running process.
#[derive(Clone, Debug)]
pub struct WallClock(PathBuf);

impl WallClock {
    /// Creates a correct clock, whose offset is in the file at `path`.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create(path: PathBuf) -> io::Result<Self> {
        fs::write(&path, 0_i64.to_ne_bytes())?;
        Ok(Self(path))
    }

    /// Makes the clock show `seconds` more than the correct time.
    ///
    /// # Panics
    ///
    /// If the clock's file does not exist.
    pub fn set(&self, seconds: i64) {
        // The file is written in place, because processes have mapped it.
        let file = fs::OpenOptions::new().write(true).open(&self.0).expect("the clock's file is there");
        file.write_all_at(&seconds.to_ne_bytes(), 0).expect("the clock's file can be written");
    }

    /// Returns true if the clock is correct.
    pub fn is_right(&self) -> bool {
        fs::read(&self.0).is_ok_and(|offset| offset == 0_i64.to_ne_bytes())
    }

    /// Makes `command` start with this clock.
    pub fn preload(&self, command: &mut Command, shim: &Path) {
        command.env("LD_PRELOAD", shim).env("WALL_CLOCK_OFFSET_FILE", &self.0);
    }
}

/// A server, running or not.
#[derive(Debug)]
pub struct Machine {
    name: String,
    dir: PathBuf,
    port: u16,
    /// The wall clock that the server sees.
    pub clock: WallClock,
    /// The data that the next incarnation keeps.
    pub durability: Durability,
    /// `lock.state-file` of the next incarnation; `None` leaves it unset.
    pub state_file: Option<&'static str>,
    /// More options of the next incarnation.
    pub options: Vec<String>,
    child: Option<Child>,
}

impl Machine {
    /// Returns a new machine with an empty disk at `dir`, without starting it. The file of its clock is next to its
    /// log.
    ///
    /// # Errors
    ///
    /// The folder cannot be created, or no port is free.
    pub fn new(common: &Common, name: String, dir: PathBuf, durability: Durability) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        let clock = WallClock::create(common.logs.join(format!("{name}.clock")))?;
        let port = free_port()?;
        Ok(Self { name, dir, port, clock, durability, state_file: None, options: vec![], child: None })
    }

    /// Returns the port on which the server listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the port of the next incarnation.
    pub fn listen_on(&mut self, port: u16) {
        self.port = port;
    }

    /// Returns the path of the server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Returns the folder of the server's data.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the machine's name, as in the report.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts an incarnation and waits until it answers.
    ///
    /// # Errors
    /// The server ended, or does not answer within [`PATIENCE`].
    pub async fn start(&mut self, common: &Common, replica_of: Option<u16>) -> Result<(), String> {
        // The socket file of the last incarnation would make a connection fail with "refused" instead of "not found"
        // until the server listens.
        let _ = fs::remove_file(self.socket());
        let mut command = Command::new(&common.server);
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--loglevel", "notice"]);
        command.arg("--dir").arg(&self.dir).arg("--unixsocket").arg(self.socket());
        command.arg("--logfile").arg(common.logs.join(format!("{}.log", self.name)));
        command.args(self.durability.options());
        command.args(["--appendfsync", "always", "--no-appendfsync-on-rewrite", "no"]);
        // The size is small, so that the AOF is rewritten while locks are taken.
        command.args(["--auto-aof-rewrite-min-size", "512kb"]);
        command.args(["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"]);
        command.args(&self.options);
        if let Some(master) = replica_of {
            command.args(["--replicaof", &format!("127.0.0.1 {master}")]);
        }
        command.arg("--loadmodule").arg(&common.module);
        command.args(["max-ttl", &common.max_ttl_ms.to_string(), "max-clock-skew", &common.skew_ms.to_string()]);
        if let Some(name) = self.state_file {
            command.args(["state-file", name]);
        }
        self.clock.preload(&mut command, &common.shim);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        self.child = Some(command.spawn().map_err(|why| format!("{} cannot start: {why}", common.server.display()))?);
        let answers = until!(
            PATIENCE,
            match (self.ask::<String>(&["PING"]).await, self.ended()) {
                (Ok(_), _) => Some(Ok(())),
                (_, Some(status)) => Some(Err(format!("{} ended at its start with {status}", self.name))),
                (_, None) => None,
            }
        );
        answers.unwrap_or_else(|| Err(format!("{} does not answer after its start", self.name)))
    }

    /// Returns how the process ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Sends a signal. Does nothing if the process does not run.
    pub fn signal(&self, signal: Signal) {
        signal_to(self.child.as_ref(), signal);
    }

    /// Kills the process (kill -9).
    pub async fn kill(&mut self) {
        kill(&mut self.child).await;
    }

    /// Waits up to `limit` for the process to end by itself. Returns true if it has ended.
    pub async fn wait_ended(&mut self, limit: Duration) -> bool {
        match &mut self.child {
            Some(child) => timeout(limit, child.wait()).await.is_ok(),
            None => true,
        }
    }

    /// Sends a command on a connection of its own.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, String> {
        ask(&self.socket(), words, Duration::from_secs(2)).await
    }
}

/// Sends a command to the server at `socket`, on a connection of its own.
///
/// # Errors
/// The server does not answer in time, or refuses.
pub async fn ask<T: FromRedisValue>(socket: &Path, words: &[&str], limit: Duration) -> Result<T, String> {
    ask_as("", socket, words, limit).await
}

/// Sends a command as another user or in another database, given as parameters of a URL.
///
/// # Errors
/// The server does not answer in time, or refuses.
pub async fn ask_as<T: FromRedisValue>(who: &str, socket: &Path, words: &[&str], limit: Duration) -> Result<T, String> {
    let asked = async {
        let client = redis::Client::open(format!("unix://{}?protocol=resp3{who}", socket.display()))?;
        // The crate's own time limits, of half a second, would come before `limit` on a busy machine.
        let patient = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await
    };
    let answer: Result<T, redis::RedisError> = timeout(limit, asked).await.map_err(|_| "no answer".to_owned())?;
    answer.map_err(|why| why.to_string())
}

/// Ports of servers. They are below the range that the system gives to connections (32 768 and up). So no connection
/// takes the port of a server that is down.
const PORTS: Range<u16> = 12_000..21_000;

/// Returns a port on which no process listens. Two simultaneous calls return different ports.
///
/// # Errors
///
/// No port is free.
pub fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = PORTS.len() as u32;
    let mut ports = (0..span).map(|_| {
        // Campaigns that run at the same time start at different ports.
        let step = std::process::id().wrapping_mul(64).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        PORTS.start + (step % span) as u16
    });
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(is_free).ok_or_else(|| io::Error::from(io::ErrorKind::AddrInUse))
}

/// Kills `child` and waits for its end. Does nothing if it does not run.
pub async fn kill(child: &mut Option<Child>) {
    if let Some(child) = child {
        let _ = child.kill().await;
    }
}

/// Sends `child` a signal. Does nothing if it does not run.
pub fn signal_to(child: Option<&Child>, signal: Signal) {
    if let Some(pid) = child.and_then(Child::id).and_then(|id| Pid::from_raw(id as i32)) {
        let _ = kill_process(pid, signal);
    }
}
