//! The task that stands behind a held lock: it extends it, heals it, and says when it is lost. It lives on the client's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use palisade_core::quorum::{Answer, Ask, Held, Release, Released as Outcome};
use palisade_core::{BootTime, Wanted};
use rand::RngExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::instrument::WithSubscriber;
use tracing::{Instrument, debug, debug_span, warn};

use crate::attempt::Taken;
use crate::calls::{Calls, Reply};
use crate::give_back::{Counted, GiveBack};
use crate::looking::Looking;
use crate::metrics::{self, Holding};
use crate::nodes::Nodes;
use crate::options::Checked;
use crate::proclaiming::{Proclaimed, Proclaiming};
use crate::session::Kept;
use crate::wire::{Lease, NOT_HELD};
use crate::{Error, ErrorKind, Loss, NodeError, Released, clock};

/// Rounds a lease: it is extended so often that all but the last can fail.
const ROUNDS_A_LEASE: u32 = 3;

/// A round that failed is tried again after this part of the ttl, or of what is left of validity if that is less: nodes that
/// hang for a moment are asked again while there is time.
const AGAIN: u32 = 10;
const AGAIN_OF_LEFT: u32 = 4;

/// Rounds begin at multiples of this on the boot clock: those of the locks of a client that fall together go out together, and a client of thousands
/// does not wake up for each. Short enough that others do not wait behind a crowd of them.
const TOGETHER_US: u64 = 10_000;

/// But not more than this part of the pause before.
const TOGETHER_OF_PAUSE: u32 = 8;

/// That a lease has ended is noticed within this time, in microseconds, by a process that can run.
const OVERSLEPT_US: u64 = 100_000;

/// But not sooner than this.
const AGAIN_LEAST: Duration = Duration::from_millis(5);

/// What guards and their renewer share.
#[derive(Debug)]
pub struct Shared {
    token: AtomicU64,
    valid_until_us: AtomicU64,
    /// How many guards there are.
    pub holds: AtomicU32,
    /// It is lost, or was released.
    pub ended: watch::Sender<Option<Loss>>,
    key: Vec<u8>,
    /// If it is one of a session.
    session: Option<Arc<Kept>>,
}

impl Shared {
    pub fn token(&self) -> u64 {
        self.token.load(Ordering::Acquire)
    }

    pub fn valid_until(&self) -> BootTime {
        BootTime::from_us(self.valid_until_us.load(Ordering::Acquire))
    }

    /// That it is lost, and what is known of why.
    pub fn lost(&self) -> Error {
        let nodes = self.ended.borrow().as_ref().map(|loss| loss.nodes().to_vec());
        Error::lost().with_nodes(nodes.unwrap_or_default())
    }

    fn show(&self, held: &Held) {
        self.token.store(held.token().get(), Ordering::Release);
        self.valid_until_us.store(held.valid_until().as_us(), Ordering::Release);
    }

    fn end(&self, loss: Loss) {
        // From here on nobody may rely on it, however long its leases run.
        self.valid_until_us.store(0, Ordering::Release);
        let is_news = self.ended.send_if_modified(|ended| ended.is_none() && ended.replace(loss.clone()).is_none());
        if let Some(session) = self.session.as_ref().filter(|_| is_news) {
            session.is_lost(&self.key, &loss);
        }
    }
}

/// What a guard asks of its renewer.
pub enum Order {
    /// Extend now, to leases of this length.
    Extend { ttl_ms: u32, done: oneshot::Sender<Result<(), Error>> },
    /// It is extended in the background from now on, or not any more.
    Keep { auto: Option<Auto> },
    /// It is a reader's from now on; answered when a majority knows.
    Share { done: oneshot::Sender<Result<(), Error>> },
    /// It is a leader's, who proclaims this; answered with the term and the number when a majority has it.
    Proclaim { value: Vec<u8>, done: Proclaimed },
    /// Give it back everywhere. That is counted until it is begun, and tells what came of it if somebody wants to know.
    Release { done: Option<oneshot::Sender<Released>>, counted: Counted },
}

/// When the lease is extended in the background.
#[derive(Clone, Copy, Debug)]
pub struct Auto {
    /// Not after this.
    pub until: Instant,
    /// To leases of this length.
    pub ttl_ms: u32,
}

