//! Acquires a lock, for as long as it takes: waits in queues and for nodes that are slow, loading or down, until the
//! caller's own limit.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use palisade_quorum::{BootTime, GaveUp, Refused, Taker, Task, Token, Wanted};
use tokio::sync::MutexGuard;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, warn};

use crate::metrics::{Acquiring, Class};
use crate::net::home::home;
use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::net::tally::Tally;
use crate::run::attempt::{self, Taken, Wait};
use crate::run::checked::Checked;
use crate::run::choosing::{self, FreePermit};
use crate::run::limit::{self, LastFailure, within};
use crate::run::refusal::contended;
use crate::run::waiting;
use crate::values::clock;
use crate::values::shown_key::ShownKey;
use crate::{Error, ErrorKind};

/// Minimum time between two log lines that one lock waits for nodes.
const SAID_AGAIN: Duration = Duration::from_secs(10);

/// The line of requests that do not wait: these do not stand in the line of their key.
static ALONE: LazyLock<Turn> = LazyLock::new(Turn::default);

/// The waiting requests of this process, by key. One request per key asks the nodes; the others wait here for their
/// turn.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<Vec<u8>, Weak<Turn>>>);

/// The line of this process's requests for one key. The first one asks the nodes.
#[derive(Debug, Default)]
struct Turn {
    queue: tokio::sync::Mutex<()>,
    /// Counts the requests behind the first one; their number is reported to the nodes.
    behind: Tally,
    /// The reason why the nodes last refused the first request in the line.
    seen: Mutex<Option<LastFailure>>,
}

impl Turns {
    fn of(&self, key: &[u8]) -> Arc<Turn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        // Unused keys are removed only when the table is full, since each removal scans all keys. After a removal there
        // is room for as many keys again.
        if turns.len() == turns.capacity() {
            turns.retain(|_, turn| turn.strong_count() > 0);
            let live = turns.len();
            turns.reserve(live + 1);
        }
        let turn = Arc::default();
        turns.insert(key.to_vec(), Arc::downgrade(&turn));
        turn
    }
}

impl Turn {
    fn saw(&self, said: Option<LastFailure>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    /// Waits until the request is the first in the line, but not longer than until `deadline`.
    async fn wait_until(&self, deadline: Instant) -> Result<tokio::sync::MutexGuard<'_, ()>, Elapsed> {
        let _behind = self.behind.begin();
        timeout_at(deadline, self.queue.lock()).await
    }

    fn last_failure(&self) -> Option<LastFailure> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The lock to acquire, and its owner.
#[derive(Clone, Debug)]
pub struct Sought {
    pub key: Arc<[u8]>,
    /// The name of the owner, if the caller chose one.
    pub owner: Option<Arc<[u8]>>,
    /// The part that the names of all attempts of this request share.
    pub request: u32,
    pub note: Vec<u8>,
    pub wanted: Wanted,
    /// The value of the metrics label `class`.
    pub class: Class,
    /// The request's place in the queues of the nodes, drawn when the caller arrived. So a request that first waits for
    /// others of this process does not end up behind later ones of other processes.
    pub ticket: Token,
}

/// Acquires the lock if it is free now.
pub async fn try_lock(nodes: &Arc<Nodes>, sought: &Sought, checked: Checked) -> Result<Taken, Error> {
    let acquiring = Acquiring::begin(&sought.class, sought.wanted);
    let take = async |nodes: Arc<Nodes>| {
        let (taker, task) = Taker::try_once(sought.wanted, nodes.len(), rand::random());
        Taking::new(nodes, sought, checked, taker, &ALONE).run(task).await
    };
    let taken = nodes.on_present(checked.given, take).await;
    acquiring.ended(&taken);
    taken
}

/// Acquires the lock, waiting for up to `wait`.
pub async fn lock(
    nodes: &Arc<Nodes>,
    turns: &Turns,
    sought: &Sought,
    wait: Option<Duration>,
    checked: Checked,
) -> Result<Taken, Error> {
    let acquiring = Acquiring::begin(&sought.class, sought.wanted);
    let (nodes, now) = (nodes.latest(), clock::boot_now());
    let limit = wait.map(clock::after);
    let (taker, task) = Taker::begin(sought.wanted, nodes.len(), limit, now, rand::random());
    let turn = turns.of(&sought.key);
    let taken = Taking::new(nodes, sought, checked, taker, &turn).run(task).await;
    acquiring.ended(&taken);
    taken
}

/// Performs what the [`Taker`], the machine that decides how to acquire a lock, asks for.
struct Taking<'a> {
    nodes: Arc<Nodes>,
    sought: &'a Sought,
    checked: Checked,
    taker: Taker,
    turn: &'a Turn,
    /// The first place in the line of this process's requests for the key, once this request has it.
    place: Option<MutexGuard<'a, ()>>,
    /// The acquisition for which the nodes reserve the lock.
    kept: Option<Lease>,
    /// The owner's name of the last attempt.
    asked_as: Arc<[u8]>,
    /// The refusal of the last attempt.
    refused: Option<LastFailure>,
    /// The last time that the log said that this lock waits for nodes.
    warned: Instant,
}

