//! A Sentinel, which watches a master and makes a replica take over.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::tls::both_ways;
use super::{Client, Server, Setup, follow, free_port, int, server_binary, text, wait_until};

/// The Sentinel's name for the master.
const MASTER: &str = "locks";

/// A running Sentinel that decides without others.
pub struct Sentinel {
    dir: TempDir,
    child: Child,
    port: u16,
}

impl Sentinel {
    /// Starts a Sentinel that watches `master` and knows its replica. It considers the master dead if it has not
    /// answered for `down_after_ms`.
    pub fn watching(master: &Server, down_after_ms: u32) -> Self {
        Self::listening(master, down_after_ms, &|port| format!("port {port}\n"))
    }

    /// Starts a Sentinel that uses only TLS.
    pub fn watching_over_tls(master: &Server, down_after_ms: u32, dir: &Path) -> Self {
        let settings: String = both_ways(dir).iter().map(|(name, value)| format!("{name} {value}\n")).collect();
        Self::listening(master, down_after_ms, &|port| format!("port 0\ntls-port {port}\n{settings}"))
    }

    fn listening(master: &Server, down_after_ms: u32, at: &dyn Fn(u16) -> String) -> Self {
        let dir = tempfile::Builder::new().prefix("palisade-").tempdir().unwrap();
        let (folder, port, own_port) = (dir.path().to_str().unwrap(), master.port(), free_port());
        let config = format!(
            "{}unixsocket {folder}/socket\ndir {folder}\nlogfile {folder}/log\n\
             sentinel monitor {MASTER} 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds {MASTER} {down_after_ms}\n\
             sentinel failover-timeout {MASTER} 20000\n",
            at(own_port),
        );
        let path = dir.path().join("sentinel.conf");
        fs::write(&path, config).unwrap();
        let mut command = Command::new(server_binary());
        command.arg(path).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let sentinel = Self { dir, child: command.spawn().unwrap(), port: own_port };
        let socket = sentinel.dir.path().join("socket");
        wait_until("the sentinel answers", || Client::try_connect(&socket, false).is_some());
        wait_until("the sentinel knows of the replica", || sentinel.master_field("num-slaves") == text("1"));
        sentinel
    }

    /// Returns the port on which the Sentinel listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a command, and returns the answer.
    pub fn say(&self, line: &str) -> super::Reply {
        self.client().say(line)
    }

    /// Returns the port of the server that the Sentinel considers the master.
    pub fn master_port(&self) -> u16 {
        self.master_field("port").as_text().parse().unwrap()
    }

    /// Makes the replica take over from a master that is well.
    pub fn fail_over(&self) {
        wait_until("the sentinel begins", || self.say(&format!("SENTINEL FAILOVER {MASTER}")) == text("OK"));
    }

    /// Waits until the Sentinel considers `server` the master, and all others follow that server.
    pub fn wait_for_master(&self, server: &Server) {
        wait_until("another master", || self.master_port() == server.port());
        // After that, the Sentinel has ended all connections that it is going to end.
        let mut client = server.client();
        wait_until("the others follow", || client.say("WAIT 1 1000") == int(1));
    }

    /// Returns this field of the Sentinel's report on the master.
    pub fn master_field(&self, name: &str) -> super::Reply {
        self.client().say(&format!("SENTINEL MASTER {MASTER}")).field(name)
    }

    fn client(&self) -> Client {
        Client::connect(&self.dir.path().join("socket"), false)
    }
}

/// Returns the address of the master that these Sentinels watch.
pub fn behind(sentinels: &[Sentinel]) -> String {
    let hosts: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    format!("redis+sentinel://{}/locks", hosts.join(","))
}

/// Returns the setup of a server that Sentinels watch: it is guarded at each start.
fn member(max_ttl_ms: u64) -> Setup {
    let arguments = ["max-ttl", &max_ttl_ms.to_string(), "max-clock-skew", "100", "restart-guard", "always"];
    Setup::new().replication().option("repl-diskless-sync-delay", "0").module_arguments(&arguments)
}

/// Starts a master, its replica, and Sentinels, each of which can decide a fail-over alone.
pub fn watched(sentinels: usize, max_ttl_ms: u64) -> (Server, Server, Vec<Sentinel>) {
    watched_by(sentinels, |setup| setup.start(), |master| Sentinel::watching(master, 2_000), max_ttl_ms)
}

/// As [`watched`], with TLS only, and with the certificates in that folder.
pub fn watched_over_tls(sentinels: usize, max_ttl_ms: u64, dir: &Path) -> (Server, Server, Vec<Sentinel>) {
    let start = |setup: Setup| setup.replication_over_tls(dir).start();
    watched_by(sentinels, start, |master| Sentinel::watching_over_tls(master, 2_000, dir), max_ttl_ms)
}

fn watched_by(
    sentinels: usize,
    start: impl Fn(Setup) -> Server,
    watching: impl Fn(&Server) -> Sentinel,
    max_ttl_ms: u64,
) -> (Server, Server, Vec<Sentinel>) {
    let (master, replica) = (start(member(max_ttl_ms)), start(member(max_ttl_ms)));
    follow(&replica, &master);
    let sentinels: Vec<_> = (0..sentinels).map(|_| watching(&master)).collect();
    for sentinel in &sentinels {
        let expected = text(&(sentinels.len() - 1).to_string());
        wait_until("they know each other", || sentinel.master_field("num-other-sentinels") == expected);
    }
    (master, replica, sentinels)
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read(self.dir.path().join("log")).unwrap_or_default();
            eprintln!("--- log of the sentinel at {}\n{}---", self.port(), String::from_utf8_lossy(&log));
        }
    }
}
