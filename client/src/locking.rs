//! Taking a lock for as long as it takes: through queues, through nodes that are slow, loading or down, until the caller's own limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use palisade_core::limits::WAIT_MAX_MS;
use palisade_core::{Token, Wanted};
use rand::RngExt;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, warn};

use crate::attempt::{self, Taken};
use crate::choosing::{self, Look};
use crate::give_back::Tally;
use crate::limit::{self, LAST_TRY, Said, within};
use crate::metrics::{Acquiring, Class};
use crate::nodes::Nodes;
use crate::options::Checked;
use crate::wire::{Lease, ShownKey};
use crate::{Error, ErrorKind, waiting};

/// Longest wait that is asked of the nodes at a time: the most they take.
const WAIT_AT_A_TIME: Duration = Duration::from_millis(WAIT_MAX_MS as u64);

/// First and longest pause after an attempt in vain: several clients were told that the lock is free, and none got a majority;
/// the nodes let nobody wait; or too few of them can be asked.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));

/// Nodes that grant too late for the lease, so many times in a row, to a caller without a limit: it is the lease that is too short.
const TOO_LATE_TIMES: u32 = 10;

/// So often in a row a number of several permits is asked for that nodes showed as free, before waiting for one in their queues:
/// they list no more than so many holders, and others are asking too. In bursts, four are enough (core's `quorum::burst`).
const LOOKS_MAX: u32 = 8;

/// So often it is said of a lock that is waited for that too few nodes can be asked.
const SAID_AGAIN: Duration = Duration::from_secs(10);

/// Who waits in this process, by key: one of them asks the nodes, the others wait for their turn here.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<Vec<u8>, Weak<Turn>>>);

/// Where those who want one key wait for each other, in order.
#[derive(Debug, Default)]
struct Turn {
    queue: tokio::sync::Mutex<()>,
    /// Those who do not have it: the nodes are told how many they are.
    behind: Tally,
    /// Why the one whose turn it is does not have the lock yet.
    seen: Mutex<Option<Said>>,
}

impl Turns {
    fn of(&self, key: &[u8]) -> Arc<Turn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        // Not at each one: of many keys each would look at all of them. So afterwards there is room for as many more.
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
    fn saw(&self, said: Option<Said>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    /// Waits for it until then.
    async fn wait_until(&self, deadline: Instant) -> Result<tokio::sync::MutexGuard<'_, ()>, Elapsed> {
        let _behind = self.behind.begin();
        timeout_at(deadline, self.queue.lock()).await
    }

    fn seen(&self) -> Option<Said> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What is to be taken, and for whom.
#[derive(Clone, Debug)]
pub struct Sought {
    pub key: Vec<u8>,
    /// The name of the owner, if the caller chose one.
    pub owner: Option<Vec<u8>>,
    pub note: Vec<u8>,
    pub wanted: Wanted,
    /// What it is counted as.
    pub class: Class,
    /// Its caller's place in the queues of the nodes: taken when the caller came, so that who waits for others of this process first is
    /// not behind those of other processes who come meanwhile.
    pub ticket: Token,
}

impl Sought {
    /// An acquisition of it; of several permits, of any.
    fn lease(&self, nodes: &Nodes) -> Lease {
        self.lease_in(nodes, choosing::any(nodes, self.wanted))
    }

