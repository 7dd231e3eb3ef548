//! A server, asked directly.

use std::collections::HashMap;
use std::time::Duration;

use palisade_client::Why;
use palisade_client::direct::{Master, Way};
use palisade_core::quorum::NodeId;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Value, cmd};
use tokio::time::timeout;

/// How long a server is given to be connected to, and to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A server that is a node, or belongs to one.
#[derive(Clone, Debug)]
pub struct Server {
    /// The place of its node in the list, from 1.
    pub number: usize,
    /// Its address, without passwords.
    pub name: String,
    master: Master,
}

/// A connection to a server.
#[derive(Clone, Debug)]
pub struct Link {
    connection: MultiplexedConnection,
    /// For how long it is guarded, and why: as it said when it was connected.
    pub guard: Option<(u64, String)>,
    /// The id of the server; `None`: it was not asked.
    pub id: Option<NodeId>,
}

impl Server {
    /// One of the node with this number.
    pub fn new(number: usize, master: Master) -> Self {
        Self { number, name: master.way.name().to_owned(), master }
    }

    /// One of the node with this number, of whose keys nothing is known.
    pub fn at(number: usize, way: Way) -> Self {
        Self::new(number, Master { way, slots: None })
    }

    /// Another server that is reached as this one is.
    pub fn to(&self, host: &str, port: u16) -> Self {
        Self::at(self.number, self.master.way.to(host, port))
    }

    /// Its address as a set of nodes has it.
    pub fn address(&self) -> String {
        self.master.way.address()
    }

    /// The server with this address in a set, reached as this one is; `None`: it is no such address.
    pub fn to_address(&self, address: &str) -> Option<Self> {
        Some(Self::at(self.number, self.master.way.to_address(address)?))
    }

    /// Whether it is the one of its node to ask about `key`.
    pub fn serves(&self, key: &[u8]) -> bool {
        self.master.serves(key)
    }

    /// Of a cluster, the slots that it serves, first and last of each range.
    pub fn slots(&self) -> Option<&[(u16, u16)]> {
        self.master.slots.as_deref()
    }

    /// Where a question goes instead that it answered so; and whether only this once.
    pub fn redirected(&self, failure: &Why) -> Option<(Self, bool)> {
        let (master, once) = self.master.redirected(failure)?;
        Some((Self::new(self.number, master), once))
    }

    /// A connection to the server there, whatever it is.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn reach(&self) -> Result<Link, Why> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let connected = timeout(PATIENCE, self.master.way.connect(config)).await;
        let connection = connected.unwrap_or_else(|_| Err(Why::late()))?;
        Ok(Link { connection, guard: None, id: None })
    }

    /// A connection to it, if it is a lock node.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self) -> Result<Link, Why> {
        let mut link = self.reach().await?;
        // A server without the module answers to SCAN too, and has no locks.
        let told = link.ask(&cmd("LOCK.NODE")).await?;
        let told = Fields::of(told).unwrap_or_default();
        let guard_ms = told.get("guard_ms");
        link.id = u128::from_str_radix(&told.get::<String>("id"), 16).ok().map(NodeId);
        link.guard = (guard_ms > 0).then(|| (guard_ms, told.get("guard_reason")));
        Ok(link)
    }
}

impl Link {
    /// What it answers to `command`.
    ///
    /// # Errors
    /// Why it does not, or the error that it answers.
    pub async fn ask(&mut self, command: &Cmd) -> Result<Value, Why> {
        match timeout(PATIENCE, self.connection.send_packed_command(command)).await {
            Ok(reply) => Why::or_value(reply).map_err(Why::of_node),
            Err(_) => Err(Why::late()),
        }
    }

    /// What it answers to each of many commands, sent at once.
    ///
    /// # Errors
    /// Why it does not answer.
    pub async fn ask_many(&mut self, commands: &[Cmd]) -> Result<Vec<Result<Value, Why>>, Why> {
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command.clone());
        }
        if commands.is_empty() {
            return Ok(vec![]);
        }
        let asked = self.connection.send_packed_commands(&pipeline, 0, commands.len());
        let replies = timeout(PATIENCE, asked).await.map_err(|_| Why::late())?;
        let replies = replies.map_err(|error| Why::of(&error))?;
        let said = |reply: Value| Why::or_value(Ok(reply)).map_err(Why::of_node);
        Ok(replies.into_iter().map(said).collect())
    }
}

/// The fields of a reply that is a map.
#[derive(Debug, Default)]
pub struct Fields(HashMap<String, Value>);

impl Fields {
    /// Those of `reply`; `None`: it is no map.
    pub fn of(reply: Value) -> Option<Self> {
        match reply {
            Value::Nil => None,
            reply => HashMap::from_redis_value(reply).ok().map(Self),
        }
    }

    /// A field that is a number, if it is there.
    pub fn number(&self, name: &str) -> Option<u64> {
        u64::from_redis_value(self.0.get(name)?.clone()).ok()
    }

    /// A field of this type, or what stands for one that is not there.
    pub fn get<T: FromRedisValue + Default>(&self, name: &str) -> T {
        let value = self.0.get(name).cloned();
        value.and_then(|value| T::from_redis_value(value).ok()).unwrap_or_default()
    }
}
