//! Three ZooKeeper nodes, with the server of the library.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::process::{Servers, free_port};
use super::turns::Done;

/// The number of nodes of a cluster: the least that ZooKeeper's documentation recommends.
const NODES: usize = 3;

/// A cluster on the loopback, with the settings of ZooKeeper's guide, and without limits on connections.
pub struct ZooKeeper {
    nodes: Servers,
    clients: Vec<u16>,
    _dir: TempDir,
}

impl ZooKeeper {
    /// Starts a cluster that keeps its data under `folder`, and waits until it has a leader.
    pub async fn start(class_path: &OsStr, folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let dir = tempfile::tempdir_in(std::path::absolute(folder).unwrap()).unwrap();
        let clients: Vec<u16> = (0..NODES).map(|_| free_port()).collect();
        let peers: Vec<String> =
            (0..NODES).map(|n| format!("server.{n}=127.0.0.1:{}:{}\n", free_port(), free_port())).collect();
        let node = |n: usize| {
            let data = dir.path().join(n.to_string());
            std::fs::create_dir(&data).unwrap();
            std::fs::write(data.join("myid"), n.to_string()).unwrap();
            let settings = format!(
                "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
                 maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=mntr\n{}",
                data.display(),
                clients[n],
                peers.concat()
            );
            let file = data.join("zoo.cfg");
            std::fs::write(&file, settings).unwrap();
            Command::new("java")
                .arg("-cp")
                .arg(class_path)
                .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
                .arg(file)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("java can be started")
        };
        let nodes = (0..NODES).map(node).collect();
        let cluster = Self { nodes, clients, _dir: dir };
        for _ in 0..600 {
            if cluster.follower().await.is_some() {
                return cluster;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the ZooKeeper nodes did not find a leader");
    }

    /// Returns a node that follows, once all nodes serve.
    async fn follower(&self) -> Option<usize> {
        let mut follower = None;
        for (n, &port) in self.clients.iter().enumerate() {
            match monitored(port).await.lines().find_map(|line| line.strip_prefix("zk_server_state\t"))? {
                "follower" => follower = Some(n),
                "leader" => {}
                _ => return None,
            }
        }
        follower
    }

    pub fn ports(&self) -> Vec<u16> {
        self.clients.clone()
    }

    pub async fn freeze_follower(&self, frozen: bool) {
        match frozen {
            true => self.nodes.freeze(self.follower().await.expect("all serve")),
            false => self.nodes.go_on(),
        }
    }

    pub fn cpu(&self) -> Duration {
        self.nodes.cpu()
    }

    pub async fn done(&self) -> Done {
        let mut done = Done::default();
        for &port in &self.clients {
            let text = monitored(port).await;
            let value = |name: &str| -> f64 {
                let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
                line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in mntr"))
            };
            done.requests += value("zk_packets_received");
            done.fsyncs += value("zk_cnt_fsynctime");
        }
        done
    }
}

/// Returns what the node on `port` says of itself (its command mntr); nothing if it does not serve.
async fn monitored(port: u16) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await {
        let _ = stream.write_all(b"mntr").await;
        let _ = stream.read_to_string(&mut text).await;
    }
    text
}
