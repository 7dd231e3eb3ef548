//! Processes: peers in other languages that are queried over standard input, and the system's data about any process.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::server::cpu_of_process;

/// The longest time for an answer: longer than any measurement.
const ANSWER_MAX: Duration = Duration::from_secs(90);

/// A program that answers each line of JSON with one line of JSON. It ends with this process, or when it is dropped.
pub struct Peer {
    // Killed when dropped. Boxed, as it is much larger than other clients.
    child: Box<Child>,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts the program, and sends it its settings as `hello`. Returns it with its version, which is its answer.
    pub async fn start(mut command: Command, hello: Value) -> (Self, String) {
        let mut child =
            command.spawn().unwrap_or_else(|why| panic!("a peer cannot be started: {why}; see make setup-peers"));
        let to = child.stdin.take().expect("it is piped");
        let from = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut peer = Self { child: Box::new(child), to, from };
        let answer = peer.ask(hello).await;
        let version = answer["version"].as_str().unwrap_or_else(|| panic!("no version in {answer}")).to_owned();
        (peer, version)
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it is not waited for")
    }

    /// Kills the process, and waits for its end.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends `question` and returns the answer to it.
    pub async fn ask(&mut self, question: Value) -> Value {
        self.to.write_all(format!("{question}\n").as_bytes()).await.expect("the peer has ended");
        let line = tokio::time::timeout(ANSWER_MAX, self.from.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("no answer to {question}")).unwrap();
        serde_json::from_str(&line.expect("the peer has ended")).unwrap()
    }
}

/// Returns the numbers in `answer` under `name`.
pub fn numbers(answer: &Value, name: &str) -> Vec<u64> {
    let numbers = answer[name].as_array().unwrap_or_else(|| panic!("no {name} in {answer}"));
    numbers.iter().map(|number| number.as_u64().expect("times are whole numbers")).collect()
}

/// Returns a port of the loopback on which nobody listens.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The servers of a cluster on this machine, killed when this is dropped.
pub struct Servers(Vec<std::process::Child>);

impl FromIterator<std::process::Child> for Servers {
    fn from_iter<I: IntoIterator<Item = std::process::Child>>(servers: I) -> Self {
        Self(servers.into_iter().collect())
    }
}

impl Servers {
    /// Freezes a server.
    pub fn freeze(&self, place: usize) {
        freeze_process(&self.0[place], true);
    }

    /// Continues all servers.
    pub fn go_on(&self) {
        self.0.iter().for_each(|server| freeze_process(server, false));
    }

    /// Returns the CPU time of all servers so far.
    pub fn cpu(&self) -> Duration {
        self.0.iter().map(|server| cpu_of_process(server.id())).sum()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Freezes `child`, or continues it.
fn freeze_process(child: &std::process::Child, frozen: bool) {
    let signal = if frozen { Signal::STOP } else { Signal::CONT };
    kill_process(Pid::from_child(child), signal).unwrap();
}
