//! The nodes one by one, for questions about single nodes: their identity, their locks, their guard.
//!
//! The list is that of `--nodes`, or for questions about locks the present set of nodes (`members/present.rs`).
//!
//! A node of the list is a server, the master that Sentinels name, or a cluster. A command about one lock goes to one
//! server of each node: the master of its slot. A command about all locks, or about servers, goes to all masters, and
//! each answer names its server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use palisade_client::direct::{Place, Server, ServerLink, members, places};
use palisade_client::{Client, Error, ErrorKind, Options, Why};
use palisade_quorum::{Member, Members, NodeId, first_as};
use redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use crate::exit::{Failure, NO_QUORUM, USAGE};
use crate::node_failure::{grouped, line, with_remedy};
use crate::reaching::Reaching;

/// The least time that is left for sending releases to the nodes.
const SENT: Duration = Duration::from_millis(20);

/// The reason why a server at a member's address is not asked: its answers would count for the member.
const ANOTHER_SERVER: &str =
    "another server is there than the member of the set: it was replaced, or lost its state file (palisade members)";

/// A node of the list.
#[derive(Clone, Debug)]
pub struct Node {
    /// The position in `--nodes`, from 1. Members of the set that are not in `--nodes` have the numbers after those.
    pub number: usize,
    /// The id that the server must have, because the set has it; `None` if it may have any.
    id: Option<NodeId>,
    /// The address or addresses, without passwords.
    pub name: String,
    pub place: Arc<Place>,
}

/// A server's answer, or the reason why none came.
#[derive(Clone, Debug)]
pub struct ServerAnswer<T> {
    /// The number of the server's node in the list, from 1.
    pub number: usize,
    /// The server, or the node if the server is unknown.
    pub server: String,
    pub said: Result<T, Why>,
}

/// A server's reply to a command, with its guard.
#[derive(Clone, Debug)]
pub struct Reply {
    pub value: Value,
    /// The remaining guard in milliseconds, and its reason; `None` if the server serves.
    pub guard: Option<(u64, String)>,
}

impl Reply {
    /// Returns the reply of the server at the other end of `link` about a lock that it does not show.
    pub fn empty(link: &ServerLink) -> Self {
        Self { value: Value::Nil, guard: link.guard() }
    }
}

/// The nodes of the list.
#[derive(Clone, Debug)]
pub struct Nodes {
    pub list: Vec<Node>,
    client: Client,
    reaching: Reaching,
}

impl Nodes {
    /// Returns the nodes that these arguments name, without connecting to them.
    ///
    /// # Errors
    ///
    /// An address is invalid or given twice, no address is given, or a file cannot be read.
    pub fn at(reaching: &Reaching) -> Result<Self, Failure> {
        Self::given(reaching, None)
    }

    /// Returns the nodes. `node_timeout` is the time that a node has to answer when a lock is taken; by default, the client's.
    ///
    /// # Errors
    ///
    /// Those of [`Nodes::at`].
    pub fn given(reaching: &Reaching, node_timeout: Option<Duration>) -> Result<Self, Failure> {
        let addresses = reaching.addresses();
        if addresses.is_empty() {
            return Err(Failure::usage(
                "which nodes? Say --nodes redis://a,redis://b,redis://c, or set PALISADE_NODES",
            ));
        }
        let access = reaching.access()?;
        // Errors in an address get their text in one place, without the address's passwords.
        let defaults = node_timeout.map_or_else(Options::new, |time| Options::new().node_timeout(time));
        let client = Client::builder().nodes(&addresses).access(access.clone()).defaults(defaults).build()?;
        let access = Arc::new(access);
        let open = |(n, address): (usize, &String)| {
            let place = Place::parse(n + 1, address, &access)?;
            Ok::<_, Failure>(Node::new(n + 1, None, place))
        };
        let list = addresses.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        Ok(Self { list, client, reaching: reaching.clone() })
    }

    /// Returns the nodes that the client works with, as far as it has heard of a newer set. Nobody is asked.
    pub fn of_client(&self) -> Self {
        self.of_set(&members(&self.client), |_| None)
    }

