//! A client process: several tasks that take locks, access the register under the locks, and record what they rely on.
//! The process takes no precautions against faults.
//!
//! A recorded claim is never shorter than the client crate's promise. The process reads `valid_for` once and the clock
//! *after* it, and the claim lasts until the sum of the two. If it read the clock before, the claim would end too early
//! by the time between the two readings, and an overlap in that time would go unseen. But a process that is stopped
//! between the two must not claim seconds that it was never promised. So the clock is read before and after, and
//! everything is repeated unless the two readings of the clock are close. The limit is [`CLAIM_SLACK_US`], a twentieth
//! of the 2 ms by which nodes keep a lock for longer than its holder relies on it.

use std::sync::Arc;
use std::time::Duration;

use palisade_client::{Client, Error, ErrorKind, Guard, Options};
use rand::RngExt;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::gated::writer;
use super::journal::{Journal, Line, now_us};
pub use super::process::Settings;
use super::process::{Shared, Task, key_name};
use super::register::Access;
use super::through::{self, Through};
use super::world::connect;
use crate::history::{Event, HeldAs, Holder, Occurrence, TimeUs};

/// The longest time by which a claim exceeds the crate's promise, in microseconds.
pub const CLAIM_SLACK_US: u64 = 100;

/// The largest difference between two readings of the same validity, in microseconds.
const SAME_US: u64 = 2 * CLAIM_SLACK_US;

/// The interval at which a holder's validity and token are checked.
const OBSERVED_EVERY: Duration = Duration::from_millis(8);

/// The shortest lease that is requested.
const TTL_MIN_MS: u64 = 200;

/// The longest pause of a task before its next lock.
const PAUSE_MAX_MS: u64 = 40;

/// The most permits of a lock. The clients do not agree on the limit.
const PERMITS_MAX: u16 = 4;

/// The longest time for which the client's own key is kept: longer than the restart of several nodes.
const LONG_HOLD_MAX_MS: u64 = 12_000;

/// The number of tasks of a client process that hold locks of one node by KEEPALIVE.
const KEEPERS: u64 = 2;

/// The mode in which a lock is requested.
#[derive(Clone, Copy, Debug)]
enum Aim {
    Alone,
    ToRead,
    Permit { limit: u16 },
}

impl Aim {
    /// Takes the lock `name`, with or without waiting for it.
    async fn take(self, client: &Client, name: &str, options: &Options, waits: bool) -> Result<(Guard, HeldAs), Error> {
        match self {
            Self::Alone => {
                let taken = if waits {
                    client.with(options).lock(name).await
                } else {
                    client.with(options).try_lock(name).await
                };
                Ok((taken?, HeldAs::Exclusive))
            }
            Self::ToRead => {
                let lock = client.with(options).rw_lock(name);
                let taken = if waits { lock.read().await } else { lock.try_read().await };
                Ok((taken?.into(), HeldAs::Shared))
            }
            Self::Permit { limit } => {
                let semaphore = client.with(options).semaphore(name, limit);
                let permit = if waits { semaphore.acquire().await? } else { semaphore.try_acquire().await? };
                let mode = HeldAs::Permit { number: permit.number(), limit };
                Ok((permit.into(), mode))
            }
        }
    }
}

/// Runs until standard input ends and every task has then released its locks and acquired those that it waits for.
///
/// # Panics
///
/// If the register or the journal cannot be reached.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub async fn run(settings: Settings) {
    let journal = Journal::create(&settings.journal).expect("the journal can be made");
    let client = connect(settings.nodes.clone(), settings.cluster);
    let (ended, finish) = watch::channel(false);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        ended.send_replace(true);
    });
    let shared = Arc::new(Shared::new(settings, client, journal, finish));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..shared.settings.tasks.into() {
        tasks.spawn(Contender { task: Task::new(&shared, number).await, own: number == 0 }.run());
    }
    // Keepers speak to one node, and the other tasks to an agent. Neither follows a cluster's redirections.
    let (keepers, through) = if shared.settings.cluster { (0, 0) } else { (KEEPERS, through::TASKS) };
    for keeper in 0..keepers {
        tasks.spawn(Task::new(&shared, 500 + keeper).await.keep());
    }
    for task in 0..through {
        tasks.spawn(Through::new(Task::new(&shared, 700 + task).await).run());
    }
    writer::spawn(&shared, &mut tasks).await;
    tasks.spawn(Task::new(&shared, 600).await.campaign());
    tasks.spawn(Task::new(&shared, 601).await.observe());
    tasks.join_all().await;
}