impl<'a> Taking<'a> {
    fn new(nodes: Arc<Nodes>, sought: &'a Sought, checked: Checked, taker: Taker, turn: &'a Turn) -> Self {
        let warned = clock::now();
        Self {
            nodes,
            sought,
            checked,
            taker,
            turn,
            place: None,
            kept: None,
            asked_as: Arc::default(),
            refused: None,
            warned,
        }
    }

    async fn run(mut self, mut task: Task) -> Result<Taken, Error> {
        loop {
            let (lease, by, patience_ms) = match task {
                Task::Ask { wanted, by, keeps_name } => (self.lease(wanted, keeps_name), by, None),
                Task::AskAndWait { patience_ms, by } => (self.lease(self.sought.wanted, false), by, Some(patience_ms)),
                other => {
                    task = self.perform(other).await?;
                    continue;
                }
            };
            let patience = patience_ms.map(|ms| Duration::from_millis(ms.into()));
            let wait = patience.map(|patience| Wait { patience, behind: &self.turn.behind });
            let began = clock::now();
            task = match attempt::acquire(&self.nodes, lease, self.checked, by.map(instant), wait).await {
                Ok(taken) => return Ok(taken),
                Err(refused) => Box::pin(self.on_refused(refused, began)).await,
            };
        }
    }

    /// Performs a task that asks no node for the lock, and returns the next one.
    async fn perform(&mut self, task: Task) -> Result<Task, Error> {
        if !matches!(task, Task::LineUp { .. }) {
            home().await;
        }
        Ok(match task {
            Task::Ask { .. } | Task::AskAndWait { .. } => task,
            Task::Look { limit, by } => self.choose_permit(limit, by).await,
            Task::LineUp { until } => self.line_up(until).await,
            Task::Queue { patience_ms } => self.queue(Duration::from_millis(patience_ms.into())).await?,
            Task::Pause { until, for_nodes } => self.pause(until, for_nodes).await,
            Task::GiveUp(why) => return Err(Box::pin(self.give_up(why)).await),
        })
    }

    /// Returns the acquisition to ask with. With `keeps_name` that is the one for which the nodes reserve the lock;
    /// otherwise a new one, which no late message about an earlier one can affect.
    fn lease(&mut self, wanted: Wanted, keeps_name: bool) -> Lease {
        let Sought { key, owner, request, note, class, .. } = self.sought;
        let lease = match self.kept.take().filter(|_| keeps_name) {
            Some(kept) => kept,
            None => {
                let name = (owner.as_deref(), *request);
                Lease::new(Arc::clone(key), name, note, wanted, self.nodes.len()).of_class(class)
            }
        };
        lease.set_wanted(wanted);
        self.asked_as = Arc::clone(&lease.owner);
        lease
    }

    /// Moves to the latest version of the set, if there is a newer one. Returns whether it did.
    fn follow(&mut self) -> bool {
        let is_superseded = self.nodes.is_superseded();
        if is_superseded {
            self.nodes = self.nodes.latest();
            self.taker.move_to(self.nodes.len());
        }
        is_superseded
    }

    async fn on_refused(&mut self, refused: Error, began: Instant) -> Task {
        home().await;
        let error = limit::last_word(&self.nodes, &self.sought.key, self.refused.take(), refused, began);
        let is_lasting = error.is_lasting()
            && !(error.kind() == ErrorKind::NoQuorum && self.nodes.was_superseded(self.checked.given).await);
        self.refused = Some(LastFailure::now(error.clone()));
        if self.place.is_some() {
            self.turn.saw(self.refused.clone());
        }
        self.follow();
        self.taker.on_refused(refusal(&error, is_lasting), clock::boot_now(), rand::random())
    }