/// Begins to keep what was taken, in the rounds of its session if it is of one; ends when it is released or lost, or nobody gives orders any more.
pub fn start(
    taken: Taken,
    checked: Checked,
    auto: Option<Auto>,
    session: Option<Arc<Kept>>,
) -> (Arc<Shared>, mpsc::UnboundedSender<Order>, Arc<Lease>) {
    let shared = Arc::new(Shared {
        token: AtomicU64::new(taken.held.token().get()),
        valid_until_us: AtomicU64::new(taken.held.valid_until().as_us()),
        holds: AtomicU32::new(1),
        ended: watch::Sender::new(None),
        key: taken.lease.key.clone(),
        session,
    });
    let (nodes, lease) = (&taken.nodes, Arc::clone(&taken.lease));
    let (orders, inbox) = mpsc::unbounded_channel();
    let mut give_back = GiveBack::new(nodes, &lease, checked);
    let mut held = taken.held;
    if lease.is_named() {
        held.is_spoken_for_elsewhere();
        // Its owner was told, and may go on with another process: what is over here may not be over there.
        give_back.disarm();
    }
    let mut renewer = Renewer {
        nodes: Arc::clone(nodes),
        lease: Arc::clone(&lease),
        held,
        calls: taken.calls,
        checked,
        auto,
        next: None,
        shared: Arc::clone(&shared),
        waiting: vec![],
        sharing: vec![],
        whys: vec![None; nodes.len()],
        proclaiming: None,
        looking: Looking::begin(nodes, &lease, checked),
        give_back,
        holding: Holding::begin(&lease),
        counted: Some(nodes.held.begin()),
    };
    let (key, token, count) = (lease.shown_key(), shared.token(), nodes.len());
    debug!(%key, token, nodes = count, "granted");
    // What the holder is told of while it holds the lock belongs together, however long after the call.
    let span = debug_span!("held", %key, token, nodes = count);
    tokio::spawn(async move { renewer.run(inbox).await }.instrument(span).with_current_subscriber());
    (shared, orders, lease)
}

impl Drop for Renewer {
    /// However it ends, also with its runtime: nobody extends the lock from here on, and nobody is left relying on it.
    fn drop(&mut self) {
        self.shared.end(Loss::Closed);
        self.holding.end(self.shared.ended.borrow().as_ref().unwrap_or(&Loss::Closed));
    }
}

struct Renewer {
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    held: Held,
    calls: Calls,
    checked: Checked,
    auto: Option<Auto>,
    /// When the next round begins by itself.
    next: Option<Instant>,
    shared: Arc<Shared>,
    /// Those who wait for the round under way.
    waiting: Vec<oneshot::Sender<Result<(), Error>>>,
    /// Who waits until a majority has it as a reader's.
    sharing: Vec<oneshot::Sender<Result<(), Error>>>,
    whys: Vec<Option<String>>,
    /// If it is a leader's.
    proclaiming: Option<Proclaiming>,
    /// If its nodes are to tell at once where it is taken away.
    looking: Option<Looking>,
    give_back: GiveBack,
    holding: Holding,
    counted: Option<Counted>,
}

