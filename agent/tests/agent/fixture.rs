//! Starts nodes and an agent in this process, and connections that show the bytes of its replies.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use palisade_agent::limits::CONNECTIONS_DEFAULT;
use palisade_agent::{Address, Agent, Config, OnEnd, Password};
use palisade_client::{Client, Options};
use tempfile::TempDir;
use tokio::sync::oneshot;

pub use crate::harness::Nodes;
use crate::harness::{Setup, int, patience, wait_until};

impl Nodes {
    /// Starts `count` nodes, without files for their data.
    pub fn start(count: usize) -> Self {
        Self((0..count).map(|_| Setup::new().start()).collect())
    }

    /// Starts an agent with all these nodes, and waits until it has reached each of them.
    pub fn agent(&self) -> Running {
        self.agent_with(|config| config)
    }

    pub fn agent_with(&self, change: impl FnOnce(Config) -> Config) -> Running {
        let agent = Running::start(&self.addresses(), change);
        let mut me = agent.client();
        if agent.password.is_some() {
            me.say("AUTH secret");
        }
        wait_until("all nodes are reached", || me.say("LOCK.NODE").field("serving") == int(self.0.len() as i64));
        agent
    }

    /// Returns how many requests wait on all nodes together.
    pub fn waiters(&self) -> u64 {
        self.0.iter().map(|server| server.info("waiters")).sum()
    }
}

/// Returns addresses at which there is no node.
pub fn nowhere() -> Vec<String> {
    ["a", "b", "c"].map(|name| format!("unix:///nowhere/{name}")).to_vec()
}

/// A running agent, in this process, on the thread that its client uses.
pub struct Running {
    folder: TempDir,
    password: Option<Password>,
    metrics: Option<SocketAddr>,
    http: Option<SocketAddr>,
    end: Option<oneshot::Sender<()>>,
    ends_with: Receiver<Result<(), String>>,
}

impl Running {
    pub fn start(nodes: &[String], change: impl FnOnce(Config) -> Config) -> Self {
        let folder = tempfile::Builder::new().prefix("agent-").tempdir().unwrap();
        let config = change(Config {
            listen: vec![Address::Unix(folder.path().join("socket"))],
            socket_mode: 0o600,
            password: None,
            metrics: None,
            http: None,
            on_end: OnEnd::Leave,
            connections_max: CONNECTIONS_DEFAULT,
            tell: |line| println!("agent: {line}"),
        });
        let password = config.password.clone();
        let (end, ended) = oneshot::channel();
        let (tell, told) = channel();
        let (end_with, ends_with) = channel();
        // The machine may be busy with other tests, so nodes have much time to answer.
        let patient = Options::new().node_timeout(Duration::from_secs(10));
        let client = Client::builder().nodes(nodes).defaults(patient).build().unwrap();
        let own = client.clone();
        let serving = async move {
            let agent = Agent::listen(config, own, vec![]).await?;
            tell.send((agent.metrics_address(), agent.http_address())).unwrap();
            agent.run(async { drop(ended.await) }).await
        };
        // On the client's thread, as the program's agent.
        client.spawn(async move { drop(end_with.send(serving.await)) }).unwrap();
        let (metrics, http) = told.recv().expect("the agent listens");
        Self { folder, password, metrics, http, end: Some(end), ends_with }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn metrics(&self) -> SocketAddr {
        self.metrics.unwrap()
    }

    pub fn http(&self) -> SocketAddr {
        self.http.unwrap()
    }

    /// Returns a new connection to the agent, by a client library.
    pub fn client(&self) -> crate::harness::Client {
        crate::harness::Client::connect(&self.socket(), false)
    }

    /// Returns a new connection to the agent that shows the bytes of replies.
    pub fn raw(&self) -> Raw {
        Raw::new(&self.socket())
    }

    /// Returns the number in the field `field` of the agent's INFO.
    pub fn info(&self, field: &str) -> u64 {
        self.client().info_field(field)
    }

    /// Makes the agent begin to end, without waiting for it.
    pub fn begin_end(&mut self) {
        self.end.take().unwrap().send(()).unwrap();
    }

    /// Ends the agent, waits for that, and returns its result.
    pub fn end(mut self) -> Result<(), String> {
        if self.end.is_some() {
            self.begin_end();
        }
        self.ends_with.recv().expect("the agent does not panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.ends_with.recv();
    }
}

/// A connection to the agent that shows the bytes of replies.
pub struct Raw {
    stream: UnixStream,
    read: Vec<u8>,
}

impl Raw {
    pub fn new(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        Self { stream, read: vec![] }
    }

    /// Sends these bytes. The agent need not read all of them.
    pub fn send(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Err(why) if [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&why.kind()) => {}
            sent => sent.unwrap(),
        }
    }

    /// Sends the words of a line as a command. Returns the bytes of the reply.
    pub fn say(&mut self, line: &str) -> String {
        self.send(&packed(line));
        self.hear()
    }

    /// Sends the words of a line like [`Raw::say`], again and again until the reply is not NOTYET.
    pub fn insist(&mut self, line: &str) -> String {
        let mut said = self.say(line);
        wait_until(line, || {
            let waits = said.contains(" NOTYET ");
            if waits {
                said = self.say(line);
            }
            !waits
        });
        said
    }

    /// Waits for the next reply, and returns its bytes.
    pub fn hear(&mut self) -> String {
        let mut needed = 1;
        let mut at = 0;
        while needed > 0 {
            let end = self.line_end(at);
            let head = String::from_utf8_lossy(&self.read[at + 1..end]).into_owned();
            let count = || head.parse::<i64>().unwrap();
            needed -= 1;
            match self.read[at] {
                b'*' | b'~' => needed += count().max(0),
                b'%' => needed += 2 * count(),
                b'$' if count() >= 0 => {
                    let whole = end + 2 + count() as usize + 2;
                    while self.read.len() < whole {
                        assert!(self.more(), "the connection ended within a reply");
                    }
                    at = whole;
                    continue;
                }
                _ => {}
            }
            at = end + 2;
        }
        let reply = String::from_utf8_lossy(&self.read[..at]).into_owned();
        self.read.drain(..at);
        reply
    }

    /// Returns all bytes that come until the connection ends.
    pub fn rest(&mut self) -> String {
        while self.more() {}
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }

    /// Returns another handle of this connection, so that a second thread can write.
    pub fn try_clone(&self) -> Self {
        Self { stream: self.stream.try_clone().unwrap(), read: vec![] }
    }

    /// Makes later writes drop the bytes for which the system has no room.
    pub fn set_nonblocking(&self) {
        self.stream.set_nonblocking(true).unwrap();
    }

    /// Sends as many bytes as the system takes now. Returns true if it took all.
    pub fn try_send(&self, bytes: &[u8]) -> bool {
        (&self.stream).write(bytes).is_ok_and(|sent| sent == bytes.len())
    }

    fn line_end(&mut self, from: usize) -> usize {
        loop {
            if let Some(end) = self.read[from..].windows(2).position(|two| two == b"\r\n") {
                return from + end;
            }
            assert!(self.more(), "the connection ended before a reply");
        }
    }

    /// Waits for more bytes. Returns false at the end of the input.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.read.extend_from_slice(&buffer[..count]);
                true
            }
            Err(why) if why.kind() == ErrorKind::ConnectionReset => false,
            Err(why) => panic!("nothing came: {why}"),
        }
    }
}

/// Returns the words of a line as the bytes of a command.
pub fn packed(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
