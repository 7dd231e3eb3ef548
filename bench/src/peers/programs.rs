//! Lock clients in other languages: each is a process that measures itself and answers questions (`bench/peers`).

use std::time::Duration;

use serde_json::json;

use super::cluster::Cluster;
use super::installed::{Installed, Language};
use super::process::Peer;

/// The time for which a program in Java takes locks before it is measured, without and with waiters. By then, the JVM
/// has compiled the code.
const WARM_UP: Duration = Duration::from_secs(4);

/// A lock client in another language.
#[derive(Clone, Copy)]
pub struct Program {
    /// The client's name, as the program knows it.
    pub client: &'static str,
    pub language: Language,
}

impl Program {
    /// Returns the client that is measured with a cluster.
    pub fn of(cluster: &Cluster) -> Self {
        match cluster {
            Cluster::Etcd(..) => Self { client: "etcd", language: Language::Go },
            Cluster::ZooKeeper(..) => Self { client: "curator", language: Language::Java },
        }
    }

    /// Starts a process with a client of the servers on `ports`. Returns it with its version; `None` if it is not
    /// installed.
    pub async fn start(self, installed: &Installed, ports: &[u16], ttl: Duration) -> Option<(Peer, String)> {
        self.start_after(WARM_UP, installed, ports, ttl).await
    }

    /// Starts a process that takes no locks before the first question.
    pub async fn start_cold(self, installed: &Installed, ports: &[u16], ttl: Duration) -> Option<(Peer, String)> {
        self.start_after(Duration::ZERO, installed, ports, ttl).await
    }

    async fn start_after(
        self,
        warm_up: Duration,
        installed: &Installed,
        ports: &[u16],
        ttl: Duration,
    ) -> Option<(Peer, String)> {
        let hello = json!({
            "do": "hello",
            "client": self.client,
            "ports": ports,
            "ttl_ms": ttl.as_millis() as u64,
            "warm_up_ms": warm_up.as_millis() as u64,
        });
        Some(Peer::start(installed.command(self.language)?, hello).await)
    }
}
