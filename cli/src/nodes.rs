//! The nodes one by one, for what is no matter of a quorum: who they are, what they hold, their guard.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use palisade_client::direct::{Access, Unreached, Way};
use palisade_client::{Client, Error, ErrorKind, Options};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Value};
use tokio::time::timeout;

use crate::exit::{Failure, NO_QUORUM, USAGE};
use crate::node_failure::{NodeFailure, grouped, line};
use crate::reaching::Reaching;

/// How long a node is given to be connected to, and to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A node of the list.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its place in the list, from 1.
    pub number: usize,
    /// Its address, without passwords.
    pub name: String,
    way: Way,
}

/// A connection to a node.
#[derive(Clone, Debug)]
pub struct Link {
    connection: MultiplexedConnection,
    /// For how long it is guarded, and why: as it said when it was connected.
    guard: Option<(u64, String)>,
}

/// What a node answers.
#[derive(Clone, Debug)]
pub struct Reply {
    pub value: Value,
    /// For how many milliseconds it is guarded, and why; `None`: it serves.
    pub guard: Option<(u64, String)>,
}

/// The nodes of the list.
#[derive(Clone, Debug)]
pub struct Nodes {
    pub list: Vec<Node>,
    client: Client,
    reaching: Reaching,
}

impl Nodes {
    /// Those that are reached so. Nothing is connected yet.
    ///
    /// # Errors
    /// An address is none, or is there twice, or there is none at all; a file cannot be read.
    pub fn at(reaching: &Reaching) -> Result<Self, Failure> {
        Self::given(reaching, None)
    }

    /// The same, which are given so long to answer when a lock is taken, unless the client decides.
    ///
    /// # Errors
    /// As [`Nodes::at`].
    pub fn given(reaching: &Reaching, node_timeout: Option<Duration>) -> Result<Self, Failure> {
        let addresses = reaching.addresses();
        if addresses.is_empty() {
            return Err(Failure::usage(
                "which nodes? Say --nodes redis://a,redis://b,redis://c, or set PALISADE_NODES",
            ));
        }
        let access = reaching.access()?;
        // What is wrong with an address is said in one place, and without the passwords in it.
        let defaults = node_timeout.map_or_else(Options::new, |time| Options::new().node_timeout(time));
        let client = Client::builder().nodes(&addresses).access(access.clone()).defaults(defaults).build()?;
        let access = Arc::new(access);
        let open = |(n, address): (usize, &String)| Node::open(n + 1, address, &access);
        let list = addresses.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        Ok(Self { list, client, reaching: reaching.clone() })
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

    /// How they are reached.
    pub fn reaching(&self) -> &Reaching {
        &self.reaching
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
    pub async fn ask(&self, command: &Cmd) -> Vec<Result<Reply, NodeFailure>> {
        join_all(self.list.iter().map(|node| async {
            let mut link = node.connect().await?;
            Ok(Reply { value: link.ask(command).await?, guard: link.guard })
        }))
        .await
    }

    /// Sends each the commands of its place in the list, and returns what it answers to them. To all at the same moment: a holder that one of
    /// them takes its lock from gives it back on the others at once.
    pub async fn ask_each(&self, commands: Vec<Vec<Cmd>>) -> Vec<Result<Vec<Value>, NodeFailure>> {
        let links = join_all(self.list.iter().map(Node::connect)).await;
        join_all(links.into_iter().zip(commands).map(|(link, commands)| async { link?.ask_many(commands).await })).await
    }

    /// That too few answered, if so: who did not, and why.
    ///
    /// # Errors
    /// Fewer than a majority of `replies` are answers.
    pub fn need_majority<T>(&self, replies: &[Result<T, NodeFailure>]) -> Result<(), Failure> {
        let answered = replies.iter().filter(|reply| reply.is_ok()).count();
        if answered >= self.majority() {
            return Ok(());
        }
        let summary = format!("{answered} of {} nodes can be asked, and {} are needed", self.len(), self.majority());
        let named = self.list.iter().zip(replies);
        Err(self.failure(
            &summary,
            named.filter_map(|(node, reply)| Some((node.name.as_str(), reply.as_ref().err()?.clone()))),
        ))
    }

    /// Why the client got no lock.
    pub fn failed(&self, error: Error) -> Failure {
        let failures = error.nodes().iter().map(|error| (error.node.as_str(), NodeFailure::told(&error.why)));
        match error.kind() {
            _ if error.nodes().is_empty() => Failure::from(error),
            ErrorKind::NoQuorum | ErrorKind::BadArgument => self.failure(error.summary(), failures),
            _ => {
                let whys = line(failures.map(|(node, failure)| (node, failure.with_remedy())), self.len());
                let code = Failure::from(error.clone()).code;
                Failure::new(code, format!("{}: {whys}", error.summary()))
            }
        }
    }

    /// The failure of what is wrong with these nodes: if so many refuse the request that no majority is left, it is of no use to
    /// ask again.
    pub fn failure<'a>(&self, summary: &str, failures: impl IntoIterator<Item = (&'a str, NodeFailure)>) -> Failure {
        let failures: Vec<(&str, NodeFailure)> = failures.into_iter().collect();
        let texts = || failures.iter().map(|(node, failure)| (*node, failure.with_remedy()));
        let refused = failures.iter().filter(|(_, failure)| failure.is_refusal()).count();
        if refused <= self.len() - self.majority() {
            return Failure::new(NO_QUORUM, format!("{summary}: {}", line(texts(), self.len())));
        }
        Failure::new(
            USAGE,
            match &grouped(texts(), self.len())[..] {
                [(who, why)] if refused == 1 => format!("{who} refuses this: {why}"),
                [(who, why)] => format!("{who} refuse this: {why}"),
                _ => format!("{refused} of {} nodes refuse this: {}", self.len(), line(texts(), self.len())),
            },
        )
    }
}

