//! The nodes one by one, for what is no matter of a quorum: who they are, what they hold, their guard.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use palisade_client::Client;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo, ProtocolVersion, Value};
use tokio::time::timeout;

use crate::exit::{Failure, NO_QUORUM};

/// How long a node is given to be connected to, and to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A node of the list.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its place in the list, from 1.
    pub number: usize,
    /// Its address, without passwords.
    pub name: String,
    client: redis::Client,
}

/// A connection to a node.
#[derive(Clone, Debug)]
pub struct Link(MultiplexedConnection);

/// The nodes of the list.
#[derive(Clone, Debug)]
pub struct Nodes {
    pub list: Vec<Node>,
    client: Client,
}

impl Nodes {
    /// Those at `addresses`. Nothing is connected yet.
    ///
    /// # Errors
    /// An address is none, or is there twice, or there is none at all.
    pub fn at(addresses: &[String]) -> Result<Self, Failure> {
        let addresses: Vec<String> = addresses.iter().map(|a| a.trim().to_owned()).filter(|a| !a.is_empty()).collect();
        if addresses.is_empty() {
            return Err(Failure::usage(
                "which nodes? Say --nodes redis://a,redis://b,redis://c, or set PALISADE_NODES",
            ));
        }
        // What is wrong with an address is said in one place, and without the passwords in it.
        let client = Client::new(&addresses)?;
        let open = |(n, address): (usize, &String)| Node::open(n + 1, address);
        let list = addresses.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        Ok(Self { list, client })
    }

    /// The client that takes locks on them.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns when what is given back in the background has been, as far as the nodes answer.
    pub async fn given_back(&self) {
        // What a node does not hear of ends there with its lease.
        let _ = self.client.close().await;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// How many are a majority.
    pub fn majority(&self) -> usize {
        self.len() / 2 + 1
    }

    /// Sends `command` to each, and returns what each answers.
    pub async fn ask(&self, command: &Cmd) -> Vec<Result<Value, String>> {
        join_all(self.list.iter().map(|node| async { node.connect().await?.ask(command).await })).await
    }

    /// That too few answered, if so: who did not, and why.
    ///
    /// # Errors
    /// Fewer than a majority of `replies` are answers.
    pub fn need_majority<T>(&self, replies: &[Result<T, String>]) -> Result<(), Failure> {
        let answered = replies.iter().filter(|reply| reply.is_ok()).count();
        if answered >= self.majority() {
            return Ok(());
        }
        let whys = self.list.iter().zip(replies);
        let whys = whys.filter_map(|(node, reply)| Some(format!("{}: {}", node.name, reply.as_ref().err()?)));
        let whys = whys.collect::<Vec<_>>().join("; ");
        let text =
            format!("{answered} of {} nodes can be asked, and {} are needed: {whys}", self.len(), self.majority());
        Err(Failure::new(NO_QUORUM, text))
    }
}

impl Node {
    /// The node at `address`.
    ///
    /// # Errors
    /// It is no address.
    pub fn open(number: usize, address: &str) -> Result<Self, Failure> {
        // Not the address itself: there may be a password in it.
        let wrong = |why| Failure::usage(format!("address number {number} is no use: {why}"));
        let info = address.into_connection_info().map_err(wrong)?;
        let name = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => format!("{host}:{port}"),
            ConnectionAddr::Unix(path) => path.display().to_string(),
            other => other.to_string(),
        };
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = redis::Client::open(info.set_redis_settings(redis)).map_err(wrong)?;
        Ok(Self { number, name, client })
    }

    /// A connection to it, if it is a lock node.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self) -> Result<Link, String> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        match timeout(PATIENCE, connecting).await {
            Ok(Ok(connection)) => {
                let mut link = Link(connection);
                // A server without the module answers to SCAN too, and has no locks.
                link.ask(&redis::cmd("LOCK.NODE")).await.map(|_| link)
            }
            Ok(Err(why)) => Err(format!("it cannot be reached: {why}")),
            Err(_) => Err("it does not answer".to_owned()),
        }
    }
}

impl Link {
    /// What it answers to `command`.
    ///
    /// # Errors
    /// Why it does not, or the error that it answers.
    pub async fn ask(&mut self, command: &Cmd) -> Result<Value, String> {
        match timeout(PATIENCE, self.0.send_packed_command(command)).await {
            Ok(reply) => reply.and_then(Value::extract_error).map_err(|error| why(&error)),
            Err(_) => Err("it does not answer".to_owned()),
        }
    }

    /// What it answers to many commands, sent at once.
    ///
    /// # Errors
    /// As [`Link::ask`], for any of them.
    pub async fn ask_many(&mut self, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>, String> {
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command);
        }
        match timeout(PATIENCE, pipeline.query_async(&mut self.0)).await {
            Ok(replies) => replies.map_err(|error| why(&error)),
            Err(_) => Err("it does not answer".to_owned()),
        }
    }
}

/// A node's error, for people.
fn why(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some("ERR"), Some(detail)) if detail.contains("unknown command") => {
            "the server has no lock module: start it with --loadmodule libpalisade.so".to_owned()
        }
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
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

    /// A field of this type, or what stands for one that is not there.
    pub fn get<T: FromRedisValue + Default>(&self, name: &str) -> T {
        let value = self.0.get(name).cloned();
        value.and_then(|value| T::from_redis_value(value).ok()).unwrap_or_default()
    }
}