    /// The same in this mode.
    fn lease_in(&self, nodes: &Nodes, wanted: Wanted) -> Lease {
        Lease::new(&self.key, self.owner.as_deref(), &self.note, wanted, nodes.len()).of_class(&self.class)
    }
}

/// Takes it if it is free, now.
pub async fn try_lock(nodes: &Arc<Nodes>, sought: &Sought, checked: Checked) -> Result<Taken, Error> {
    let acquiring = Acquiring::begin(&sought.class, sought.wanted);
    let take = async |nodes: Arc<Nodes>| take_free(&nodes, sought, sought.lease(&nodes), checked, None, &mut 0).await;
    let taken = nodes.on_present(checked.given, take).await;
    acquiring.ended(&taken);
    taken
}

/// Attempts to take it, by then if there is a limit; of several permits another one as long as any is free, up to
/// [`LOOKS_MAX`] since `looks` was zero.
async fn take_free(
    nodes: &Arc<Nodes>,
    sought: &Sought,
    mut lease: Lease,
    checked: Checked,
    by: Option<Instant>,
    looks: &mut u32,
) -> Result<Taken, Error> {
    let mut before = None;
    loop {
        let (owner, began) = (Arc::clone(&lease.owner), Instant::now());
        let refused = match attempt::acquire(nodes, lease, checked, by).await {
            Ok(taken) => return Ok(taken),
            Err(refused) => limit::last_word(nodes, &sought.key, before.take(), refused, began),
        };
        let Some(limit) = choosing::limit(nodes, sought.wanted) else { return Err(refused) };
        let is_over = by.is_some_and(|by| by <= Instant::now());
        if refused.kind() != ErrorKind::Contended || *looks >= LOOKS_MAX || is_over {
            return Err(refused);
        }
        *looks += 1;
        sought.class.round();
        let look = Box::pin(choosing::look(nodes, &sought.key, &owner, limit, checked.given));
        let Some(Look { number, holder }) = within(by, look).await else { return Err(refused) };
        if number.is_none() {
            return Err(refused.with_holder(holder));
        }
        before = Some(Said::now(refused));
        lease = sought.lease_in(nodes, Wanted::Permit { limit, number });
    }
}

/// Takes it, for up to `wait`.
pub async fn lock(
    nodes: &Arc<Nodes>,
    turns: &Turns,
    sought: &Sought,
    wait: Option<Duration>,
    checked: Checked,
) -> Result<Taken, Error> {
    let acquiring = Acquiring::begin(&sought.class, sought.wanted);
    let taken = take_in_turn(nodes, turns, sought, wait, checked).await;
    acquiring.ended(&taken);
    taken
}

async fn take_in_turn(
    nodes: &Arc<Nodes>,
    turns: &Turns,
    sought: &Sought,
    wait: Option<Duration>,
    checked: Checked,
) -> Result<Taken, Error> {
    let (key, mut nodes) = (&sought.key, nodes.latest());
    let deadline = wait.map(|wait| Instant::now() + wait);
    let over = deadline.map(|deadline| deadline + LAST_TRY);
    let by = || deadline.map(|deadline| deadline.max(Instant::now() + LAST_TRY));
    let turn = turns.of(key);
    // Those who can hold it together need not wait for each other here. Who comes before whom is the nodes' word.
    let mut refused_before = match sought.wanted {
        Wanted::Exclusive => None,
        _ => match take_free(&nodes, sought, sought.lease(&nodes), checked, by(), &mut 0).await {
            Ok(taken) => return Ok(taken),
            Err(refused) => Some(Said::now(refused)),
        },
    };
    let _turn = match (turn.queue.try_lock(), deadline) {
        (Ok(turn), _) => turn,
        (Err(_), None) => {
            refused_before = None;
            let _behind = turn.behind.begin();
            turn.queue.lock().await
        }
        (Err(_), Some(deadline)) => match turn.wait_until(deadline).await {
            Ok(turn) => {
                refused_before = None;
                turn
            }
            Err(_) => return Err(limit::behind(&nodes, key, turn.seen().or(refused_before), checked.given).await),
        },
    };
    turn.saw(None);
    let mut lease = sought.lease(&nodes);
    let mut pause = BACK_OFF.0;
    let mut said = Instant::now();
    // The last attempt came after a wait in the queues.
    let (mut waited, mut collided, mut too_late, mut looks) = (false, false, 0, 0);
    let mut by_turn = nodes.len() > 1;
    let mut before: Option<Said> = None;
    let patience = || {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.map_or(WAIT_AT_A_TIME, |left| left.min(WAIT_AT_A_TIME))
    };
    loop {
        if nodes.is_superseded() {
            nodes = nodes.latest();
            (lease, waited, collided) = (sought.lease(&nodes), false, false);
        }
        let (left, began) = (patience(), Instant::now());
        let attempt = if let Some(refused) = refused_before.take() {
            Err(refused.error)
        } else if waited && !by_turn && !left.is_zero() {
            let waiting = attempt::acquire_waiting(&nodes, lease, checked, left, over, &turn.behind);
            Box::pin(waiting).await
        } else {
            take_free(&nodes, sought, lease, checked, by(), &mut looks).await.map(Some)
        };
        let refused = match attempt {
            Ok(Some(taken)) => return Ok(taken),
            Ok(None) => attempt::contended(sought.wanted),
            Err(error) => error,
        };
        too_late = if refused.kind() == ErrorKind::Expired { too_late + 1 } else { 0 };
        let passes = match refused.kind() {
            // The caller's own limit ends that too.
            ErrorKind::Expired => deadline.is_some() || too_late < TOO_LATE_TIMES,
            ErrorKind::NoQuorum => {
                !refused.is_lasting() || within(by(), nodes.was_superseded(checked.given)).await == Some(true)
            }
            _ => !refused.is_lasting(),
        };
        if !passes {
            return Err(refused);
        }
        if let (true, Some(over)) = (patience().is_zero(), over) {
            let last = limit::last_word(&nodes, key, before, refused, began);
            return Err(limit::timed_out(&nodes, key, last, checked.given, over).await);
        }
        before = Some(Said::now(refused.clone()));
        let is_guarded = refused.kind() == ErrorKind::Guarded;
        let in_queue = is_guarded || refused.kind() == ErrorKind::Contended;
        turn.saw(before.clone());
        // Not all at the same moment again, nor again and again: where it was told that the lock is free and somebody else was
        // faster, where the nodes let nobody wait or grant nothing for a while, and where too few can be asked.
        if !in_queue || collided || (is_guarded && (waited || by_turn)) {
            let longest = refused.retry_after().unwrap_or(pause).min(patience()).min(BACK_OFF.1);
            let jittered = longest.mul_f64(rand::rng().random_range(0.2..1.0));
            if refused.kind() == ErrorKind::NoQuorum && said.elapsed() > SAID_AGAIN {
                said = Instant::now();
                warn!(key = %ShownKey(key), nodes = nodes.len(), error = %refused, "waits for nodes");
            } else {
                debug!(key = %ShownKey(key), nodes = nodes.len(), pause = ?jittered, error = %refused, "asks again");
            }
            sleep(jittered).await;
            pause = (pause * 2).min(BACK_OFF.1);
        }
        if refused.kind() == ErrorKind::NoQuorum {
            // Not again and again meanwhile: as soon as they answer, those who wait go on, as many at a time as can.
            let _ = timeout(patience().min(SAID_AGAIN), nodes.majority_answers(key)).await;
        }
        // A new name for each attempt: a late message about the last one cannot touch it.
        lease = sought.lease(&nodes);
        waited = in_queue;
        collided = false;
        // Of one node a request for the lock itself can wait: one message less. But each blocks a connection.
        by_turn = nodes.len() > 1 || nodes.list[0].has_many_blocked(key);
        if in_queue && by_turn {
            let patient = patience().max(Duration::from_millis(1));
            let chooses = choosing::limit(&nodes, sought.wanted).is_some();
            let turn = waiting::turn(&nodes, lease, sought.ticket, patient, (chooses, &turn.behind), checked);
            let turn = Box::pin(turn).await?;
            // Told that it is free; or the nodes let nobody wait. (If the time is up, the last attempt follows.)
            collided = turn.is_some() || !patience().is_zero();
            lease = turn.unwrap_or_else(|| sought.lease(&nodes));
            looks = 0;
        }
    }
}
