//! One node: its connections, its identity, and its answers.
//!
//! One connection carries all requests. A separate task opens, watches and reopens it, so that no caller waits for a
//! node that is down. Requests that wait in the node's queues are answered over another connection, the listener. If
//! the node does not support that, each such request has its own connection, because it would block everything behind
//! it.
//!
//! The time that the node has to answer begins when a request is sent. A node that did not answer in time is *silent*
//! until it answers again: it is sent no requests meanwhile, so it delays no other caller.

mod asking;
mod connecting;
mod hearing;
mod inbox;
mod link;
mod listener;
mod owing;
mod redialing;
mod staying;
mod talking;
mod waiting;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palisade_quorum::{Member, Members, NodeId};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

pub use self::inbox::{Answer, By, First, Inbox};
use self::link::{Link, Waiter};
use self::listener::Hearing;
use self::redialing::Redialing;
use crate::metrics::NodeMeter;
use crate::net::access::Way;
use crate::net::admission::Admission;
use crate::net::debt::Debt;
use crate::net::news::News;
use crate::net::pace::Pace;
use crate::net::sentinels::Sentinels;
use crate::net::tally::Tally;
use crate::net::tracking::Tracked;
use crate::values::failure::Why;

/// The way to find a node's server.
#[derive(Debug)]
pub enum Whereabouts {
    /// At a fixed address.
    At(Arc<Way>),
    /// The master that these Sentinels name.
    Named(Box<Sentinels>),
    /// No address: the set has this member, which cannot be asked for the given reason.
    Nowhere(String, String),
}

impl Whereabouts {
    fn name(&self) -> &str {
        match self {
            Self::At(way) => way.name(),
            Self::Named(sentinels) => sentinels.name(),
            Self::Nowhere(address, _) => address,
        }
    }
}

/// The state that all nodes of a client share.
#[derive(Clone, Debug)]
pub struct Common {
    /// Notified when a silent node answers again.
    pub answers_again: Arc<Notify>,
    /// The held locks whose changes the nodes report.
    pub tracked: Arc<Tracked>,
    /// The version of the nodes' set, and later ones that the nodes report.
    pub news: Arc<News>,
    /// Admits the client's attempts, a limited number at a time.
    pub admission: Arc<Admission>,
}

impl Common {
    /// Creates the state for `nodes` nodes of the set `members`; the client moves to a later version if it `follow`s.
    pub fn new(nodes: usize, members: Members, follow: bool) -> Self {
        let (answers_again, tracked) = (Arc::default(), Arc::new(Tracked::new(nodes)));
        Self { answers_again, tracked, news: Arc::new(News::new(members, follow)), admission: Arc::default() }
    }
}

/// A node of the list, or a master of a cluster in it.
#[derive(Debug)]
pub struct Node {
    /// The node's index in the list.
    place: usize,
    server: Whereabouts,
    /// The server's id, if the set names it.
    id: Option<NodeId>,
    /// The id of the server that answered last.
    seen: Mutex<Option<NodeId>>,
    /// The number of the node's first connection, from which later ones count up.
    first: u64,
    /// True if the node is a master of a cluster.
    is_in_cluster: bool,
    state: watch::Sender<State>,
    redialing: Redialing,
    /// The number of the last connection that was found broken.
    broken: Arc<watch::Sender<u64>>,
    answers: Mutex<Answers>,
    /// The time at which a request was sent that the node did not answer in time; `None` while it answers.
    silent_since: watch::Sender<Option<Instant>>,
    waiters: Mutex<Vec<Waiter>>,
    hearing: Hearing,
    /// Number of requests that wait at the node on connections of their own.
    blocked: Tally,
    owed: Mutex<VecDeque<Arc<Debt>>>,
    /// Number of pending releases.
    owes: watch::Sender<usize>,
    common: Common,
    meter: NodeMeter,
}

/// The adaptive timeout, and the time of the last answer.
#[derive(Debug, Default)]
struct Answers {
    pace: Pace,
    last: Option<Instant>,
}

#[derive(Clone, Debug)]
enum State {
    /// The node has not been connected yet.
    Connecting,
    Up(Link),
    Down(Why),
}

/// The state of a node, as far as it is known without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// No connection was tried yet.
    Unknown,
    /// The node is connected, and answers.
    Up,
    /// The node is not connected, or does not answer, for this reason.
    Away(Why),
}

impl Node {
    /// Creates a node with this index in the list. Nothing is connected yet.
    pub fn new(place: usize, server: Whereabouts, common: &Common) -> Self {
        let meter = NodeMeter::new(server.name());
        Self {
            place,
            server,
            id: None,
            seen: Mutex::default(),
            first: 1,
            is_in_cluster: false,
            state: watch::Sender::new(State::Connecting),
            redialing: Redialing::default(),
            broken: Arc::new(watch::Sender::new(0)),
            answers: Mutex::default(),
            silent_since: watch::Sender::new(None),
            waiters: Mutex::default(),
            hearing: Hearing::default(),
            blocked: Tally::default(),
            owed: Mutex::default(),
            owes: watch::Sender::new(0),
            common: common.clone(),
            meter,
        }
    }

