//! A server for measurements: it has no persistence, unless a measurement asks for it, and no other work.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A running server with the module.
pub struct Server {
    child: Child,
    dir: TempDir,
    port: u16,
}

impl Server {
    /// Starts a server on a free port of the loopback.
    pub fn start(server: &Path, module: &Path) -> Self {
        Self::start_as(&[], server, module, &[])
    }

    /// Starts a server with `settings` in addition to its own. `wrapper` is a command such as valgrind that runs the
    /// server; empty for none.
    pub fn start_as(wrapper: &[String], server: &Path, module: &Path, settings: &[&str]) -> Self {
        assert!(module.exists(), "{} is not there: build it with `make build`", module.display());
        let module = std::path::absolute(module).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut words = wrapper.iter().map(OsString::from).chain([server.into()]);
        let child = Command::new(words.next().unwrap())
            .args(words)
            .args(["--port", &port.to_string(), "--save", "", "--maxclients", "15000", "--loglevel", "warning"])
            .args(settings)
            .arg("--dir")
            .arg(dir.path())
            .arg("--logfile")
            .arg(dir.path().join("log"))
            .arg("--loadmodule")
            .arg(module)
            .args(["restart-guard", "never"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|why| panic!("{} cannot be started: {why}", server.display()));
        Self { child, dir, port }
    }

    /// Opens a connection, with Nagle's algorithm off.
    pub async fn connect(&self) -> MultiplexedConnection {
        connect(self.port).await
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Freezes the server, or continues it.
    pub fn freeze(&self, frozen: bool) {
        self.signal(if frozen { Signal::STOP } else { Signal::CONT });
    }

    /// Kills the server: nothing answers on its port any longer.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the CPU time of the server's main thread; exact while the thread sleeps.
    pub fn cpu_of_main_thread(&self) -> Duration {
        cpu_of_thread(self.pid(), &self.pid().to_string())
    }

    /// Returns the CPU time of all threads of the server; exact for those that sleep.
    pub fn cpu_of_all_threads(&self) -> Duration {
        cpu_of_process(self.pid())
    }
}

/// Returns the setting that also loads `bench/floor`, which is built into the folder of the module.
pub fn with_floor(module: &Path) -> [String; 2] {
    let floor = std::path::absolute(module).unwrap().with_file_name("libpalisade_floor.so");
    assert!(floor.exists(), "{} is not there: cargo build --release --package palisade-floor", floor.display());
    ["--loadmodule".to_owned(), floor.to_string_lossy().into_owned()]
}

/// Returns the CPU time of all threads of `process`; exact for those that sleep.
pub fn cpu_of_process(process: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.map(|thread| cpu_of_thread(process, &thread.unwrap().file_name().to_string_lossy())).sum()
}

/// Returns the context switches of all threads of `process` so far.
pub fn switches_of_process(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let status = threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).ok());
    let of_thread = |status: String| {
        let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok());
        counts.sum::<u64>()
    };
    status.map(of_thread).sum()
}

/// Returns the CPU time of the process's threads with this name.
pub fn cpu_of_threads(process: u32, name: &str) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|thread| thread.unwrap());
    let named = threads.filter(|thread| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|found| found.trim_end() == name)
    });
    named.map(|thread| cpu_of_thread(process, &thread.file_name().to_string_lossy())).sum()
}

/// Returns the resident memory of `process`.
pub fn resident_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    resident.map_or(0, |kilobytes: u64| kilobytes * 1024)
}

/// Returns the first field of proc(5)'s schedstat, in nanoseconds; zero for a thread that has just ended.
fn cpu_of_thread(process: u32, thread: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default());
        }
    }
}

/// Connects to the server on `port`, once it answers.
pub async fn connect(port: u16) -> MultiplexedConnection {
    let address = redis::ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
    let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = redis::IntoConnectionInfo::into_connection_info(address).unwrap().set_tcp_settings(settings);
    let client = redis::Client::open(info).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    for _ in 0..500 {
        if let Ok(connection) = client.get_multiplexed_async_connection_with_config(&config).await {
            return connection;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the server on port {port} does not answer");
}

/// Returns the kind and version of the server `program`, as `Redis 7.0.15`, or the reason why it is unknown.
pub fn name_and_version(program: &Path) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|why| format!("the server {} cannot be started: {why}", program.display()))?;
    // "Redis server v=7.0.15 sha=… malloc=…"
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    let version = version.ok_or_else(|| format!("{} is no Redis or Valkey server", program.display()))?;
    Ok(format!("{} {version}", text.split_whitespace().next().unwrap_or_default()))
}

/// Returns one field of INFO.
pub async fn info(connection: &mut MultiplexedConnection, field: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg("everything").query_async(connection).await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in INFO")).parse().unwrap()
}

/// Raises the limit on open files as far as the system allows: clients and their connections need files.
pub fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Returns one field of a section of INFO.
pub fn field(connection: &mut crate::raw::Raw, section: &str, name: &str) -> u64 {
    let redis::Value::BulkString(info) = connection.ask(&format!("INFO {section}")) else { panic!("INFO is text") };
    let info = String::from_utf8_lossy(&info).into_owned();
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in INFO {section}"))
}

/// Returns `used_memory` and `used_memory_rss`, once `used_memory` no longer changes: the server enlarges a table
/// little by little.
pub fn settled(monitor: &mut crate::raw::Raw) -> (u64, u64) {
    let mut before = 0;
    loop {
        let used = field(monitor, "memory", "used_memory");
        if used == before {
            return (used, field(monitor, "memory", "used_memory_rss"));
        }
        before = used;
        std::thread::sleep(Duration::from_millis(500));
    }
}
