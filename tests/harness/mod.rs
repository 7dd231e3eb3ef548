//! A server in a temporary directory, and clients that send lines as a person would type them.
//!
//! Clients reach it over a Unix socket, so that no test depends on a free port; only replication needs one. When a test
//! fails, the server's log is printed.

mod acl;
mod bystander;
mod client;
mod cluster;
mod earlier;
mod frozen;
mod holders;
mod memory_of_grants;
mod nodes;
mod not_here;
mod replicas;
mod seed;
mod sentinel;
mod six;
mod state_folder;
mod tls;
mod waiters;
mod wall_clock;

pub use acl::acl_rules;
pub use bystander::beside_a_bystander;
pub use client::{Client, Reply, error, int, null, text};
pub use cluster::{Member, asking, cluster, joined, joined_with, migrate_slots};
pub use earlier::{Earlier, earlier};
pub use frozen::Frozen;
pub use holders::{SetAtTheEnd, grants, number, owners, pass_first_tokens, past_its_first_tokens, permits, token};
pub use memory_of_grants::{
    SHORT, assert_guarded, assert_remembers, guarded_ms, held, let_leases_run, read, state_file,
};
pub use nodes::Nodes;
pub use not_here::{has_tls, not_here};
pub use replicas::{follow, follow_in_step, has_heard, in_step, pair};
pub use seed::seed;
pub use sentinel::{Sentinel, behind, watched, watched_over_tls};
pub use six::{MAX_TTL_MS, Six, patient};
pub use state_folder::StateFolder;
pub use tls::{certificates, make_certificates, own_certificate, with_mutual_tls, with_tls};
pub use waiters::{queues, waits};
pub use wall_clock::WallClock;

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The longest time for which a test waits for anything, in seconds. It is generous, since it is only reached if
/// something is wrong.
const PATIENCE_SECONDS: u64 = 60;

/// Returns the longest wait of a test, multiplied by `PALISADE_SLOW`: servers are slower under a checker.
pub fn patience() -> Duration {
    Duration::from_secs(PATIENCE_SECONDS * slow().unwrap_or(1))
}

/// Returns the factor by which servers are slower than usual; `None` without `PALISADE_SLOW`.
fn slow() -> Option<u64> {
    std::env::var("PALISADE_SLOW").ok()?.parse().ok()
}

/// The pause between two checks of a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Ports for replication, below those that systems assign on their own.
const PORTS: std::ops::Range<u16> = 21_000..31_000;

/// Waits until `condition` is true; fails with `what` if that takes too long.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < patience(), "waited in vain: {what}");
        sleep(LOOK_AGAIN);
    }
}

/// Returns the path of the tested module. Cargo does not build a library of this kind for tests, so this builds it,
/// once.
pub fn module() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(module) = std::env::var_os("PALISADE_MODULE") {
        return module.into();
    }
    let build = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "palisade"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the module does not build");
        let test = std::env::current_exe().unwrap();
        test.ancestors().nth(2).unwrap().join("libpalisade.so")
    };
    BUILT.get_or_init(build).clone()
}