    /// Returns the members of a set; these nodes if there is no set. `number` is a member's number in `--nodes`.
    pub fn of_set(&self, set: &Members, number: impl Fn(&Member) -> Option<usize>) -> Self {
        if set.version == 0 {
            return self.clone();
        }
        let mut used = BTreeSet::new();
        let node = |(member, place): (&Member, Place)| {
            // Two members may have one address, if the set has a server and the one that took its place.
            let free = (self.len() + 1..).find(|number| !used.contains(number));
            let number = number(member).filter(|number| !used.contains(number)).or(free).unwrap_or_default();
            used.insert(number);
            Node::new(number, member.id.map(NodeId), place)
        };
        let list = set.list.iter().zip(places(&self.client, set)).map(node).collect();
        Self { list, client: self.client.clone(), reaching: self.reaching.clone() }
    }

    /// Returns the client that takes locks on the nodes.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until releases in the background are done, as far as the nodes answer.
    pub async fn given_back(&self) {
        // On a node that does not receive the release, the lock ends with its lease.
        let _ = self.client.close().await;
    }

    /// Waits until `by` for releases in the background, but always long enough to send all of them.
    pub async fn given_back_by(&self, by: Instant) {
        let _ = timeout_at(by.max(Instant::now() + SENT), self.given_back()).await;
    }