impl Renewer {
    async fn run(&mut self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        self.plan_round();
        loop {
            let left = clock::until(self.held.valid_until());
            let next = self.next.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                order = inbox.recv() => match order {
                    Some(Order::Extend { ttl_ms, done }) => {
                        self.waiting.push(done);
                        self.begin_round(ttl_ms);
                    }
                    Some(Order::Keep { auto }) => {
                        self.auto = auto;
                        self.plan_round();
                    }
                    Some(Order::Share { done }) => self.share(done),
                    Some(Order::Proclaim { value, done }) => self.proclaim(value, done),
                    Some(Order::Release { done, counted }) => return self.release(done, counted).await,
                    // Every guard is gone, and its order did not come.
                    None => return self.shared.end(Loss::Released),
                },
                Some(reply) = self.calls.next(), if !self.calls.is_empty() => self.on_reply(reply),
                () = Proclaiming::goes_on(&mut self.proclaiming), if self.proclaiming.is_some() => {}
                missing = Looking::goes_on(&mut self.looking, &self.held), if self.looking.is_some() => {
                    let (key, token) = (self.lease.shown_key(), missing.token.get());
                    debug!(%key, token, node = self.nodes.list[missing.node].name(), "a node does not have it any more");
                    let calls = self.held.on_missing(missing.node, missing.id, missing.token, clock::boot_now());
                    self.make(calls);
                }
                () = self.nodes.superseded() => self.moves(),
                () = sleep_until(next), if self.next.is_some() => self.next_round(),
                () = sleep(left) => {}
            }
            if self.held.is_lost() || clock::boot_now() >= self.held.valid_until() {
                return self.lose();
            }
        }
    }

    /// Another version of the set took the place of the one in which it was held: it is held there from now on.
    fn moves(&mut self) {
        self.nodes = self.nodes.latest();
        self.lease.moves();
        self.whys = vec![None; self.nodes.len()];
        // Answers to what is under way are of the version before.
        self.calls = Calls::new(&self.nodes, &self.lease);
        let calls = self.held.moves_to(&self.nodes.ids());
        let (key, token, nodes) = (self.lease.shown_key(), self.held.token().get(), self.nodes.len());
        debug!(%key, token, nodes, "goes over to another set of nodes");
        self.make(calls);
        if let Some(proclaiming) = &mut self.proclaiming {
            proclaiming.moves_to(&self.nodes);
        }
        if self.looking.is_some() {
            self.looking = Looking::begin(&self.nodes, &self.lease, self.checked);
        }
        // Nodes that were added are to have it soon; and who waits for the round that is over waits for this one.
        if self.auto.is_some() && !self.is_of_ended_session() || !self.waiting.is_empty() {
            self.begin_round(self.ttl_ms());
        }
    }

    /// How long its leases are, in milliseconds.
    fn ttl_ms(&self) -> u32 {
        self.auto.map_or(self.held.ttl_ms(), |auto| auto.ttl_ms)
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms().into())
    }

    /// How long to wait after a round that failed.
    fn again(&self) -> Duration {
        let left = clock::until(self.held.valid_until());
        (self.ttl() / AGAIN).min(left / AGAIN_OF_LEFT).max(AGAIN_LEAST)
    }

    /// The next round begins in its time, if it is extended in the background at all.
    fn plan_round(&mut self) {
        let period = self.ttl() / ROUNDS_A_LEASE;
        match &self.shared.session {
            Some(session) => self.plan_at(session.round_after(Instant::now(), period)),
            None => self.plan(period),
        }
    }

    /// It begins after about `pause`.
    fn plan(&mut self, pause: Duration) {
        // Never later, and not all holders at the same moment.
        let pause = pause.mul_f64(rand::rng().random_range(0.85..1.0));
        let together_us = TOGETHER_US.min((pause / TOGETHER_OF_PAUSE).as_micros() as u64).max(1);
        let early_us = (clock::boot_now().as_us() + pause.as_micros() as u64) % together_us;
        self.plan_at(Instant::now() + pause.saturating_sub(Duration::from_micros(early_us)));
    }

    fn plan_at(&mut self, next: Instant) {
        let is_over = self.is_of_ended_session();
        self.next = self.auto.filter(|auto| next < auto.until && !is_over).map(|_| next);
    }

    fn is_of_ended_session(&self) -> bool {
        self.shared.session.as_ref().is_some_and(|session| session.is_over())
    }

    /// It is time for one, unless it is of a session that is over.
    fn next_round(&mut self) {
        if self.is_of_ended_session() {
            self.next = None;
        } else {
            self.begin_round(self.ttl_ms());
        }
    }

    fn begin_round(&mut self, ttl_ms: u32) {
        if self.held.round() > 0 && self.held.outcome().is_none() {
            // One is under way, and ends within the time that a node is given: begun anew it might never end.
            return self.plan(self.again());
        }
        let calls = self.held.extend(ttl_ms, clock::boot_now());
        self.make(calls);
        if let Some(proclaiming) = &mut self.proclaiming {
            proclaiming.again();
        }
        if let Some(looking) = &mut self.looking {
            looking.look_after();
        }
        self.plan_round();
        // Where too few nodes have it to begin with, there is nothing to wait for.
        self.report(None);
    }

    fn share(&mut self, done: oneshot::Sender<Result<(), Error>>) {
        // What heals a node from here on does so as a reader.
        self.lease.wants(Wanted::Shared);
        let calls = self.held.share();
        self.make(calls);
        self.sharing.push(done);
    }

    fn proclaim(&mut self, value: Vec<u8>, done: Proclaimed) {
        let begin = || Proclaiming::begin(&self.nodes, &self.lease, &self.held, self.checked.given);
        self.proclaiming.get_or_insert_with(begin).proclaim(value, done);
    }

    fn make(&mut self, calls: Vec<palisade_core::quorum::Call>) {
        let round = self.held.round();
        let given = self.checked.extending;
        calls.into_iter().for_each(|call| self.calls.make(round, call, given));
    }

    fn on_reply(&mut self, reply: Reply) {
        let before = self.held.outcome();
        let Reply { round, call, id, answer, why, .. } = reply;
        // A node that has not answered in this round yet: what it said in the one before still stands.
        self.whys[call.node] = why;
        let calls = self.held.on_answer(round, call.node, id, call.ask, answer, clock::boot_now());
        if let (Some(proclaiming), Ask::Acquire { .. }, Answer::Token(_)) = (&mut self.proclaiming, call.ask, answer) {
            proclaiming.on_grant(call.node);
        }
        if let (Some(looking), Answer::Token(_)) = (&mut self.looking, answer) {
            looking.was_changed(call.node);
        }
        self.make(calls);
        self.shared.show(&self.held);
        if self.held.is_shared() {
            self.sharing.drain(..).for_each(|done| drop(done.send(Ok(()))));
        }
        self.report(before);
    }

    /// Tells those who wait for the round what came of it, if that is news.
    fn report(&mut self, before: Option<bool>) {
        match self.held.outcome() {
            Some(true) if before != Some(true) => {
                metrics::extended(&self.lease, true);
                debug!(key = %self.lease.shown_key(), token = self.held.token().get(), nodes = self.nodes.len(), "extended");
                self.waiting.drain(..).for_each(|done| drop(done.send(Ok(()))));
            }
            // What is lost is told as such.
            _ if self.held.is_lost() => {}
            Some(false) if before != Some(false) && self.held.round() > 0 => {
                metrics::extended(&self.lease, false);
                let text = "too few nodes extended it: it stays valid as long as it was";
                let error = Error::new(ErrorKind::NoQuorum, text).with_nodes(self.nodes.errors(&self.whys));
                let (key, token, nodes) = (self.lease.shown_key(), self.held.token().get(), self.nodes.len());
                warn!(%key, token, nodes, %error, "not extended, tried again while it is valid");
                self.waiting.drain(..).for_each(|done| drop(done.send(Err(error.clone()))));
                self.plan(self.again());
            }
            _ => {}
        }
    }

    /// Says that it is lost to all who rely on it.
    fn lose(&mut self) {
        let loss = self.loss();
        let (key, token, nodes) = (self.lease.shown_key(), self.held.token().get(), self.nodes.len());
        warn!(%key, token, nodes, reason = %loss, "the lock is lost");
        self.shared.end(loss);
        for done in self.waiting.drain(..).chain(self.sharing.drain(..)) {
            let _ = done.send(Err(self.shared.lost()));
        }
    }

    /// Why it is lost.
    fn loss(&self) -> Loss {
        if self.held.is_lost() || self.held.was_taken_away() {
            return Loss::TakenAway(self.errors());
        }
        match self.auto {
            None => Loss::NotExtended,
            Some(auto) if Instant::now() + self.ttl() / ROUNDS_A_LEASE >= auto.until => Loss::MaxHold,
            Some(_) if clock::boot_now() > self.held.valid_until().plus_us(OVERSLEPT_US) => Loss::Asleep,
            Some(_) => Loss::TooFewNodes(self.errors()),
        }
    }

    /// What the nodes said last; of those from which the lock is gone that it is, whatever they have said since.
    fn errors(&self) -> Vec<NodeError> {
        let why = |(node, why): (usize, &Option<String>)| match self.held.was_gone_from(node) {
            true => Some(NOT_HELD.to_owned()),
            false => why.clone(),
        };
        let whys: Vec<_> = self.whys.iter().enumerate().map(why).collect();
        self.nodes.errors(&whys)
    }

    /// Gives it back to every node, and says what came of it as soon as a majority has answered.
    async fn release(&mut self, done: Option<oneshot::Sender<Released>>, counted: Counted) {
        // What is under way would only take it again.
        self.calls = Calls::new(&self.nodes, &self.lease);
        self.proclaiming = None;
        self.give_back.disarm();
        let expired = clock::boot_now() >= self.held.valid_until();
        self.shared.end(Loss::Released);
        self.holding.end(&Loss::Released);
        let mut giving = self.nodes.give_back(&self.lease, self.checked);
        self.nodes = Arc::clone(&giving.nodes);
        drop(counted);
        let (key, token, nodes) = (self.lease.shown_key(), self.held.token().get(), self.nodes.len());
        let Some(done) = done else {
            debug!(%key, token, nodes, "its last guard was dropped: it is released in the background");
            return drop(giving.goes_on());
        };
        self.whys = vec![None; self.nodes.len()];
        let mut release = Release::begin(self.nodes.len());
        while release.outcome() == Outcome::Unknown
            && let Some(told) = giving.next().await
        {
            self.whys[told.place] = told.reply.as_ref().err().map(ToString::to_string);
            told.tell(&mut release);
        }
        let outcome = release.outcome();
        debug!(%key, token, nodes, ?outcome, "released");
        let _ = done.send(match outcome {
            Outcome::Released if !expired => Released::Released,
            Outcome::Released | Outcome::NotHeld => Released::AlreadyExpired,
            Outcome::Unknown => Released::PartlyUnreachable(self.nodes.errors(&self.whys)),
        });
        self.counted = None;
        // The other nodes.
        while giving.next().await.is_some() {}
    }
}