    /// Makes this node a master of a cluster, with connections numbered from `first`. All masters of a cluster are one
    /// node of the list.
    pub fn of_cluster(self, first: u64) -> Self {
        Self { is_in_cluster: true, first, ..self }
    }

    /// Makes this node a member of the set: no other server may answer for it.
    pub fn of_member(self, member: &Member) -> Self {
        Self { id: member.id.map(NodeId), ..self }
    }

    /// Retires the node for this reason: it is sent no more requests, and its connections end.
    pub fn retire(&self, why: &str) {
        self.redialing.end();
        self.state.send_replace(State::Down(Why::Unreachable(why.to_owned())));
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Reports to the metrics that this node has left the set.
    pub fn leave(&self) {
        self.meter.up(false);
    }

    /// Waits until the first attempt to connect, or the first one after the connection broke, has succeeded or failed.
    pub async fn is_settled(&self) {
        // The sender lives in `self`, so this cannot fail.
        let is_open = |state: &State| matches!(state, State::Connecting | State::Down(Why::Broken(_)));
        let _ = self.state.subscribe().wait_for(|state| !is_open(state)).await;
    }

    /// Returns whether this is the same server as `before`, a node of another version of the set.
    pub fn is_same_as(&self, before: &Self) -> bool {
        let seen = before.id.or_else(|| *before.seen.lock().unwrap_or_else(PoisonError::into_inner));
        match seen {
            Some(id) => self.id == Some(id),
            None => self.id.is_some() && self.name() == before.name(),
        }
    }

    /// Returns the node's address, without passwords.
    pub fn name(&self) -> &str {
        self.server.name()
    }

    /// Returns the way to the node's server, if its address is fixed.
    pub fn way(&self) -> Option<&Arc<Way>> {
        match &self.server {
            Whereabouts::At(way) => Some(way),
            Whereabouts::Named(_) | Whereabouts::Nowhere(..) => None,
        }
    }

    /// Returns the id of the node's server. If the node has never been connected, waits for that, until `by`.
    pub async fn connected(&self, by: Instant) -> Result<NodeId, Why> {
        self.link(by).await.map(|link| link.id)
    }

    /// Returns the id of the node's server, once it is connected; reconnects a node that is down.
    pub async fn reconnected(&self, by: Instant) -> Result<NodeId, Why> {
        self.redial(by).await;
        self.connected(by).await
    }

    /// Returns the number of the connection over which the node reports changes of keys that were read; `None` if
    /// there is none.
    pub fn tracks_over(&self) -> Option<u64> {
        match &*self.state.borrow() {
            State::Up(link) if link.tracks => Some(link.number),
            _ => None,
        }
    }

    /// Reports to the metrics whether the node can be asked now.
    fn meter_state(&self) {
        let is_up = matches!(&*self.state.borrow(), State::Up(_)) && self.silent_since.borrow().is_none();
        self.meter.up(is_up);
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the node has answered any request since then.
    pub fn answered_since(&self, since: Instant) -> bool {
        self.answers().last.is_some_and(|last| last >= since)
    }

    /// Returns the node's reachability.
    pub fn reach(&self) -> Reach {
        match &*self.state.borrow() {
            State::Connecting => Reach::Unknown,
            State::Down(failure) => Reach::Away(failure.clone()),
            State::Up(_) if self.silent_since.borrow().is_some() => Reach::Away(Why::late()),
            State::Up(_) => Reach::Up,
        }
    }

    /// Returns whether the node is connected, and answers.
    pub fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_)) && self.silent_since.borrow().is_none()
    }

    /// Returns whether a LOCK.WAIT to the node may carry a note and the number of requests behind it, as far as that is
    /// known.
    pub fn may_send_behind(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(link) if link.knows_behind)
    }

    /// Returns whether to send a request: it can be answered, or fails at once with a lasting error.
    pub fn is_worth_asking(&self) -> bool {
        let can = match &*self.state.borrow() {
            State::Connecting | State::Up(_) => true,
            State::Down(failure) => failure.is_lasting(),
        };
        can && self.silent_since.borrow().is_none()
    }

    /// Returns the connection. If there has never been one, waits for it until `deadline`.
    async fn link(&self, deadline: Instant) -> Result<Link, Why> {
        let known = |state: &State| match state {
            State::Connecting => None,
            State::Up(link) => Some(Ok(link.clone())),
            State::Down(failure) => Some(Err(failure.clone())),
        };
        if let Some(link) = known(&self.state.borrow()) {
            return link;
        }
        let mut states = self.state.subscribe();
        match timeout_at(deadline, states.wait_for(|state| known(state).is_some())).await {
            Ok(Ok(state)) => known(&state).unwrap_or(Err(Why::Silent)),
            _ => Err(Why::Unreachable("no connection yet".to_owned())),
        }
    }

    /// Waits for a new attempt to connect, if the node is down for a temporary reason, but not longer than until `by`.
    pub(super) async fn redial(&self, by: Instant) {
        let mut states = self.state.subscribe();
        let is_down = matches!(&*states.borrow_and_update(), State::Down(failure) if !failure.is_lasting());
        if is_down && self.redialing.request() {
            // The sender lives in `self`, so this cannot fail.
            let _ = timeout_at(by, states.changed()).await;
        }
    }
}