    /// Returns the arguments by which the nodes are reached.
    pub fn reaching(&self) -> &Reaching {
        &self.reaching
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of nodes in a majority.
    pub fn majority(&self) -> usize {
        palisade_quorum::majority(self.len())
    }

    /// Returns true if a node has more than one server, or may change its server.
    pub fn has_many_servers(&self) -> bool {
        self.list.iter().any(|node| matches!(*node.place, Place::Cluster(_) | Place::Sentinel(_)))
    }

    /// Returns true if a node is a cluster.
    pub fn has_cluster(&self) -> bool {
        self.list.iter().any(|node| matches!(*node.place, Place::Cluster(_)))
    }

    /// Returns the servers that serve locks now; for a node without any, the reason.
    pub async fn servers(&self) -> Vec<ServerAnswer<Server>> {
        let all = join_all(self.list.iter().map(|node| node.place.masters(node.number))).await;
        let named = self.list.iter().zip(all).flat_map(|(node, servers)| match servers {
            Ok(servers) => servers.into_iter().map(|server| ServerAnswer::of(&server.clone(), Ok(server))).collect(),
            Err(why) => vec![node.answer(Err(why))],
        });
        named.collect()
    }

    /// Connects to these servers. Leaves out servers that an earlier node of the list has too, so that each counts
    /// once, and servers that are not the members at their addresses.
    async fn connect(&self, servers: Vec<ServerAnswer<Server>>) -> Vec<ServerAnswer<ServerLink>> {
        let connect = async |server: Server| {
            let link = server.connect().await?;
            let expected = self.list.iter().find(|node| node.number == server.number).and_then(|node| node.id);
            if expected.is_some() && link.id() != expected {
                return Err(Why::Unfit(ANOTHER_SERVER.to_owned()));
            }
            // A replica would show its master's grants once more.
            if !link.is_master() {
                return Err(Why::answered("READONLY", "it is a replica, and grants nothing"));
            }
            Ok(link)
        };
        let open = join_all(servers.into_iter().map(|said| said.and_then(connect))).await;
        let id = |said: &ServerAnswer<ServerLink>| said.said.as_ref().ok().and_then(ServerLink::id);
        let ids: Vec<Option<NodeId>> = open.iter().map(id).collect();
        let names: Vec<(usize, String)> = open.iter().map(|said| (said.number, said.server.clone())).collect();
        let once =
            |(place, said): (usize, ServerAnswer<ServerLink>)| match first_as(&ids, place).map(|first| &names[first]) {
                Some((number, name)) if *number != said.number => {
                    ServerAnswer { said: Err(Why::SameServer(name.clone())), ..said }
                }
                _ => said,
            };
        open.into_iter().enumerate().map(once).collect()
    }

    /// Calls `ask` with a connection to each server, and returns the results.
    pub async fn of_each<T>(&self, ask: impl AsyncFn(ServerLink) -> Result<T, Why>) -> Vec<ServerAnswer<T>> {
        let open = self.connect(self.servers().await).await;
        join_all(open.into_iter().map(|said| said.and_then(&ask))).await
    }

    /// Sends `command` to each server, and returns the answers.
    pub async fn ask(&self, command: &Cmd) -> Vec<ServerAnswer<Reply>> {
        self.of_each(async |mut link: ServerLink| Ok(Reply { value: link.ask(command).await?, guard: link.guard() }))
            .await
    }

    /// Sends `command`, which is about `key`, to one server of each node.
    pub async fn ask_about(&self, key: &[u8], command: &Cmd) -> Vec<ServerAnswer<Reply>> {
        let said = self.ask_each_about(key, vec![vec![command.clone()]; self.len()]).await;
        said.into_iter().map(|said| said.map(|mut replies| replies.remove(0))).collect()
    }

    /// Sends each node's commands, which are about `key`, to one server of that node, and returns the answers. All are
    /// sent at once, because a holder that loses its lock on one node releases it immediately on the others.
    pub async fn ask_each_about(&self, key: &[u8], commands: Vec<Vec<Cmd>>) -> Vec<ServerAnswer<Vec<Reply>>> {
        let master = async |node: &Node| node.answer(node.place.master_of(node.number, key).await);
        let open = self.connect(join_all(self.list.iter().map(master)).await).await;
        let asked = open.into_iter().zip(&commands).map(async |(said, commands)| {
            let ServerAnswer { number, server, said } = said;
            let mut link = match said {
                Ok(link) => link,
                Err(why) => return ServerAnswer { number, server, said: Err(why) },
            };
            let mut replies = vec![];
            for command in commands {
                match link.ask(command).await {
                    Ok(value) => replies.push(Reply { value, guard: link.guard() }),
                    Err(why) => return ServerAnswer::of(&link.server, Err(why)),
                }
            }
            // The answer may come from another server, to which the first one redirected.
            ServerAnswer::of(&link.server, Ok(replies))
        });
        join_all(asked).await
    }

    /// Sends a command about each of `keys` over these connections, on each node to the server that serves the key.
    /// Returns the answers by key.
    pub async fn ask_over(
        links: &mut [ServerLink],
        keys: &[&[u8]],
        question: impl Fn(&[u8]) -> Cmd,
    ) -> Vec<Vec<ServerAnswer<Value>>> {
        let question = &question;
        let asked = links.iter_mut().map(async |link| {
            let own: Vec<usize> = (0..keys.len()).filter(|&n| link.server.has_slot_of(keys[n])).collect();
            let commands: Vec<Cmd> = own.iter().map(|&n| question(keys[n])).collect();
            let (number, answers) = (link.server.number, link.ask_each(&commands).await.unwrap_or_default());
            own.into_iter().zip(answers).map(move |(n, (server, said))| (n, ServerAnswer { number, server, said }))
        });
        let mut by_key: Vec<Vec<ServerAnswer<Value>>> = keys.iter().map(|_| vec![]).collect();
        join_all(asked).await.into_iter().flatten().for_each(|(n, said)| by_key[n].push(said));
        by_key
    }

    /// Checks that a majority answered. The error names the nodes that did not, and why. One server of a cluster is
    /// enough.
    ///
    /// # Errors
    ///
    /// Fewer than a majority of nodes answered.
    pub fn need_majority<T>(&self, said: &[ServerAnswer<T>]) -> Result<(), Failure> {
        let answered: BTreeSet<usize> = said.iter().filter(|said| said.said.is_ok()).map(|said| said.number).collect();
        self.need(&answered, said)
    }

    /// Checks that a majority answered, with all masters of its clusters.
    ///
    /// # Errors
    /// Those of [`Nodes::need_majority`].
    pub fn need_whole_majority<T>(&self, said: &[ServerAnswer<T>]) -> Result<(), Failure> {
        let silent = |number: usize| said.iter().any(|said| said.number == number && said.said.is_err());
        let whole = self.list.iter().map(|node| node.number).filter(|number| !silent(*number)).collect();
        self.need(&whole, said)
    }

    fn need<T>(&self, answered: &BTreeSet<usize>, said: &[ServerAnswer<T>]) -> Result<(), Failure> {
        if answered.len() >= self.majority() {
            return Ok(());
        }
        let summary =
            format!("{} of {} nodes can be asked, and {} are needed", answered.len(), self.len(), self.majority());
        let failures =
            said.iter().filter_map(|said| Some((said.number, &*said.server, said.said.as_ref().err()?.clone())));
        Err(self.failure(&summary, failures))
    }

    /// Returns the failure of a command whose client did not get the lock.
    pub fn failed(&self, error: Error) -> Failure {
        let nodes = self.of_client();
        let failures = error.nodes().iter().enumerate();
        let failures = failures.map(|(n, error)| (n, error.node.as_str(), error.why.clone().of_node()));
        match error.kind() {
            _ if error.nodes().is_empty() => Failure::from(error),
            ErrorKind::NoQuorum | ErrorKind::BadArgument => {
                let failure = nodes.failure(error.summary(), failures);
                Failure { code: if error.is_lasting() { USAGE } else { failure.code }, ..failure }
            }
            _ => {
                let whys = line(failures.map(|(_, node, failure)| (node, with_remedy(&failure))), nodes.len());
                let code = Failure::from(error.clone()).code;
                Failure::new(code, format!("{}: {whys}", error.summary()))
            }
        }
    }

    /// Returns the failure for the errors of these nodes, each with its number. If nodes with lasting errors leave no
    /// majority, the exit code is [`USAGE`], since a retry does not help.
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

impl Node {
    fn new(number: usize, id: Option<NodeId>, place: Place) -> Self {
        Self { number, id, name: place.name(), place: Arc::new(place) }
    }

    /// Returns an answer of this node, with the node's name.
    fn answer<T>(&self, said: Result<T, Why>) -> ServerAnswer<T> {
        ServerAnswer { number: self.number, server: self.name.clone(), said }
    }

    /// Returns the Sentinels that name the node's master; empty for another kind of node.
    pub fn sentinels(&self) -> Vec<Server> {
        if matches!(*self.place, Place::Sentinel(_)) { self.place.named(self.number) } else { vec![] }
    }
}

impl<T> ServerAnswer<T> {
    /// Returns an answer of this server, with the server's name.
    pub fn of(server: &Server, said: Result<T, Why>) -> Self {
        Self { number: server.number, server: server.name().to_owned(), said }
    }

    /// Returns the answer with a reference to its value.
    pub fn as_ref(&self) -> ServerAnswer<&T> {
        ServerAnswer {
            number: self.number,
            server: self.server.clone(),
            said: self.said.as_ref().map_err(Clone::clone),
        }
    }

    /// Applies `change` to the answer.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> ServerAnswer<U> {
        ServerAnswer { number: self.number, server: self.server, said: self.said.map(change) }
    }

    /// Continues with the value of an answer, unless the answer is a failure.
    pub async fn and_then<U>(self, ask: impl AsyncFnOnce(T) -> Result<U, Why>) -> ServerAnswer<U> {
        let said = match self.said {
            Ok(value) => ask(value).await,
            Err(why) => Err(why),
        };
        ServerAnswer { number: self.number, server: self.server, said }
    }
}

/// Returns the answers of the servers that answered.
pub fn answers<T>(said: &[ServerAnswer<T>]) -> impl Iterator<Item = &T> {
    said.iter().filter_map(|said| said.said.as_ref().ok())
}

/// Returns the failures of the servers that did not answer, each with the server's name and, if known, the advice.
pub fn failures<T>(said: &[ServerAnswer<T>]) -> impl Iterator<Item = (&str, String)> {
    said.iter().filter_map(|said| Some((&*said.server, with_remedy(said.said.as_ref().err()?))))
}