    async fn choose_permit(&mut self, limit: u16, by: Option<BootTime>) -> Task {
        self.sought.class.round();
        let look = choosing::find_free_permit(&self.nodes, &self.sought.key, &self.asked_as, limit, self.checked.given);
        let look = within(by.map(instant), Box::pin(look)).await;
        let number = look.as_ref().and_then(|look| look.number);
        if let (Some(FreePermit { number: None, holder }), Some(refused)) = (look, &mut self.refused) {
            refused.error = refused.error.clone().with_holder(holder);
        }
        self.follow();
        self.taker.on_look(number, clock::boot_now(), rand::random())
    }

    async fn line_up(&mut self, until: Option<BootTime>) -> Task {
        let turn = self.turn;
        let (place, at_once) = match (turn.queue.try_lock(), until) {
            (Ok(place), _) => (place, true),
            (Err(_), None) => {
                // Other callers wait behind this one. On the client's thread the line advances even if this caller's
                // runtime does not run.
                home().await;
                let _behind = turn.behind.begin();
                (turn.queue.lock().await, false)
            }
            (Err(_), Some(until)) => {
                home().await;
                match turn.wait_until(instant(until)).await {
                    Ok(place) => (place, false),
                    Err(_) => return self.taker.on_no_turn(),
                }
            }
        };
        self.place = Some(place);
        turn.saw(None);
        if !at_once {
            self.refused = None;
        }
        self.follow();
        self.taker.on_turn(at_once, clock::boot_now(), rand::random())
    }

    async fn queue(&mut self, patience: Duration) -> Result<Task, Error> {
        let lease = self.lease(self.sought.wanted, false);
        let turn = waiting::turn(&self.nodes, lease, self.sought.ticket, patience, &self.turn.behind, self.checked);
        let mut told = Box::pin(turn).await?;
        if self.follow() {
            // The reservation was made by nodes of the previous version, so it does not count.
            told = None;
        }
        let number = told.as_ref().map(|told| told.number);
        self.kept = told.map(|told| told.lease);
        Ok(self.taker.on_queue(number, clock::boot_now(), rand::random()))
    }

    async fn pause(&mut self, until: BootTime, for_nodes: Option<BootTime>) -> Task {
        let (key, nodes) = (ShownKey(&self.sought.key), self.nodes.len());
        let pause = clock::until(until);
        if let Some(LastFailure { error, .. }) = self.refused.as_ref().filter(|_| !pause.is_zero()) {
            if for_nodes.is_some() && self.warned.elapsed() > SAID_AGAIN {
                self.warned = Instant::now();
                warn!(%key, nodes, %error, "waits for nodes");
            } else {
                debug!(%key, nodes, ?pause, %error, "asks again");
            }
            sleep(pause).await;
        }
        if let Some(until) = for_nodes {
            let _ = timeout(clock::until(until), self.nodes.wait_for_majority(&self.sought.key)).await;
        }
        self.follow();
        let many_wait = self.nodes.len() == 1 && self.nodes.list[0].has_many_blocked(&self.sought.key);
        self.taker.on_paused(many_wait, clock::boot_now(), rand::random())
    }

    async fn give_up(&mut self, why: GaveUp) -> Error {
        let (nodes, key, given) = (&self.nodes, &self.sought.key, self.checked.given);
        match (why, self.refused.take()) {
            (GaveUp::Refused, Some(last)) => last.error,
            (GaveUp::TimedOut, Some(last)) => {
                let by = self.taker.over().map_or_else(Instant::now, instant);
                limit::timed_out(nodes, key, last.error, given, by).await
            }
            (GaveUp::Behind, refused) => limit::behind(nodes, key, self.turn.last_failure().or(refused), given).await,
            (GaveUp::Refused | GaveUp::TimedOut, None) => contended(self.sought.wanted),
        }
    }
}

/// Converts a moment to the clock of timers.
fn instant(at: BootTime) -> Instant {
    clock::now() + clock::until(at)
}

/// Converts the refusal to the form that the [`Taker`] receives.
fn refusal(error: &Error, is_lasting: bool) -> Refused {
    match error.kind() {
        ErrorKind::Contended => Refused::Contended,
        ErrorKind::Guarded => {
            let left = error.retry_after().unwrap_or_default();
            Refused::Guarded { left_ms: u32::try_from(left.as_millis()).unwrap_or(u32::MAX) }
        }
        ErrorKind::Expired => Refused::TooLate,
        ErrorKind::NoQuorum => Refused::TooFewNodes { is_lasting },
        _ if is_lasting => Refused::Lasting,
        _ => Refused::TooFewNodes { is_lasting: false },
    }
}
