//! All nodes of one version of the set that a client works with, and requests to them.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::{Member, Members, NodeId, first_as, majority, servers};
use redis::{Cmd, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::net::access::Access;
use crate::net::address::Address;
use crate::net::admission::Admission;
use crate::net::bounds::CONNECT_TIMEOUT;
use crate::net::endpoint::Endpoint;
use crate::net::home::{Home, is_home};
use crate::net::news::News;
use crate::net::node::{Common, Node};
use crate::net::pace::Given;
use crate::net::tally::Tally;
use crate::net::tracking::Tracked;
use crate::net::ways::Ways;
use crate::net::wire;
use crate::values::clock::HybridClock;
use crate::{Error, ErrorKind, Holder, NodeError, Why};

/// Maximum time that a closing client waits for releases.
const SETTLING: Duration = Duration::from_secs(2);

/// The answer of a node, with its index in the list.
pub type Answered = (usize, Result<Value, Why>);

/// The state of a lock, as some nodes report it.
pub struct LockReading {
    /// True if a majority of the nodes answered.
    pub is_answered: bool,
    /// A holder, as the first node that shows one reports it.
    pub holder: Option<Holder>,
    /// For each node, the reason why it did not answer.
    pub whys: Vec<Option<Why>>,
}

/// A version of the set, and its successor.
#[derive(Debug)]
pub struct Set {
    pub news: Arc<News>,
    pub ways: Arc<Ways>,
    pub(super) next: watch::Sender<Option<Arc<Nodes>>>,
}

impl Set {
    /// Creates a version of the set that no later version has replaced yet.
    pub fn new(news: Arc<News>, ways: Arc<Ways>) -> Self {
        Self { news, ways, next: watch::Sender::new(None) }
    }
}

/// The nodes of a client, and the state that all of its locks share.
#[derive(Debug)]
pub struct Nodes {
    pub list: Vec<Endpoint>,
    /// The client's thread.
    pub home: Arc<Home>,
    pub clock: Arc<HybridClock>,
    /// Admits the client's attempts, a limited number at a time.
    pub admission: Arc<Admission>,
    /// Counts the attempts and releases in progress.
    pub under_way: Tally,
    /// Counts the held locks.
    pub held: Tally,
    /// Held locks whose changes nodes report.
    pub tracked: Arc<Tracked>,
    closed: Arc<watch::Sender<bool>>,
    /// Notified when a silent node answers again.
    answers_again: Arc<Notify>,
    /// The version of the set, and its successor.
    pub set: Set,
}

impl Nodes {
    /// Creates the nodes at `addresses`; nothing is connected yet.
    pub fn new(addresses: &[Address], access: Access) -> Result<Arc<Self>, Error> {
        let access = Arc::new(access);
        let common = Common::new(addresses.len(), Members::default(), addresses.iter().all(Address::is_server));
        let numbered = addresses.iter().enumerate();
        let endpoint = |(n, address): (usize, &Address)| Endpoint::new(n + 1, address, &access, &common);
        let list = numbered.map(endpoint).collect::<Result<Vec<_>, _>>()?;
        let ways = Ways::of(&list, access);
        let Common { answers_again, tracked, news, admission } = common;
        Ok(Arc::new(Self {
            list,
            home: Arc::default(),
            answers_again,
            tracked,
            clock: Arc::default(),
            admission,
            under_way: Tally::default(),
            held: Tally::default(),
            closed: Arc::new(watch::Sender::new(false)),
            set: Set::new(news, Arc::new(ways)),
        }))
    }

    /// Creates another version of the set, with the state that all locks share; nothing is connected yet.
    pub(crate) fn with(&self, members: Members) -> Arc<Self> {
        let common = Common::new(members.list.len(), members.clone(), true);
        let endpoint = |(place, member): (usize, &Member)| {
            let server = self.set.ways.to(member);
            Endpoint::One(Arc::new(Node::new(place, server, &common).of_member(member)))
        };
        let list = members.list.iter().enumerate().map(endpoint).collect();
        let Common { answers_again, tracked, news, .. } = common;
        Arc::new(Self {
            list,
            home: Arc::clone(&self.home),
            answers_again,
            tracked,
            clock: Arc::clone(&self.clock),
            admission: Arc::clone(&self.admission),
            under_way: self.under_way.clone(),
            held: self.held.clone(),
            closed: Arc::clone(&self.closed),
            set: Set::new(news, Arc::clone(&self.set.ways)),
        })
    }

    /// Waits until a majority can be asked about `key`, or until another version of the set supersedes this one.
    pub async fn wait_for_majority(&self, key: &[u8]) {
        loop {
            let news = self.answers_again.notified();
            if self.list.iter().filter(|node| node.is_worth_asking(key)).count() >= majority(self.len()) {
                return;
            }
            tokio::select! {
                biased;
                () = self.superseded() => return,
                () = news => {}
            }
        }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Begins to connect to each node, and to make its pending releases.
    pub fn stay_connected(self: &Arc<Self>) {
        self.list.iter().for_each(|endpoint| endpoint.stay_connected(&self.set.news));
        tokio::spawn(Arc::clone(self).give_way());
    }

    /// Refuses new acquisitions from now on.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Waits until new acquisitions are refused.
    pub async fn closed(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Waits until new acquisitions are refused. On other threads than the client's, this is noticed only when
    /// something else wakes the future.
    pub async fn closed_at_home(&self) {
        poll_fn(|_| if is_home() || self.is_closed() { Poll::Ready(()) } else { Poll::Pending }).await;
        self.closed().await;
    }

    /// Returns whether new acquisitions are refused.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until all releases that can be made now are made, or until [`SETTLING`] has passed.
    pub async fn settled(&self) {
        self.home.hurry();
        let all = async {
            self.under_way.none().await;
            // A master of a cluster that takes over meanwhile owes what the former one owed.
            let mut asked: Vec<Arc<Node>> = vec![];
            let is_new = |asked: &[Arc<Node>], node: &Arc<Node>| !asked.iter().any(|known| Arc::ptr_eq(known, node));
            while let Some(node) = self.masters().into_iter().find(|node| is_new(&asked, node)) {
                node.is_paid().await;
                asked.push(node);
            }
        };
        let _ = timeout(SETTLING, all).await;
    }

    /// Returns all servers that serve locks; of a cluster, its masters.
    pub(crate) fn masters(&self) -> Vec<Arc<Node>> {
        self.list.iter().flat_map(Endpoint::masters).collect()
    }

    /// Returns the number of locks that others cannot acquire yet because releases are pending, and the nodes that
    /// still have to answer these.
    pub fn unpaid(&self) -> (usize, Vec<NodeError>) {
        let mut leases = HashSet::new();
        let mut nodes = vec![];
        for node in self.masters() {
            let owed = node.debts();
            let unpaid: Vec<_> = owed.iter().filter(|debt| !debt.is_paid(self.len())).collect();
            leases.extend(unpaid.iter().map(|debt| Arc::clone(&debt.lease.owner)));
            if !unpaid.is_empty() {
                let why = Why::Owing(unpaid.len());
                nodes.push(NodeError { node: node.name().to_owned(), why });
            }
        }
        (leases.len(), nodes)
    }

    /// Waits until a majority is connected, for up to [`CONNECT_TIMEOUT`].
    pub async fn connected(&self) -> Result<(), Error> {
        let by = Instant::now() + CONNECT_TIMEOUT;
        let connect = |n: usize| async move { (n, self.list[n].connected(by).await) };
        let mut asked: FuturesUnordered<_> = (0..self.len()).map(connect).collect();
        let (mut ids, mut whys, mut lasting) = (vec![None; self.len()], vec![None; self.len()], 0);
        while let Some((n, connected)) = asked.next().await {
            match connected {
                Ok(id) => ids[n] = Some(id),
                Err(failure) => {
                    lasting += usize::from(failure.is_lasting());
                    whys[n] = Some(failure);
                }
            }
            if servers(&ids) >= majority(self.len()) {
                return Ok(());
            }
        }
        for (n, why) in whys.iter_mut().enumerate() {
            if let Some(same) = self.same_server(&ids, n) {
                lasting += 1;
                *why = Some(same);
            }
        }
        let text =
            format!("{} of {} nodes can be asked, and {} are needed", servers(&ids), self.len(), majority(self.len()));
        let is_lasting = lasting > self.len() - majority(self.len());
        Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(self.errors(&whys)).lasting(is_lasting))
    }

    /// Returns the error of the node at the index `place`, if its server already answered as an earlier node of the
    /// list.
    pub fn same_server(&self, ids: &[Option<NodeId>], place: usize) -> Option<Why> {
        Some(self.same_server_as(first_as(ids, place)?))
    }

    /// Returns the error for a node whose server already counts under the index `place`.
    pub fn same_server_as(&self, place: usize) -> Why {
        Why::SameServer(self.list[place].name().to_owned())
    }

    /// Sends `command`, which may arrive twice, to every node, and returns a stream of the answers. It is sent to all
    /// nodes even if the receiver is dropped.
    pub fn send_to_all(self: &Arc<Self>, command: Cmd, given: Given) -> mpsc::UnboundedReceiver<Answered> {
        let (told, answers) = mpsc::unbounded_channel();
        let under_way = self.under_way.begin();
        let nodes = Arc::clone(self);
        tokio::spawn(async move {
            let _under_way = under_way;
            let ask = async |place: usize| (place, nodes.ask_wherever(place, &command, given, None).await.0);
            let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(ask).collect();
            while let Some(answered) = asked.next().await {
                let _ = told.send(answered);
            }
        });
        answers
    }

    /// Asks all nodes about the lock, until a majority has answered or until `by`.
    pub async fn read_lock(&self, key: &[u8], given: Given, by: Instant) -> LockReading {
        let command = &wire::info(key);
        let ask = |place: usize| async move { (place, self.list[place].ask(command, given, None).await) };
        let mut asked: FuturesUnordered<_> = (0..self.len()).map(ask).collect();
        let whys = vec![Some(Why::Unanswered); self.len()];
        let (mut look, mut ids) = (LockReading { is_answered: false, holder: None, whys }, vec![None; self.len()]);
        while !look.is_answered
            && let Ok(Some((place, (id, reply)))) = timeout_at(by, asked.next()).await
        {
            look.whys[place] = reply.as_ref().err().cloned();
            if let Ok(info) = reply {
                ids[place] = id;
                look.holder = look.holder.or_else(|| wire::holder(&info));
            }
            look.is_answered = servers(&ids) >= majority(self.len());
        }
        look
    }

    /// Returns whether a majority of the nodes has answered a request since `since`. Of a cluster, the master of `key`
    /// counts.
    pub fn answered_since(&self, key: &[u8], since: Instant) -> bool {
        self.list.iter().filter(|node| node.answered_since(key, since)).count() >= majority(self.len())
    }

    /// Returns the error that `failed` nodes cannot be asked, for these reasons.
    pub fn cannot_be_asked(&self, failed: usize, whys: &[Option<Why>]) -> Error {
        let count = self.len();
        let text = format!("{failed} of {count} nodes cannot be asked, and {} are needed", majority(count));
        Error::new(ErrorKind::NoQuorum, text).with_nodes(self.errors(whys))
    }

    /// Fails with `text` if the nodes that do not count leave no majority. `whys` has the reason of each of these.
    pub fn need_majority(&self, whys: &[Option<Why>], text: &str) -> Result<(), Error> {
        if whys.iter().flatten().count() > self.len() - majority(self.len()) {
            return Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(self.errors(whys)));
        }
        Ok(())
    }

    /// Returns the error `text` if the nodes that refuse a request for good leave no majority; `None` otherwise.
    /// `refusals` has the reason of each node that refuses it.
    pub fn refuse_for_good(&self, refusals: &[Option<Why>], text: &str) -> Option<Error> {
        self.need_majority(refusals, text).err().map(|error| error.lasting(true))
    }

    /// Returns the nodes that have an error, for people.
    pub fn errors(&self, whys: &[Option<Why>]) -> Vec<NodeError> {
        let named = self.list.iter().zip(whys);
        named.filter_map(|(node, why)| Some(NodeError { node: node.name().to_owned(), why: why.clone()? })).collect()
    }
}