impl Node {
    /// The node at `address`.
    ///
    /// # Errors
    /// It is no address.
    pub fn open(number: usize, address: &str, access: &Arc<Access>) -> Result<Self, Failure> {
        let way = Way::new(number, address, access)?;
        Ok(Self { number, name: way.name().to_owned(), way })
    }

    /// A connection to the server there, whatever it is.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn reach(&self) -> Result<Link, NodeFailure> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let connected = timeout(PATIENCE, self.way.connect(config)).await.map_err(|_| NodeFailure::late())?;
        let connection = connected.map_err(|why| match why {
            Unreached::Access(why) => NodeFailure::Silent(why),
            Unreached::Server(error) => NodeFailure::unreachable(&error),
        })?;
        Ok(Link { connection, guard: None })
    }

    /// A connection to it, if it is a lock node.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self) -> Result<Link, NodeFailure> {
        let mut link = self.reach().await?;
        // A server without the module answers to SCAN too, and has no locks.
        let told = link.ask(&redis::cmd("LOCK.NODE")).await?;
        let told = Fields::of(told).unwrap_or_default();
        let guard_ms = told.get("guard_ms");
        link.guard = (guard_ms > 0).then(|| (guard_ms, told.get("guard_reason")));
        Ok(link)
    }
}

impl Link {
    /// What it answers to `command`.
    ///
    /// # Errors
    /// Why it does not, or the error that it answers.
    pub async fn ask(&mut self, command: &Cmd) -> Result<Value, NodeFailure> {
        match timeout(PATIENCE, self.connection.send_packed_command(command)).await {
            Ok(reply) => reply.and_then(Value::extract_error).map_err(|error| NodeFailure::from(&error)),
            Err(_) => Err(NodeFailure::late()),
        }
    }

    /// What it answers to many commands, sent at once.
    ///
    /// # Errors
    /// As [`Link::ask`], for any of them.
    pub async fn ask_many(&mut self, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>, NodeFailure> {
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command);
        }
        match timeout(PATIENCE, pipeline.query_async(&mut self.connection)).await {
            Ok(replies) => replies.map_err(|error| NodeFailure::from(&error)),
            Err(_) => Err(NodeFailure::late()),
        }
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
