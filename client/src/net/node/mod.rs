//! One node: its connections, who it is, and what it answers.
//!
//! One connection carries all requests; it is made, watched and made again by a task of its own, so that no caller waits for
//! a node that is down. Requests that wait in the node's queues are answered over another one, the listener, or, where the node
//! has none, each over one of its own: everything behind them would wait too.
//!
//! So many requests are on their way at a time; the others wait for their turn here, and the time that the node is given begins
//! when a request is sent. A node that did not answer in its time is *silent* until it answers again: it is not asked meanwhile,
//! and costs nobody that time once more.

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

/// Where the server of a node is.
#[derive(Debug)]
pub enum Whereabouts {
    /// Always there.
    At(Arc<Way>),
    /// Where these say.
    Named(Box<Sentinels>),
    /// Nowhere: a member of the set with this address, and why it cannot be asked.
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

/// What all nodes of a client have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// One of them began to answer.
    pub answers_again: Arc<Notify>,
    /// Held locks that they tell of.
    pub tracked: Arc<Tracked>,
    /// Which set they are, and what they tell of later ones.
    pub news: Arc<News>,
    /// Which attempts may begin.
    pub admission: Arc<Admission>,
}

impl Common {
    /// Of so many nodes, which are this set; another one is taken up if they `follow`.
    pub fn new(nodes: usize, members: Members, follow: bool) -> Self {
        let (answers_again, tracked) = (Arc::default(), Arc::new(Tracked::new(nodes)));
        Self { answers_again, tracked, news: Arc::new(News::new(members, follow)), admission: Arc::default() }
    }
}

/// A node of the list, or a master of a cluster in it.
#[derive(Debug)]
pub struct Node {
    /// Its place in the list, from 0.
    place: usize,
    server: Whereabouts,
    /// Which server it is, if that is known from the set.
    id: Option<NodeId>,
    /// Which server answered last.
    seen: Mutex<Option<NodeId>>,
    /// What its connections are numbered from.
    first: u64,
    /// It is a master of a cluster.
    is_in_cluster: bool,
    state: watch::Sender<State>,
    redialing: Redialing,
    /// The number of the last connection that was found broken.
    broken: Arc<watch::Sender<u64>>,
    answers: Mutex<Answers>,
    /// When the request was sent that it did not answer in its time; `None`: it answers.
    silent_since: watch::Sender<Option<Instant>>,
    waiters: Mutex<Vec<Waiter>>,
    hearing: Hearing,
    /// Requests that wait on connections of their own.
    blocked: Tally,
    owed: Mutex<VecDeque<Arc<Debt>>>,
    /// How many these are.
    owes: watch::Sender<usize>,
    common: Common,
    meter: NodeMeter,
}

/// What its answers tell of it.
#[derive(Debug, Default)]
struct Answers {
    pace: Pace,
    last: Option<Instant>,
}

#[derive(Clone, Debug)]
enum State {
    /// Never connected yet.
    Connecting,
    Up(Link),
    Down(Why),
}

/// The state of a node, as far as it is known without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nobody has tried yet.
    Unknown,
    /// Connected, and answering.
    Up,
    /// Not connected, or not answering, and why.
    Away(Why),
}

impl Node {
    /// A node at this place in the list, from 0. Nothing is connected yet.
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

    /// The same as a master of a cluster, with its connections numbered from `first`: all masters there are one node of the list.
    pub fn of_cluster(self, first: u64) -> Self {
        Self { is_in_cluster: true, first, ..self }
    }

    /// The same as a member of the set: no other server is it.
    pub fn of_member(self, member: &Member) -> Self {
        Self { id: member.id.map(NodeId), ..self }
    }

    /// Nobody is to ask it any more, and why; its connections end.
    pub fn retire(&self, why: &str) {
        self.redialing.end();
        self.state.send_replace(State::Down(Why::Unreachable(why.to_owned())));
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// It is no node of the set any more: nothing is told to the recorder.
    pub fn leaves(&self) {
        self.meter.up(false);
    }

    /// Returns when it is known whether it can be connected to, if that was not tried yet, or its connection broke just now.
    pub async fn is_settled(&self) {
        // The sender is here, so it cannot fail.
        let is_open = |state: &State| matches!(state, State::Connecting | State::Down(Why::Broken(_)));
        let _ = self.state.subscribe().wait_for(|state| !is_open(state)).await;
    }

    /// Whether it is the same server as `before`, of another version of the set.
    pub fn is_same_as(&self, before: &Self) -> bool {
        let seen = before.id.or_else(|| *before.seen.lock().unwrap_or_else(PoisonError::into_inner));
        match seen {
            Some(id) => self.id == Some(id),
            None => self.id.is_some() && self.name() == before.name(),
        }
    }

    /// Its address, without passwords.
    pub fn name(&self) -> &str {
        self.server.name()
    }

    /// The way to its server, if that is always the same.
    pub fn way(&self) -> Option<&Arc<Way>> {
        match &self.server {
            Whereabouts::At(way) => Some(way),
            Whereabouts::Named(_) | Whereabouts::Nowhere(..) => None,
        }
    }

    /// Which server it is, as soon as it is connected.
    pub async fn connected(&self, by: Instant) -> Result<NodeId, Why> {
        self.link(by).await.map(|link| link.id)
    }

    /// The same; one that is down is connected to anew.
    pub async fn reconnected(&self, by: Instant) -> Result<NodeId, Why> {
        self.redial(by).await;
        self.connected(by).await
    }

    /// The connection over which it tells when a key changes that is looked at; `None`: it does not, or there is none.
    pub fn tracks_over(&self) -> Option<u64> {
        match &*self.state.borrow() {
            State::Up(link) if link.tracks => Some(link.number),
            _ => None,
        }
    }

    /// Tells the recorder whether it can be asked now.
    fn meter_state(&self) {
        let is_up = matches!(&*self.state.borrow(), State::Up(_)) && self.silent_since.borrow().is_none();
        self.meter.up(is_up);
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has answered any request since then.
    pub fn answered_since(&self, since: Instant) -> bool {
        self.answers().last.is_some_and(|last| last >= since)
    }

    /// Tells if it can be asked.
    pub fn reach(&self) -> Reach {
        match &*self.state.borrow() {
            State::Connecting => Reach::Unknown,
            State::Down(failure) => Reach::Away(failure.clone()),
            State::Up(_) if self.silent_since.borrow().is_some() => Reach::Away(Why::late()),
            State::Up(_) => Reach::Up,
        }
    }

    /// Whether it is connected, and answers.
    pub fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_)) && self.silent_since.borrow().is_none()
    }

    /// Whether it can be told for whom a request waits, as far as that is known.
    pub fn knows_behind(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(link) if link.knows_behind)
    }

    /// Whether it makes sense to ask it; also where it can be told at once why it never will.
    pub fn is_worth_asking(&self) -> bool {
        let can = match &*self.state.borrow() {
            State::Connecting | State::Up(_) => true,
            State::Down(failure) => failure.is_lasting(),
        };
        can && self.silent_since.borrow().is_none()
    }

    /// The connection; waits for the very first one, and for no other.
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

    /// Returns when it is known anew whether this node can be connected to, if it is down for a reason that passes; at the latest then.
    pub(super) async fn redial(&self, by: Instant) {
        let mut states = self.state.subscribe();
        let is_down = matches!(&*states.borrow_and_update(), State::Down(failure) if !failure.is_lasting());
        if is_down && self.redialing.request() {
            // The sender is here, so it cannot fail.
            let _ = timeout_at(by, states.changed()).await;
        }
    }
}
