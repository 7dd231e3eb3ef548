//! Two servers with the module that have the resources behind gates: a master and its replica. Nothing else uses them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::pipe;
use tokio::time::timeout;

use super::store::connect_to;
use crate::campaign::link::{Link, Target};
use crate::campaign::machine::{Common, Durability, Machine, ask};
use crate::campaign::patience::{PATIENCE, comes_true};

/// The longest time until the replica has acknowledged everything, in milliseconds.
const IN_STEP_MS: u64 = 1_000;

/// The two servers.
#[derive(Debug)]
pub struct Pair {
    machines: [Machine; 2],
    /// The number of the master.
    master: usize,
    /// The replica reaches its master over this link.
    pub link: Link,
    target: Target,
}

impl Pair {
    /// Starts both servers.
    ///
    /// # Errors
    /// A server does not start, or no port is free.
    pub async fn start(common: &Common, folder: &Path) -> Result<Self, String> {
        let new = |name: &str| Machine::new(common, name.to_owned(), folder.join(name), Durability::AofAlways);
        let machines = [new("data-1").map_err(|why| why.to_string())?, new("data-2").map_err(|why| why.to_string())?];
        let target: Target = Arc::new(Mutex::new(machines[0].socket()));
        let link = Link::to(Arc::clone(&target)).await.map_err(|why| why.to_string())?;
        let mut pair = Self { machines, master: 0, link, target };
        pair.machines[0].start(common, None).await?;
        pair.start_replica(common).await?;
        Ok(pair)
    }

    /// Returns the URLs of both servers.
    pub fn urls(&self) -> Vec<String> {
        self.machines.iter().map(|machine| format!("unix://{}", machine.socket().display())).collect()
    }

    /// Returns the master.
    pub fn master(&mut self) -> &mut Machine {
        &mut self.machines[self.master]
    }

    /// Returns the replica.
    pub fn replica(&mut self) -> &mut Machine {
        &mut self.machines[1 - self.master]
    }

    /// Starts the server that is not the master, as its replica.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_replica(&mut self, common: &Common) -> Result<(), String> {
        let port = self.link.port();
        self.replica().start(common, Some(port)).await
    }

    /// Makes the replica the master of the other server, which is down.
    ///
    /// # Errors
    /// It refuses.
    pub async fn promote(&mut self) -> Result<(), String> {
        ask::<String>(&self.replica().socket(), &["REPLICAOF", "NO", "ONE"], PATIENCE).await?;
        self.master = 1 - self.master;
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = self.master().socket();
        Ok(())
    }

    /// Waits until the replica has every write that was acknowledged before. Returns false if that takes too long.
    pub async fn is_in_step(&self) -> bool {
        let url = &self.urls()[self.master];
        let asked = async || {
            let mut connection = connect_to(url).await.ok()?;
            let mut both = pipe();
            both.cmd("SET").arg("chaos:mark").arg("").ignore().cmd("WAIT").arg(1).arg(IN_STEP_MS);
            let replicas: (u64,) = both.query_async(&mut connection).await.ok()?;
            Some(replicas.0)
        };
        comes_true!(PATIENCE, matches!(timeout(Duration::from_millis(2 * IN_STEP_MS), asked()).await, Ok(Some(1..))))
    }
}