struct Contender {
    task: Task,
    /// True for the task that takes the key that only this client uses. The task holds that key for a long time, even
    /// through faults of nodes.
    own: bool,
}

/// The promise of the client crate on which a holder relies: until when it has the lock, and with which token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    read_at: TimeUs,
    until: TimeUs,
    token: u64,
}

/// Returns the current promise of `guard`; `None` if there is none.
fn claim(guard: &Guard) -> Option<Claim> {
    loop {
        let token = guard.token();
        let before = now_us();
        let left = guard.valid_for();
        let after = now_us();
        if left.is_zero() {
            return None;
        }
        if after - before <= CLAIM_SLACK_US && guard.token() == token {
            return Some(Claim { read_at: before, until: after + left.as_micros() as u64, token });
        }
    }
}

impl Contender {
    async fn run(mut self) {
        while !self.task.is_to_finish() {
            self.take_one().await;
            sleep(self.task.ms(0, PAUSE_MAX_MS)).await;
        }
    }

    async fn take_one(&mut self) {
        let settings = &self.task.shared.settings;
        let (max_ttl_ms, contended, own_key) = (settings.max_ttl_ms, settings.contended_keys, settings.own_key);
        let key = if self.own { own_key } else { self.task.dice.random_range(0..contended) };
        let ttl = if self.own { Duration::from_millis(max_ttl_ms) } else { self.task.ms(TTL_MIN_MS, max_ttl_ms) };
        let extends = self.own || !self.task.once_in(3);
        let waits = !self.task.once_in(4);
        let mut options = Options::new().ttl(ttl).auto_extend(extends).node_timeout(ttl / 5).note("chaos");
        // One in four waits without a limit.
        if !self.task.once_in(4) {
            options = options.wait(self.task.ms(300, 4_000));
        }
        let name = key_name(key);
        let wants = if self.own { Aim::Alone } else { self.wants(key) };
        let since = now_us();
        let taken = wants.take(&self.task.shared.client, &name, &options, waits).await;
        let at = now_us();
        let answer = taken.as_ref().map_or_else(|error| format!("{:?}", error.kind()), |_| "held".to_owned());
        self.task.write(Line::Asked { at, key, waits, took_us: at - since, answer });
        match taken {
            Ok((guard, mode)) => self.hold(key, since, guard, mode, ttl).await,
            // A lock that is not free is not requested again in a busy loop.
            Err(error) if error.kind() == ErrorKind::Contended => sleep(self.task.ms(1, 100)).await,
            Err(_) => sleep(self.task.ms(20, 200)).await,
        }
    }

    /// Draws a mode. Of four locks, two are held alone, one is read and written, and one has permits, which an
    /// exclusive request drains.
    fn wants(&mut self, key: u32) -> Aim {
        match key % 4 {
            2 if !self.task.once_in(4) => Aim::ToRead,
            3 if !self.task.once_in(8) => Aim::Permit { limit: self.task.dice.random_range(2..=PERMITS_MAX) },
            _ => Aim::Alone,
        }
    }

    async fn hold(&mut self, key: u32, since: TimeUs, guard: Guard, mode: HeldAs, ttl: Duration) {
        let who = self.task.set_out();
        // A process that was stopped for long has no promise left to rely on.
        let Some(known) = claim(&guard) else { return };
        let held = Occurrence::Held { since, until: known.until, token: known.token, mode };
        self.task.write(Line::Event(Event { at: known.read_at, key, who, what: held }));
        let guard = Arc::new(guard);
        let (stop, stopped) = oneshot::channel();
        let observer = Observer { shared: Arc::clone(&self.task.shared), key, who, guard: Arc::clone(&guard), known };
        let observer = tokio::spawn(observer.run(stopped));
        let longest = if self.own { LONG_HOLD_MAX_MS } else { 2 * ttl.as_millis() as u64 };
        // The time is mostly short, so that locks change hands often. Sometimes it is longer than a node's fault.
        let part = self.task.dice.random_range(0.0_f64..1.0).powi(if self.own || self.task.once_in(4) { 1 } else { 6 });
        let end = now_us() + (longest as f64 * part * 1_000.0) as u64;
        while now_us() < end && !observer.is_finished() && !self.task.shared.is_to_finish() {
            self.at_work(key, (who, mode), &guard, ttl).await;
            sleep(self.task.ms(2, 30)).await;
        }
        let _ = stop.send(());
        let lost = observer.await.expect("the observer does not fail");
        if lost {
            // This holder does not check its lock first. The register refuses its access as soon as there is a newer
            // holder.
            if self.task.once_in(2) {
                sleep(self.task.ms(0, 300)).await;
                let token = guard.token();
                if let Some(number) = self.access(key, (who, mode), token, None).await
                    && mode != HeldAs::Shared
                {
                    self.access(key, (who, mode), token, Some(number + 1)).await;
                }
            }
            if guard.is_valid() {
                let what = format!("{who} had lost key {key}, and it is valid again");
                self.task.write(Line::Wrong { at: now_us(), what });
            }
            return;
        }
        self.task.write(Line::Event(Event { at: now_us(), key, who, what: Occurrence::Ended }));
        if let Some(guard) = Arc::into_inner(guard).filter(|_| !self.task.once_in(5)) {
            let released = guard.release().await;
            let answer = format!("{released:?}");
            let answer = answer.split(['(', ' ']).next().unwrap_or_default().to_owned();
            self.task.write(Line::Released { at: now_us(), answer });
        }
    }

