//! Nodes, and the program run with them.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::harness::{Reply, Server, Setup, int, patience, wait_until};

/// The program.
pub const PALISADE: &str = env!("CARGO_BIN_EXE_palisade");

/// Nodes that serve, and the folder in which the tested commands run.
pub struct Nodes {
    pub servers: Vec<Server>,
    folder: TempDir,
}

impl Nodes {
    pub fn start(count: usize) -> Self {
        Self { servers: (0..count).map(|_| Setup::new().start()).collect(), folder: tempfile::tempdir().unwrap() }
    }

    /// Returns the nodes' addresses, separated by commas.
    pub fn addresses(&self) -> String {
        self.addresses_with("")
    }

    /// Returns the nodes' addresses, each with this query, as in a URL: a user, a database.
    pub fn addresses_with(&self, query: &str) -> String {
        let address = |server: &Server| server.address() + query;
        self.servers.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Returns the environment that the program needs.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [("PALISADE_NODES", self.addresses()), ("PALISADE_NODE_TIMEOUT", NODE_TIMEOUT.to_owned())]
    }

    /// Returns the program with these arguments, separated by spaces.
    pub fn palisade(&self, line: &str) -> Command {
        let mut command = palisade_at(&self.addresses(), line);
        command.current_dir(self.folder.path());
        command
    }

    /// Returns the program, which will run `script` in a shell under a lock.
    pub fn exec(&self, options: &str, script: &str) -> Command {
        let mut command = self.palisade(&format!("exec {options} -- sh -c"));
        command.arg(script);
        command
    }

    /// Starts a program that holds a lock until it is ended, and waits until it holds the lock.
    pub fn holder(&self, options: &str) -> Running {
        let holder = Running::start(self.exec(options, "echo > held; sleep 1000"));
        self.wait_file("held");
        holder
    }

    /// Returns the path of a file in the folder that commands run in.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until a command has written this file, and returns its content.
    pub fn wait_file(&self, name: &str) -> String {
        let path = self.file(name);
        wait_until(&format!("the file {name} is written"), || read(&path).ends_with('\n'));
        read(&path).trim().to_owned()
    }

    /// Sends a command to each node, and returns the answers.
    pub fn say(&self, line: &str) -> Vec<Reply> {
        self.servers.iter().map(|server| server.client().say(line)).collect()
    }

    /// Returns the number of nodes on which `key` is locked.
    pub fn holding(&self, key: &str) -> usize {
        self.say(&format!("EXISTS {key}")).iter().filter(|reply| **reply == int(1)).count()
    }

    /// Waits until no lock is held, and no request waits.
    pub fn wait_idle(&self) {
        let idle = |server: &Server| server.info("held") == 0 && server.info("waiters") == 0;
        wait_until("nothing is locked and nobody waits", || self.servers.iter().all(idle));
    }

    /// Returns the number of waiters on the first node.
    pub fn waiters(&self) -> u64 {
        self.servers[0].info("waiters")
    }
}

/// Returns the program with these arguments, separated by spaces, on nodes at these addresses.
pub fn palisade_at(addresses: &str, line: &str) -> Command {
    let mut command = apart(PALISADE);
    command.args(line.split(' ').filter(|word| !word.is_empty()));
    command.env("PALISADE_NODES", addresses).env("PALISADE_NODE_TIMEOUT", NODE_TIMEOUT);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The time that nodes have to answer, long because this machine may be busy.
const NODE_TIMEOUT: &str = "5s";

/// Returns a program that starts separately from whatever runs the tests: in its own session, and so without their
/// terminal. It ignores no signal, even if the tests run under `nohup` or in the background of a script.
pub fn apart(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", "setsid", program]);
    command
}

/// A running program; killed when it is dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }

    /// Returns true if the program has started another program, which is running.
    pub fn has_child(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).into_iter().flatten().flatten();
        let mut children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        children.any(|children| !children.trim().is_empty())
    }

    /// Sends SIGTERM, and checks that this ends the program.
    #[track_caller]
    pub fn terminate(self) {
        self.signal(Signal::SIGTERM);
        assert_eq!(self.end().code(), Some(143));
    }

    /// Waits until the program has ended.
    pub fn end(mut self) -> Ended {
        // Pipes are read meanwhile, because a program that has filled one waits for its reader.
        let [stdout, stderr] = [self.0.stdout.take().map(read_all), self.0.stderr.take().map(read_all)];
        wait_until("the program ends", || self.0.try_wait().unwrap().is_some());
        let all = |reader: Option<JoinHandle<Vec<u8>>>| reader.map_or(vec![], |reader| reader.join().unwrap());
        Ended(Output { status: self.0.wait().unwrap(), stdout: all(stdout), stderr: all(stderr) })
    }
}

