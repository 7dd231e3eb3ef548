//! Five servers with the module, each on a port and in a folder of its own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{FromRedisValue, RedisError};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::Failure;

/// Ports below those that systems assign, so that no other process gets the port of a node that is down for a while.
const PORTS: std::ops::Range<u16> = 21_000..31_000;

/// The longest lease, in milliseconds: short, for the story. The guard of a node that restarts lasts two seconds longer,
/// because of `lock.max-clock-skew`.
const MAX_TTL_MS: &str = "3000";

/// A server, which is killed when this value is dropped.
pub struct Node {
    server: PathBuf,
    module: PathBuf,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
}

/// The servers. The folder is dropped last, when no server writes to it any longer.
pub struct Nodes {
    pub list: Vec<Node>,
    folder: TempDir,
}

impl Nodes {
    /// Starts `count` servers.
    pub async fn start(count: usize, server: &str, module: &str) -> Result<Self, Failure> {
        let module = std::path::absolute(module)?;
        if !module.exists() {
            return Err(format!("{} is not there: build it with `make build`", module.display()).into());
        }
        let folder = tempfile::Builder::new().prefix("palisade-demo-").tempdir()?;
        let mut nodes = Self { list: vec![], folder };
        for port in free_ports(count)? {
            let folder = nodes.folder.path().join(port.to_string());
            std::fs::create_dir(&folder)?;
            let mut node = Node { server: server.into(), module: module.clone(), folder, port, child: None };
            node.start().await?;
            nodes.list.push(node);
        }
        Ok(nodes)
    }

    /// Returns the servers' addresses, as clients take them.
    pub fn addresses(&self) -> Vec<String> {
        self.list.iter().map(|node| format!("redis://127.0.0.1:{}", node.port)).collect()
    }
}

impl Node {
    /// Starts the server, for the first time or again. Returns once it answers.
    pub async fn start(&mut self) -> Result<(), Failure> {
        let mut command = Command::new(&self.server);
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(&self.folder).arg("--logfile").arg(self.folder.join("log"));
        command.arg("--loadmodule").arg(&self.module).args(["max-ttl", MAX_TTL_MS]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|why| format!("{} cannot be started: {why}", self.server.display()))?;
        let child = self.child.insert(child);
        loop {
            if let Some(status) = child.try_wait()? {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!("the server on port {} ended with {status}:\n{log}", self.port).into());
            }
            if ask::<String>(self.port, "PING").await.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills the server, as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns the port that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a command, written as a person would type it, and returns the server's answer.
    pub async fn say<T: FromRedisValue>(&self, line: &str) -> Result<T, RedisError> {
        ask(self.port, line).await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a command on a connection of its own: commands are few, and servers come and go.
async fn ask<T: FromRedisValue>(port: u16, line: &str) -> Result<T, RedisError> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap_or_default());
    words.for_each(|word| {
        command.arg(word);
    });
    command.query_async(&mut connection).await
}

fn free_ports(count: usize) -> Result<Vec<u16>, Failure> {
    // Two stories at once search different ports.
    let from = std::process::id() as usize * 16 % PORTS.len();
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports: Vec<u16> = PORTS.cycle().skip(from).take(PORTS.len()).filter(free).take(count).collect();
    if ports.len() < count { Err("no free ports".into()) } else { Ok(ports) }
}
