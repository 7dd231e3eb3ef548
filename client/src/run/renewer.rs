//! The renewer of a held lock: the task that extends it, on the client's thread. It performs the decisions of a
//! [`Keeper`], and informs the guards.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::mpsc;
use futures_util::StreamExt;
pub use palisade_quorum::Auto;
use palisade_quorum::{
    Answer, Ask, BootTime, Keeper, News, Release, Released as Outcome, Wanted, WhyLost, Work, majority,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::instrument::WithSubscriber;
use tracing::{Dispatch, Instrument, Span, debug, debug_span, dispatcher, warn};

use crate::metrics::{self, Holding};
use crate::net::calls::{Calls, Reply};
use crate::net::home::Home;
use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::net::tally::Counted;
use crate::run::attempt::Taken;
use crate::run::checked::Checked;
use crate::run::give_back::{GiveBack, Giving, Heard};
use crate::run::kept::SessionLife;
use crate::run::looking::{Looking, Missing};
use crate::run::proclaiming::{Proclaimed, Proclaiming};
use crate::run::shared::{Done, Shared, answer};
use crate::run::sharing::Sharing;
use crate::values::clock;
use crate::{Error, ErrorKind, Loss, NodeError, Released, Why};

/// The time that the other nodes have to answer after a majority has granted the lock, before the term is proclaimed.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// An order of a guard to its renewer.
pub enum Order {
    /// Extends the lock now, to leases of this length.
    Extend { ttl_ms: u32, done: Done },
    /// Starts or stops extending the lock in the background.
    Keep { auto: Option<Auto> },
    /// Makes the owner a reader; answered once a majority has made the change.
    Share { done: Done },
    /// Proclaims this value on all nodes; answered with the term and the sequence number once a majority has it.
    Proclaim { value: Vec<u8>, done: Proclaimed },
    /// Releases the lock on all nodes. The order counts as work in progress until the release begins; it reports the
    /// outcome if `done` is given.
    Release { done: Option<oneshot::Sender<Released>>, counted: Counted },
}

/// Creates the renewer of an acquired lock, which extends it in the rounds of its session if it has one.
pub fn begin(taken: Taken, checked: Checked, auto: Option<Auto>, session: Option<Arc<SessionLife>>) -> Renewer {
    let began = session.as_ref().map(|session| session.began());
    let session = session.map(|session| (session, taken.lease.key.to_vec()));
    let shared = Arc::new(Shared::new(&taken.held, session));
    let (nodes, lease) = (&taken.nodes, Arc::clone(&taken.lease));
    let mut give_back = GiveBack::new(nodes, &lease, checked);
    let mut held = taken.held;
    if lease.is_named() {
        held.is_spoken_for_elsewhere();
        // The owner chose its name, and may continue with another process. So a lock that is over here may be in use
        // there, and is not released.
        give_back.disarm();
    }
    let mut renewer = Renewer {
        nodes: Arc::clone(nodes),
        lease: Arc::clone(&lease),
        keeper: Keeper::begin(held, auto, began, clock::boot_now(), rand::random()),
        calls: taken.calls,
        checked,
        shared,
        waiting: vec![],
        sharing: None,
        whys: vec![],
        proclaiming: None,
        looking: None,
        give_back,
        holding: Holding::begin(&lease.class, lease.wanted()),
        counted: Some(nodes.held.begin()),
        since: clock::now(),
        was_valid: true,
        span: Span::none(),
        subscriber: dispatcher::get_default(Clone::clone),
    };
    let (key, token, count) = (lease.shown_key(), renewer.shared.token(), renewer.nodes.len());
    debug!(%key, token, nodes = count, "granted");
    // The trace events while the lock is held belong to one span, however long after the call they are.
    renewer.span = debug_span!("held", %key, token, nodes = count);
    renewer
}

impl Drop for Renewer {
    /// Ends the lock whenever the task ends, also if its runtime does: nothing extends the lock any longer, so no guard
    /// may be valid.
    fn drop(&mut self) {
        self.shared.end(Loss::Closed);
        self.holding.end(self.shared.ended.get().unwrap_or(&Loss::Closed));
    }
}

impl fmt::Debug for Renewer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Renewer").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// The renewer: the task that extends a held lock and carries out the orders of its guards.
pub struct Renewer {
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    keeper: Keeper,
    calls: Calls,
    checked: Checked,
    shared: Arc<Shared>,
    /// The callers that wait for the outcome of a round of extension.
    waiting: Vec<Done>,
    /// The nodes' last errors, by place. It is empty until there is one, as most locks meet none.
    whys: Vec<Option<Why>>,
    // The next three are boxed, as they are large, and most locks have none.
    /// The callers that make the owner a reader.
    sharing: Option<Box<Sharing>>,
    /// The proclamations, if the lock is a leader's.
    proclaiming: Option<Box<Proclaiming>>,
    /// The checks by which a loss is noticed at once, if the options want them.
    looking: Option<Box<Looking>>,
    give_back: GiveBack,
    holding: Holding,
    counted: Option<Counted>,
    /// The time at which the lock was granted.
    since: Instant,
    /// True if the lock was still valid when it was released.
    was_valid: bool,
    /// The span of the lock's trace events.
    span: Span,
    subscriber: Dispatch,
}

impl Renewer {
    /// Returns the state shared with guards, and the lease.
    pub fn shared(&self) -> (Arc<Shared>, Arc<Lease>) {
        (Arc::clone(&self.shared), Arc::clone(&self.lease))
    }

    /// Returns the client's thread.
    pub fn home(&self) -> Arc<Home> {
        Arc::clone(&self.nodes.home)
    }

    /// Returns whether the lock needs work before `soon`.
    pub fn is_busy_before(&self, soon: BootTime) -> bool {
        self.shared.session.is_some() || self.keeper.wake_at().is_none_or(|at| at < soon)
    }

    /// Returns the span of the lock's trace events.
    pub fn span(&self) -> Span {
        self.span.clone()
    }

    /// Begins to carry out orders, on the client's thread. Ends when the lock is released or lost, or when all senders
    /// of orders are dropped.
    pub fn start(mut self: Box<Self>, inbox: mpsc::UnboundedReceiver<Order>) {
        self.looking = Looking::begin(&self.nodes, &self.lease, self.checked, self.since);
        let (home, span, subscriber) = (Arc::clone(&self.nodes.home), self.span.clone(), self.subscriber.clone());
        home.spawn(async move { self.run(inbox).await }.instrument(span).with_subscriber(subscriber));
    }

    async fn run(&mut self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        let mut session = self.shared.session.as_ref().map(|(session, _)| Arc::clone(session));
        while let Some(wake) = self.keeper.wake_at() {
            let work = tokio::select! {
                biased;
                // Answers come first: a round would ask a node whose grant is not known here to grant the lock again.
                Some(reply) = self.calls.next(), if !self.calls.is_empty() => self.on_reply(reply),
                order = inbox.next() => match order {
                    Some(Order::Release { done, counted }) => return Box::pin(self.release(done, counted)).await,
                    Some(Order::Extend { ttl_ms, done }) => self.extend(ttl_ms, done),
                    Some(Order::Keep { auto }) => self.keep(auto),
                    Some(Order::Share { done }) => self.share(done),
                    Some(Order::Proclaim { value, done }) => {
                        Box::pin(self.await_stragglers()).await;
                        self.proclaim(value, done)
                    }
                    // All guards are gone without a release.
                    None => return self.shared.end(Loss::Released),
                },
                () = Proclaiming::handle_next(&mut self.proclaiming), if self.proclaiming.is_some() => self.on_time(),
                missing = Looking::next_missing(&mut self.looking, self.keeper.held()), if self.looking.is_some() => {
                    self.on_missing(&missing)
                }
                () = self.nodes.superseded() => self.move_on(),
                () = SessionLife::is_done(&session), if session.is_some() => {
                    session = None;
                    self.keeper.end_session();
                    self.on_time()
                }
                () = sleep(clock::until(wake)) => self.on_time(),
            };
            self.perform(work);
        }
    }

    /// Waits a short time after the grant for the other nodes' answers to the acquisition. They can still raise the
    /// token on which the nodes agree, and that becomes the leader's term.
    async fn await_stragglers(&mut self) {
        let by = self.since + STRAGGLERS;
        while let Ok(Some(reply)) = timeout_at(by, self.calls.next()).await {
            let work = self.on_reply(reply);
            self.perform(work);
        }
    }

    // The lock's events: orders and answers.

    fn extend(&mut self, ttl_ms: u32, done: Done) -> Work {
        self.waiting.push(done);
        let (now, random) = moment();
        self.keeper.extend(ttl_ms, now, random)
    }

    fn keep(&mut self, auto: Option<Auto>) -> Work {
        let (now, random) = moment();
        self.keeper.keep(auto, now, random)
    }

    fn share(&mut self, done: Done) -> Work {
        // From now on, nodes that lost the lock are asked to grant it in shared mode.
        self.lease.set_wanted(Wanted::Shared);
        self.sharing.get_or_insert_default().wait(done);
        let (now, random) = moment();
        self.keeper.share(now, random)
    }

    fn proclaim(&mut self, value: Vec<u8>, done: Proclaimed) -> Work {
        let begin = || Box::new(Proclaiming::begin(&self.nodes, &self.lease, self.keeper.held(), self.checked.given));
        self.proclaiming.get_or_insert_with(begin).proclaim(value, done);
        self.on_time()
    }

    fn on_reply(&mut self, reply: Reply) -> Work {
        let Reply { round, call, id, answer, why, .. } = reply;
        if answer == Answer::Failed && self.nodes.is_superseded() {
            // The next version cut the call off, so that says nothing about the node.
            return self.move_on();
        }
        // If a node has not answered in this round yet, its answer in the previous round still counts.
        if let (Some(sharing), Ask::Share) = (&mut self.sharing, call.ask) {
            sharing.on_answer(&self.nodes, call.node, why.as_ref());
        }
        self.note_why(call.node, why);
        if let (Ask::Acquire { .. }, Answer::Token(_)) = (call.ask, answer) {
            self.repeat(call.node);
        }
        if let (Some(proclaiming), Ask::Acquire { .. }, Answer::Token(_)) = (&mut self.proclaiming, call.ask, answer) {
            proclaiming.on_grant(call.node);
        }
        if let (Some(looking), Answer::Token(_)) = (&mut self.looking, answer) {
            looking.was_changed(call.node);
        }
        let (now, random) = moment();
        self.keeper.on_answer(round, call, id, answer, now, random)
    }

    fn on_missing(&mut self, missing: &Missing) -> Work {
        let (key, token) = (self.lease.shown_key(), missing.token.get());
        debug!(%key, token, node = self.nodes.list[missing.node].name(), "a node does not have it any more");
        let (now, random) = moment();
        self.keeper.on_missing(missing.node, missing.id, missing.token, now, random)
    }

    fn on_time(&mut self) -> Work {
        let (now, random) = moment();
        self.keeper.on_wake(now, random)
    }

    /// Moves to the version of the set that superseded the one in which the lock was held. Returns what the keeper
    /// wants done there.
    fn move_on(&mut self) -> Work {
        self.nodes = self.nodes.latest();
        self.lease.moves();
        self.whys = vec![];
        // Outstanding answers belong to the previous version.
        self.calls = Calls::new(&self.nodes, &self.lease);
        let (key, token, nodes) = (self.lease.shown_key(), self.keeper.held().token().get(), self.nodes.len());
        debug!(%key, token, nodes, "goes over to another set of nodes");
        if let Some(sharing) = &mut self.sharing {
            sharing.moves();
        }
        if let Some(proclaiming) = &mut self.proclaiming {
            proclaiming.move_to(&self.nodes);
        }
        if self.looking.is_some() {
            self.looking = Looking::begin(&self.nodes, &self.lease, self.checked, clock::now());
        }
        let (now, random) = moment();
        self.keeper.move_to(&self.nodes.ids(), now, random)
    }

    // Actions that events cause.

    /// Repeats to a node that granted the lock anew what its owner has told the nodes. (Other nodes know it, so a failure
    /// matters only if a majority loses the lock.)
    fn repeat(&self, node: usize) {
        let (commands, nodes, given) = (self.lease.repeated(), Arc::clone(&self.nodes), self.checked.given);
        if !commands.is_empty() {
            self.nodes.home.spawn(async move {
                for command in commands {
                    let _ = nodes.list[node].ask(&command, given, None).await;
                }
            });
        }
    }

    fn perform(&mut self, Work { calls, begins, news }: Work) {
        let (round, given) = (self.keeper.held().round(), self.checked.extending);
        // Fewer grants than a majority decide nothing, and later ones matter only to a downgrade.
        match (begins, calls.is_empty()) {
            (true, _) => self.calls.wait_for(majority(self.nodes.len())),
            (false, false) => self.calls.wait_for(1),
            (false, true) if self.sharing.is_none() && news.contains(&News::Extended) => {
                self.calls.wait_for(usize::MAX)
            }
            (false, true) => {}
        }
        calls.into_iter().for_each(|call| self.calls.make(round, call, given));
        if begins {
            if let Some(proclaiming) = &mut self.proclaiming {
                proclaiming.again();
            }
            if let Some(looking) = &mut self.looking {
                looking.check_new_connections();
            }
        }
        self.shared.show(self.keeper.held());
        news.into_iter().for_each(|news| self.report(news));
    }

    /// Passes the keeper's news on to waiting callers, guards and metrics.
    fn report(&mut self, news: News) {
        let (key, token, nodes) = (self.lease.shown_key(), self.keeper.held().token().get(), self.nodes.len());
        match news {
            News::Extended => {
                metrics::extended(&self.lease.class, self.lease.wanted(), true);
                debug!(%key, token, nodes, "extended");
                self.shared.set_not_extended(&[]);
                answer(&mut self.waiting, &Ok(()));
            }
            News::NotExtended => {
                metrics::extended(&self.lease.class, self.lease.wanted(), false);
                let text = "too few nodes extended it: it stays valid as long as it was";
                let error = Error::new(ErrorKind::NoQuorum, text).with_nodes(self.nodes.errors(&self.whys));
                warn!(%key, token, nodes, %error, "not extended, tried again while it is valid");
                self.shared.set_not_extended(error.nodes());
                answer(&mut self.waiting, &Err(error));
            }
            News::Shared => self.end_sharing(&Ok(())),
            News::Lost { why, gives_back } => {
                let loss = self.loss(why);
                warn!(%key, token, nodes, reason = %loss, "the lock is lost");
                if gives_back {
                    self.calls = Calls::new(&self.nodes, &self.lease);
                    drop(Heard::of(self.nodes.give_back(&self.lease, self.checked)));
                }
                self.shared.end(loss);
                let lost = Err(self.shared.lost());
                answer(&mut self.waiting, &lost);
                self.end_sharing(&lost);
            }
        }
    }

    fn end_sharing(&mut self, outcome: &Result<(), Error>) {
        if let Some(mut sharing) = self.sharing.take() {
            sharing.end(outcome);
        }
    }

    fn loss(&self, why: WhyLost) -> Loss {
        match why {
            WhyLost::TakenAway => Loss::TakenAway(self.errors()),
            WhyLost::TooFewNodes => Loss::TooFewNodes(self.errors()),
            WhyLost::NotExtended => Loss::NotExtended,
            WhyLost::MaxHold => Loss::MaxHold,
            WhyLost::Asleep => Loss::Asleep,
        }
    }

    fn note_why(&mut self, node: usize, why: Option<Why>) {
        if why.is_some() || !self.whys.is_empty() {
            self.whys.resize(self.nodes.len(), None);
            self.whys[node] = why;
        }
    }

    /// Returns the nodes' last errors. A node that lost the lock is reported as such, whatever it answered later.
    fn errors(&self) -> Vec<NodeError> {
        let why = |node| match self.keeper.held().was_gone_from(node) {
            true => Some(Why::NotHeld),
            false => self.whys.get(node).cloned().flatten(),
        };
        let whys: Vec<_> = (0..self.nodes.len()).map(why).collect();
        self.nodes.errors(&whys)
    }

    /// Releases the lock on every node, and reports the outcome as soon as a majority has answered.
    async fn release(&mut self, done: Option<oneshot::Sender<Released>>, counted: Counted) {
        let Some(done) = done else { return self.release_in_background(counted) };
        let mut giving = Heard::of(self.give_back(counted));
        let _ = done.send(self.released(&mut giving).await);
    }

    /// Releases the lock on every node, in the background.
    pub fn release_in_background(&mut self, counted: Counted) {
        let (key, token, nodes) = (self.lease.shown_key(), self.keeper.held().token().get(), self.nodes.len());
        debug!(%key, token, nodes, "its last guard was dropped: it is released in the background");
        drop(Heard::of(self.give_back(counted)));
    }

    /// Begins to release the lock on every node.
    pub fn give_back(&mut self, counted: Counted) -> Giving {
        // Calls that are still outstanding could acquire the lock again.
        self.calls = Calls::new(&self.nodes, &self.lease);
        self.proclaiming = None;
        self.give_back.disarm();
        self.was_valid = clock::boot_now() < self.keeper.held().valid_until();
        self.shared.end(Loss::Released);
        self.holding.end(&Loss::Released);
        let giving = self.nodes.give_back(&self.lease, self.checked);
        self.nodes = Arc::clone(&giving.nodes);
        drop(counted);
        giving
    }

    /// Returns the outcome of a release as soon as a majority has answered.
    pub async fn released(&mut self, giving: &mut Heard) -> Released {
        self.whys = vec![];
        let mut release = Release::begin(self.nodes.len());
        while release.outcome() == Outcome::Unknown
            && let Some(told) = giving.next().await
        {
            self.note_why(told.place, told.reply.as_ref().err().cloned());
            told.pass_to(&mut release);
        }
        let outcome = release.outcome();
        let (key, token, nodes) = (self.lease.shown_key(), self.keeper.held().token().get(), self.nodes.len());
        debug!(%key, token, nodes, ?outcome, "released");
        self.counted = None;
        match outcome {
            Outcome::Released if self.was_valid => Released::Released,
            Outcome::Released | Outcome::NotHeld => Released::AlreadyExpired,
            Outcome::Unknown => Released::PartlyUnreachable(self.nodes.errors(&self.whys)),
        }
    }
}

/// Returns the inputs for a step of a quorum machine: the time, and a random number.
fn moment() -> (BootTime, u64) {
    (clock::boot_now(), rand::random())
}