/// Begins to read a pipe to its end.
fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = vec![];
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The end of a program, and its output.
#[derive(Debug)]
pub struct Ended(Output);

impl Ended {
    /// Returns the exit status; `None` if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Returns the program's output, which is JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out()).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// Returns all output.
    pub fn all(&self) -> String {
        self.out() + &self.err()
    }

    /// Checks that the program ended with this status, and that the last line of its standard error contains this text.
    #[track_caller]
    pub fn assert_refused_after(&self, code: i32, text: &str) {
        assert_eq!(self.code(), Some(code), "{self:?}");
        assert!(self.err().lines().last().is_some_and(|line| line.contains(text)), "{text}: {self:?}");
    }

    /// Checks that the program ended with this status, and printed one line that contains this text.
    #[track_caller]
    pub fn assert_refused(&self, code: i32, text: &str) {
        assert_eq!(self.code(), Some(code), "{self:?}");
        let said = self.err();
        assert!(said.starts_with("palisade: ") && said.trim_end().lines().count() == 1, "{said}");
        assert!(said.contains(text), "{text}: {said}");
    }
}

/// Runs a command to its end.
pub fn run(command: Command) -> Ended {
    Running::start(command).end()
}

/// Returns the program's JSON output.
pub fn json(nodes: &Nodes, line: &str) -> serde_json::Value {
    run(nodes.palisade(&format!("{line} --json"))).json()
}

/// Runs a command to its end, with this input.
pub fn run_with(mut command: Command, input: &[u8]) -> Ended {
    let mut running = Running::start({
        command.stdin(Stdio::piped());
        command
    });
    let mut pipe = running.0.stdin.take().unwrap();
    let input = input.to_vec();
    let written = std::thread::spawn(move || pipe.write_all(&input));
    let ended = running.end();
    // A program may end before it has read all of its input.
    let written = written.join().unwrap();
    assert!(written.is_ok() || written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe));
    ended
}

/// Returns the content of a file; empty if it does not exist.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the time since boot, as validity is counted.
pub fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap().into()
}

/// Waits until a process has ended, or is a zombie.
pub fn wait_dead(pid: &str) {
    wait_until(&format!("process {pid} is dead"), || !is_alive(pid));
}

/// Returns true if a process is running.
pub fn is_alive(pid: &str) -> bool {
    let status = read(Path::new(&format!("/proc/{pid}/status")));
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// A script that ignores SIGTERM and shows that it is alive: every few milliseconds it writes the time since boot, in
/// seconds, to the file `beat`.
pub const HEARTBEAT: &str = "trap '' TERM; echo $$ > pid; \
    while :; do read up idle < /proc/uptime; echo $up > beat; done";

/// Waits until the beats of [`HEARTBEAT`] have stopped for good, and returns the time of the last one.
pub fn last_beat(nodes: &Nodes) -> Duration {
    let start = Instant::now();
    wait_dead(&nodes.wait_file("pid"));
    assert!(start.elapsed() < patience());
    // The script may have been killed between two system calls, which leaves an empty file; it died after that.
    let beat = read(&nodes.file("beat"));
    Duration::from_secs_f64(beat.trim().parse().unwrap_or(0.0))
}
