//! The nodes one by one, for what is no matter of a quorum: who they are, what they hold, their guard.
//!
//! A node of the list is a server, the master that Sentinels name, or a cluster. A question about one lock goes to one server of each: the
//! master of its slot. A question about all locks, or about servers, goes to all masters, and each answer has the name of its server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use palisade_client::direct::Place;
use palisade_client::{Client, Error, ErrorKind, Options, Why};
use palisade_core::quorum::{NodeId, first_as};
use redis::{Cmd, Value, cmd};
use tokio::time::{Instant, timeout_at};

use crate::exit::{Failure, NO_QUORUM, USAGE};
use crate::node_failure::{grouped, line, with_remedy};
use crate::reaching::Reaching;
use crate::server::{Link, Server};

/// A question follows so many redirections at most: one to a slot's new master, one to where the slot is going, and one more for what happens
/// meanwhile.
const REDIRECTIONS_MAX: usize = 3;

/// What is given back is sent in this time.
const SENT: Duration = Duration::from_millis(20);

/// A node of the list.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its place in the list, from 1.
    pub number: usize,
    /// Its address or addresses, without passwords.
    pub name: String,
    pub place: Arc<Place>,
}

/// What a server of a node said, or why nobody there did.
#[derive(Clone, Debug)]
pub struct Said<T> {
    /// The number of the node.
    pub number: usize,
    /// The server; where it is not known which one, the node.
    pub server: String,
    pub said: Result<T, Why>,
}