    /// Works under the lock.
    async fn at_work(&mut self, key: u32, who: (Holder, HeldAs), guard: &Guard, ttl: Duration) {
        match self.task.dice.random_range(0..20) {
            // The critical section reads, pauses, and writes the number plus one. A reader must find the same number
            // twice.
            0..8 => {
                if !guard.is_valid() {
                    return;
                }
                let token = guard.token();
                let Some(number) = self.access(key, who, token, None).await else { return };
                if self.task.once_in(3) {
                    sleep(self.task.ms(0, 60)).await;
                }
                // The token is read at the time of the check. The lock may have ended long before the write arrives.
                let (valid, token) = (guard.is_valid(), guard.token());
                if self.task.once_in(12) {
                    sleep(ttl.mul_f64(self.task.dice.random_range(0.1..1.5))).await;
                }
                if valid {
                    let write = (who.1 != HeldAs::Shared).then_some(number + 1);
                    let again = self.access(key, who, token, write).await;
                    if write.is_none() && again.is_some_and(|again| again != number) {
                        let what = format!("{} read key {key} twice, and somebody wrote in between", who.0);
                        self.task.write(Line::Wrong { at: now_us(), what });
                    }
                }
            }
            8 => drop(guard.extend().await),
            9 => {
                if let Ok(inner) = guard.reenter().await {
                    inner.release().await;
                }
            }
            _ => {}
        }
    }

    async fn access(&mut self, key: u32, who: (Holder, HeldAs), token: u64, write: Option<u64>) -> Option<u64> {
        let (who, mode) = who;
        self.task.access(Access { key, who, token, mode, write }).await
    }
}

/// A task that records a holder's promises as they change, and the loss of the lock, while the holder works.
struct Observer {
    shared: Arc<Shared>,
    key: u32,
    who: Holder,
    guard: Arc<Guard>,
    known: Claim,
}

impl Observer {
    /// Runs until the lock is lost (returns true) or until `stopped` (returns false).
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) -> bool {
        let Self { key, who, .. } = self;
        let event = |at, what| Line::Event(Event { at, key, who, what });
        loop {
            let told = tokio::select! {
                biased;
                _ = &mut stopped => return false,
                _ = self.guard.lost() => true,
                () = sleep(OBSERVED_EVERY) => false,
            };
            match claim(&self.guard) {
                None => {
                    let at = now_us();
                    self.write(Line::Lost { at, key, who, until: self.known.until });
                    self.write(event(at, Occurrence::Ended));
                    return true;
                }
                Some(now) if now.token != self.known.token || now.until.abs_diff(self.known.until) > SAME_US => {
                    // The lock was extended while it was still valid, since otherwise it would be lost. So the
                    // extension happened before the old end.
                    let at = now.read_at.min(self.known.until - 1);
                    self.write(event(at, Occurrence::Extended { until: now.until, token: now.token }));
                    self.known = now;
                }
                Some(_) => {}
            }
            if told {
                let what = format!("{who} was told that key {key} is lost, and it is valid");
                self.write(Line::Wrong { at: now_us(), what });
            }
        }
    }

    fn write(&self, line: Line) {
        self.shared.write(line);
    }
}