/// Returns the tested server.
pub fn server_binary() -> OsString {
    std::env::var_os("PALISADE_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// The setup of a server.
pub struct Setup {
    server: OsString,
    module: Option<PathBuf>,
    module_arguments: Vec<String>,
    options: Vec<(String, String)>,
    config: Option<PathBuf>,
    replication: bool,
    over_tls: bool,
    module_later: bool,
    guarded: bool,
    wall_clock: Option<WallClock>,
}

impl Setup {
    /// Returns a setup with only the module, without persistence.
    pub fn new() -> Self {
        Self::bare().option("save", "").option("enable-debug-command", "yes")
    }

    /// Returns a setup with the module, and the server's defaults.
    pub fn bare() -> Self {
        Self {
            server: server_binary(),
            module: None,
            module_arguments: vec![],
            options: vec![],
            config: None,
            replication: false,
            over_tls: false,
            module_later: false,
            guarded: false,
            wall_clock: None,
        }
    }

    /// Uses another server than the tested one.
    pub fn server(mut self, server: &Path) -> Self {
        self.server = server.into();
        self
    }

    /// Uses the module of an earlier version.
    pub fn earlier(mut self, version: &Earlier) -> Self {
        self.module = Some(version.module());
        self
    }

    /// Uses the tested module again, after [`Setup::earlier`].
    pub fn present(mut self) -> Self {
        self.module = None;
        self
    }

    /// Adds the AOF, synced at every command.
    pub fn aof(self) -> Self {
        self.option("appendonly", "yes").option("appendfsync", "always")
    }

    /// Sets an option of the server, as in redis.conf.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.retain(|(known, _)| known != name);
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets arguments of the module.
    pub fn module_arguments(mut self, arguments: &[&str]) -> Self {
        self.module_arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self
    }

    /// Uses a configuration file.
    pub fn config(mut self, path: &Path) -> Self {
        self.config = Some(path.to_owned());
        self
    }

    /// Leaves the module out: the test loads it itself.
    pub fn module_later(mut self) -> Self {
        self.module_later = true;
        self.option("enable-module-command", "yes")
    }

    /// Loads the module from the start on.
    pub fn module_now(mut self) -> Self {
        self.module_later = false;
        self
    }

    /// Keeps the guard that every new node has at its first start; without this it is lifted.
    pub fn guarded(mut self) -> Self {
        self.guarded = true;
        self
    }

    /// Makes the server reachable over TCP as well, for a replica or a master.
    pub fn replication(mut self) -> Self {
        self.replication = true;
        self
    }

    /// Makes the server reachable for replication only over TLS. Both ends use `server.pem` in that folder, signed by
    /// the authority there.
    pub fn replication_over_tls(mut self, dir: &Path) -> Self {
        self.over_tls = true;
        self.options.extend(tls::both_ways(dir));
        self.replication()
    }

    /// Gives the server a wall clock that the test can step.
    pub fn wall_clock(mut self) -> Self {
        self.wall_clock = Some(WallClock::new());
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Server {
        let mut server = self.spawn();
        if let Err(status) = server.wait_ready() {
            panic!("the server ended with {status}:\n{}", server.log());
        }
        if !server.setup.guarded && !server.setup.module_later {
            server.lift();
        }
        server
    }

    /// Starts a server that is expected to end at its start, and returns its log.
    pub fn refused(self) -> String {
        let mut server = self.spawn();
        wait_until("the server gives up", || server.child.try_wait().unwrap().is_some());
        server.log()
    }

    fn spawn(self) -> Server {
        let dir = tempfile::Builder::new().prefix("palisade-").tempdir().unwrap();
        let port = if self.replication { free_port() } else { 0 };
        let child = self.command(dir.path(), port).spawn().expect("PALISADE_SERVER or redis-server can be started");
        Server { setup: self, dir, port, child }
    }

    fn command(&self, dir: &Path, port: u16) -> Command {
        let mut command = Command::new(&self.server);
        if let Some(config) = &self.config {
            command.arg(config);
        }
        let plain_port = if self.over_tls { 0 } else { port };
        command.args(["--port", &plain_port.to_string(), "--dir", dir.to_str().unwrap()]);
        if self.over_tls {
            command.args(["--tls-port", &port.to_string()]);
        }
        command.args(["--unixsocket", dir.join("socket").to_str().unwrap()]);
        command.args(["--logfile", dir.join("log").to_str().unwrap()]);
        for (name, value) in &self.options {
            command.arg(format!("--{name}")).arg(value);
        }
        if !self.module_later {
            let module = self.module.clone().unwrap_or_else(module);
            command.arg("--loadmodule").arg(module).args(&self.module_arguments);
        }
        if let Some(clock) = &self.wall_clock {
            clock.preload(&mut command);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Returns a free port. Two tests that ask at once get different ports, because each searches in a range of its own.
pub fn free_port() -> u16 {
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    let span = PORTS.len() as u32;
    loop {
        let step = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let port = PORTS.start + ((std::process::id() * 16 + u32::from(step)) % span) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A running server with the module.
pub struct Server {
    setup: Setup,
    dir: TempDir,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts a server with only the module.
    pub fn start() -> Self {
        Setup::new().start()
    }

    /// Returns a new client.
    pub fn client(&self) -> Client {
        Client::connect(&self.dir.path().join("socket"), false)
    }

    /// Returns a new client that speaks RESP3.
    pub fn client_resp3(&self) -> Client {
        Client::connect(&self.dir.path().join("socket"), true)
    }

    /// Returns the server's folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of the server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Returns the address of the server's socket, as a client takes it.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns the server's port, if it was set up for replication.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the wall clock that the server sees.
    pub fn wall_clock(&self) -> &WallClock {
        self.setup.wall_clock.as_ref().expect("set up with a wall clock")
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.path().join("log")).unwrap_or_default()).into_owned()
    }

    /// Returns one field of the module's section in INFO.
    pub fn info(&self, field: &str) -> u64 {
        self.client().info_field(&format!("lock_{field}"))
    }

    /// Lifts the server's guard.
    pub fn lift(&self) {
        self.client().lift();
    }

    /// Kills the server (kill -9).
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again, in the same folder, with the same setup.
    pub fn start_again(&mut self) {
        if let Err(status) = self.try_start_again() {
            panic!("the server ended with {status}:\n{}", self.log());
        }
    }

    /// Starts the server again. Returns the exit status if it ended at its start.
    pub fn try_start_again(&mut self) -> Result<(), ExitStatus> {
        self.begin_again();
        self.wait_ready()
    }

    /// Begins to start the server again; it may take a while to load its data.
    pub fn begin_again(&mut self) {
        // Until the server listens, the socket of the last incarnation would answer "connection refused" instead of
        // "absent".
        let _ = fs::remove_file(self.socket());
        self.child = self.setup.command(self.dir.path(), self.port).spawn().unwrap();
    }

    /// Changes the setup for the next start.
    pub fn change(&mut self, change: impl FnOnce(Setup) -> Setup) {
        self.setup = change(std::mem::replace(&mut self.setup, Setup::bare()));
    }

    /// Starts the server again with a changed setup.
    pub fn start_again_with(&mut self, how: impl FnOnce(Setup) -> Setup) {
        self.change(how);
        self.start_again();
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until the server has ended by itself.
    pub fn wait_ended(&mut self) {
        wait_until("the server ends", || self.child.try_wait().unwrap().is_some());
    }

    /// Ends the server by SHUTDOWN with this word, and waits until it has ended.
    pub fn shutdown(&mut self, how: &str) {
        self.client().say(format!("SHUTDOWN {how}").trim_end());
        self.wait_ended();
    }

    /// Waits until the server answers. Returns the exit status if it has ended.
    fn wait_ready(&mut self) -> Result<(), ExitStatus> {
        let socket = self.socket();
        let mut ended = None;
        let answers = |mut client: Client| {
            let reply = client.say("PING");
            reply == text("PONG") || reply.is_error("NOAUTH")
        };
        wait_until("the server answers", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some() || Client::try_connect(&socket, false).is_some_and(answers)
        });
        ended.map_or(Ok(()), Err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut ended = self.child.try_wait().ok().flatten();
        if slow().is_some() && ended.is_none() && !std::thread::panicking() {
            // A memory checker reports leaks only if the server ends by itself.
            self.signal(rustix::process::Signal::TERM);
            let start = Instant::now();
            while ended.is_none() && start.elapsed() < patience() {
                sleep(LOOK_AGAIN);
                ended = self.child.try_wait().ok().flatten();
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let ended = ended.map(|status| format!(", which had ended with {status}")).unwrap_or_default();
            eprintln!("--- log of the server{ended}\n{}---", self.log());
        }
    }
}