/// What a server answers.
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
        let open = |(n, address): (usize, &String)| {
            let place = Place::parse(n + 1, address, &access)?;
            Ok::<_, Failure>(Node { number: n + 1, name: place.name(), place: Arc::new(place) })
        };
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

    /// The same until then. The releases are sent in any case.
    pub async fn given_back_by(&self, by: Instant) {
        let _ = timeout_at(by.max(Instant::now() + SENT), self.given_back()).await;
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
        palisade_core::quorum::majority(self.len())
    }

    /// Those that are one server each.
    pub fn lone(&self) -> impl Iterator<Item = Server> {
        let server = |node: &Node| match &*node.place {
            Place::Server(way) => Some(Server::at(node.number, way.clone())),
            Place::Cluster(_) | Place::Sentinel(_) => None,
        };
        self.list.iter().filter_map(server)
    }

    /// Whether one of them is more than one server, or another one at another time.
    pub fn has_many_servers(&self) -> bool {
        self.list.iter().any(|node| !matches!(*node.place, Place::Server(_)))
    }

    /// Whether one of them is a cluster.
    pub fn has_cluster(&self) -> bool {
        self.list.iter().any(|node| matches!(*node.place, Place::Cluster(_)))
    }

    /// The servers that locks are asked of, as is known now; of a node that has none, why.
    pub async fn servers(&self) -> Vec<Said<Server>> {
        let all = join_all(self.list.iter().map(Node::servers)).await;
        let named = self.list.iter().zip(all).flat_map(|(node, servers)| match servers {
            Ok(servers) => servers.into_iter().map(|server| Said::of(&server.clone(), Ok(server))).collect(),
            Err(why) => vec![Said { number: node.number, server: node.name.clone(), said: Err(why) }],
        });
        named.collect()
    }

    /// Returns what `ask` finds at each server, over a connection to it.
    pub async fn of_each<T>(&self, ask: impl AsyncFn(&Server, Link) -> Result<T, Why>) -> Vec<Said<T>> {
        let connected = self.servers().await.into_iter().map(async |Said { number, server, said }| match said {
            Ok(there) => Said::of(&there, there.connect().await.map(|link| Open { server: there.clone(), link })),
            Err(why) => Said { number, server, said: Err(why) },
        });
        let asked = self.each_once(join_all(connected).await).into_iter().map(async |Said { number, server, said }| {
            let said = match said {
                Ok(Open { server, link }) => ask(&server, link).await,
                Err(why) => Err(why),
            };
            Said { number, server, said }
        });
        join_all(asked).await
    }

    /// Sends `command` to each server, and returns what each answers.
    pub async fn ask(&self, command: &Cmd) -> Vec<Said<Reply>> {
        self.of_each(async |_, mut link| Ok(Reply { value: link.ask(command).await?, guard: link.guard })).await
    }

    /// Sends `command`, which is about `key`, to one server of each node.
    pub async fn ask_about(&self, key: &[u8], command: &Cmd) -> Vec<Said<Reply>> {
        let said = self.ask_each_about(key, vec![vec![command.clone()]; self.len()]).await;
        said.into_iter().map(|said| said.map(|mut replies| replies.remove(0))).collect()
    }

    /// Sends one server of each node the commands of its place in the list, which are about `key`, and returns what it answers to them. To all at the
    /// same moment: a holder that one of them takes its lock from gives it back on the others at once.
    pub async fn ask_each_about(&self, key: &[u8], commands: Vec<Vec<Cmd>>) -> Vec<Said<Vec<Reply>>> {
        let open = self.each_once(join_all(self.list.iter().map(|node| node.open(key))).await);
        let asked = open.into_iter().zip(&commands).map(async |(said, commands)| {
            let Said { number, server, said } = said;
            match said {
                Ok(open) => open.ask(commands).await,
                Err(why) => Said { number, server, said: Err(why) },
            }
        });
        join_all(asked).await
    }

    /// Leaves out those that are servers of an earlier node of the list: one server counts once.
    fn each_once(&self, open: Vec<Said<Open>>) -> Vec<Said<Open>> {
        let id = |said: &Said<Open>| said.said.as_ref().ok().and_then(|open| open.link.id);
        let ids: Vec<Option<NodeId>> = open.iter().map(id).collect();
        let names: Vec<(usize, String)> = open.iter().map(|said| (said.number, said.server.clone())).collect();
        let once = |(place, said): (usize, Said<Open>)| match first_as(&ids, place).map(|first| &names[first]) {
            Some((number, name)) if *number != said.number => Said { said: Err(Why::SameServer(name.clone())), ..said },
            _ => said,
        };
        open.into_iter().enumerate().map(once).collect()
    }

    /// That too few answered, if so: who did not, and why. Of a cluster one server is enough.
    ///
    /// # Errors
    /// Of fewer than a majority of nodes there are answers.
    pub fn need_majority<T>(&self, said: &[Said<T>]) -> Result<(), Failure> {
        let answered: BTreeSet<usize> = said.iter().filter(|said| said.said.is_ok()).map(|said| said.number).collect();
        self.need(&answered, said)
    }

    /// The same, of clusters all masters.
    ///
    /// # Errors
    /// As [`Nodes::need_majority`].
    pub fn need_whole_majority<T>(&self, said: &[Said<T>]) -> Result<(), Failure> {
        let silent = |number: usize| said.iter().any(|said| said.number == number && said.said.is_err());
        let whole = (1..=self.len()).filter(|number| !silent(*number)).collect();
        self.need(&whole, said)
    }

    fn need<T>(&self, answered: &BTreeSet<usize>, said: &[Said<T>]) -> Result<(), Failure> {
        if answered.len() >= self.majority() {
            return Ok(());
        }
        let summary =
            format!("{} of {} nodes can be asked, and {} are needed", answered.len(), self.len(), self.majority());
        let failures =
            said.iter().filter_map(|said| Some((said.number, &*said.server, said.said.as_ref().err()?.clone())));
        Err(self.failure(&summary, failures))
    }

    /// Why the client got no lock.
    pub fn failed(&self, error: Error) -> Failure {
        let failures = error.nodes().iter().enumerate();
        let failures = failures.map(|(n, error)| (n, error.node.as_str(), error.why.clone().of_node()));
        match error.kind() {
            _ if error.nodes().is_empty() => Failure::from(error),
            ErrorKind::NoQuorum | ErrorKind::BadArgument => {
                let failure = self.failure(error.summary(), failures);
                Failure { code: if error.is_lasting() { USAGE } else { failure.code }, ..failure }
            }
            _ => {
                let whys = line(failures.map(|(_, node, failure)| (node, with_remedy(&failure))), self.len());
                let code = Failure::from(error.clone()).code;
                Failure::new(code, format!("{}: {whys}", error.summary()))
            }
        }
    }

    /// The failure of what is wrong with these nodes, each with its number: if so much of it does not pass by itself that no majority is left, it is of no
    /// use to ask again.
    fn failure<'a>(&self, summary: &str, failures: impl IntoIterator<Item = (usize, &'a str, Why)>) -> Failure {
        let failures: Vec<(usize, &str, Why)> = failures.into_iter().collect();
        let texts = || failures.iter().map(|(_, node, failure)| (*node, with_remedy(failure)));
        let count = |of: fn(&Why) -> bool| {
            failures
                .iter()
                .filter(|(_, _, failure)| of(failure))
                .map(|(number, ..)| number)
                .collect::<BTreeSet<_>>()
                .len()
        };
        let (spare, refused) = (self.len() - self.majority(), count(Why::is_refusal));
        if refused <= spare {
            let code = if count(Why::is_lasting) > spare { USAGE } else { NO_QUORUM };
            return Failure::new(code, format!("{summary}: {}", line(texts(), self.len())));
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

/// A connection to the server of a node that is to be asked about a key.
struct Open {
    server: Server,
    link: Link,
}

impl Node {
    /// The servers that locks are asked of, as is known now: one, or the masters of a cluster.
    ///
    /// # Errors
    /// Nobody tells.
    pub async fn servers(&self) -> Result<Vec<Server>, Why> {
        let masters = self.place.masters().await?;
        Ok(masters.into_iter().map(|master| Server::new(self.number, master)).collect())
    }

    /// The Sentinels that name its master.
    pub fn sentinels(&self) -> Vec<Server> {
        match &*self.place {
            Place::Sentinel(sentinels) => sentinels.ways().map(|way| Server::at(self.number, way.clone())).collect(),
            Place::Server(_) | Place::Cluster(_) => vec![],
        }
    }

    /// A connection to the server to ask about `key`.
    async fn open(&self, key: &[u8]) -> Said<Open> {
        let servers = match self.servers().await {
            Ok(servers) => servers,
            Err(why) => return Said { number: self.number, server: self.name.clone(), said: Err(why) },
        };
        let Some(server) = servers.into_iter().find(|server| server.serves(key)) else {
            let why = Why::Unreachable("no master serves the slot of this key".to_owned());
            return Said { number: self.number, server: self.name.clone(), said: Err(why) };
        };
        let link = server.connect().await;
        Said::of(&server, link.map(|link| Open { server: server.clone(), link }))
    }

    /// Sends `command`, which is about `key`, to the server to ask about it.
    pub async fn ask_about(&self, key: &[u8], command: &Cmd) -> Said<Reply> {
        let Said { number, server, said } = self.open(key).await;
        match said {
            Ok(open) => open.ask(std::slice::from_ref(command)).await.map(|mut replies| replies.remove(0)),
            Err(why) => Said { number, server, said: Err(why) },
        }
    }
}

impl Open {
    /// What it answers to these commands about one key; or what the server does that it names instead.
    async fn ask(mut self, commands: &[Cmd]) -> Said<Vec<Reply>> {
        let mut replies = vec![];
        for command in commands {
            match self.ask_one(command).await {
                Ok(value) => replies.push(Reply { value, guard: self.link.guard.clone() }),
                Err(why) => return Said::of(&self.server, Err(why)),
            }
        }
        Said::of(&self.server, Ok(replies))
    }

    async fn ask_one(&mut self, command: &Cmd) -> Result<Value, Why> {
        let mut said = self.link.ask(command).await;
        for _ in 0..REDIRECTIONS_MAX {
            let Some((server, once)) = said.as_ref().err().and_then(|why| self.server.redirected(why)) else { break };
            self.link = server.connect().await?;
            self.server = server;
            if once {
                self.link.ask(&cmd("ASKING")).await?;
            }
            said = self.link.ask(command).await;
        }
        said
    }
}

impl<T> Said<T> {
    /// Of this server.
    pub fn of(server: &Server, said: Result<T, Why>) -> Self {
        Self { number: server.number, server: server.name.clone(), said }
    }

    /// The same, with what `change` makes of it.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Said<U> {
        Said { number: self.number, server: self.server, said: self.said.map(change) }
    }
}

/// What those answered that did.
pub fn answers<T>(said: &[Said<T>]) -> impl Iterator<Item = &T> {
    said.iter().filter_map(|said| said.said.as_ref().ok())
}

/// Why the others did not, each with its name and, where that is known, what to do.
pub fn failures<T>(said: &[Said<T>]) -> impl Iterator<Item = (&str, String)> {
    said.iter().filter_map(|said| Some((&*said.server, with_remedy(said.said.as_ref().err()?))))
}
