//! One node: its connections, who it is, and what it answers.
//!
//! One connection carries all requests; it is made, watched and made again by a task of its own, so that no caller waits for
//! a node that is down. Requests that wait in the node's queues have connections of their own, or everything behind them
//! would wait too.
//!
//! So many requests are on their way at a time; the others wait for their turn here, and the time that the node is given begins
//! when a request is sent. A node that did not answer in its time is *silent* until it answers again: it is not asked meanwhile,
//! and costs nobody that time once more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use palisade_core::quorum::NodeId;
use rand::RngExt;
use redis::aio::{MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisError, Value};
use socket2::TcpKeepalive;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::access::{Access, Unreached, Way};
use crate::give_back::{Debt, is_final};
use crate::pace::{Given, Pace};
use crate::tracking::Tracked;
use crate::wire::{self, Lease, NodeFailure};
use crate::{Error, clock};

/// How long a connection may take to be made, and the node to say who it is.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// First and longest pause between two attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A connection on which requests have gone unanswered for so long is given up: it may be half open.
const SILENCE: Duration = Duration::from_millis(500);

/// Requests on their way to a node at a time: enough for some thousand a second over a slow network, few enough that the node
/// has answered the last of them a moment after the first.
pub const WINDOW: usize = 128;

/// Looks on their way to a node at a time, of these: extensions do not wait behind them.
const LOOKS: usize = WINDOW / 8;

/// A timer that fires later than this after its time tells of this process, not of the node: the machine was busy, or the process
/// was stopped. The node's answer may be there, unread.
const OVERSLEPT: Duration = Duration::from_millis(10);

/// So often the node is given its time once more for that.
const OVERSLEPT_TIMES: u32 = 5;

/// Locks that are still to be given back to a node at most: beyond, their leases end by themselves.
const OWED_MAX: usize = 16_384;

/// So many of them are given back at a time, and so long after an attempt that failed.
const PAID_AT_A_TIME: usize = WINDOW / 4;
const PAID_AGAIN: Duration = Duration::from_millis(100);

/// The contract that this client speaks, as LOCK.NODE numbers it.
const PROTOCOL: u64 = 1;

/// The word of LOCK.NODE for a node that takes a note with LOCK.WAIT, and how many wait behind a request.
const BEHIND: &str = "behind";

/// A connection that waits is probed by the system after so long a silence, so often, so many times: one that is half open
/// is noticed within a quarter of a minute.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(3), 3);

/// Idle connections for waiting that are kept.
const IDLE_WAITERS: usize = 16;

/// A node of the list.
#[derive(Debug)]
pub struct Node {
    /// Its place in the list, from 0.
    place: usize,
    way: Way,
    state: watch::Sender<State>,
    /// The number of the last connection that was found broken.
    broken: Arc<watch::Sender<u64>>,
    window: Arc<Semaphore>,
    looks: Semaphore,
    answers: Mutex<Answers>,
    /// When the request was sent that it did not answer in its time; `None`: it answers.
    silent_since: watch::Sender<Option<Instant>>,
    waiters: Mutex<Vec<Link>>,
    owed: Mutex<VecDeque<Arc<Debt>>>,
    /// How many these are.
    owes: watch::Sender<usize>,
    /// Of all nodes: one of them began to answer.
    answers_again: Arc<Notify>,
    /// Of all nodes: held locks that this one tells of.
    tracked: Arc<Tracked>,
}

/// What its answers tell of it.
#[derive(Debug, Default)]
struct Answers {
    pace: Pace,
    last: Option<Instant>,
}

/// A request that is let through: it can be sent.
struct Admitted {
    link: Link,
    permit: OwnedSemaphorePermit,
}

/// A request under way.
type Request = BoxFuture<'static, Result<Value, RedisError>>;

/// A connection, and which server is at its other end.
#[derive(Clone, Debug)]
pub struct Link {
    connection: MultiplexedConnection,
    /// Connections of this node are numbered from 1.
    number: u64,
    /// The server.
    pub id: NodeId,
    /// It tells over this connection when a key changes that is looked at.
    tracks: bool,
    /// It takes a note with LOCK.WAIT, and how many wait behind a request.
    knows_behind: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// Never connected yet.
    Connecting,
    Up(Link),
    Down(NodeFailure),
}

impl Node {
    /// A node at `address`, the one with this number in the list, as [`Way::new`] takes them. Nothing is connected yet.
    pub fn new(
        number: usize,
        address: &str,
        access: &Arc<Access>,
        answers_again: &Arc<Notify>,
        tracked: &Arc<Tracked>,
    ) -> Result<Self, Error> {
        let (time, interval, retries) = KEEPALIVE;
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(retries);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let way = Way::new(number, address, access)?.with(|info| info.set_tcp_settings(tcp));
        let state = watch::Sender::new(State::Connecting);
        Ok(Self {
            place: number - 1,
            way,
            state,
            broken: Arc::new(watch::Sender::new(0)),
            window: Arc::new(Semaphore::new(WINDOW)),
            looks: Semaphore::new(LOOKS),
            answers: Mutex::default(),
            silent_since: watch::Sender::new(None),
            waiters: Mutex::default(),
            owed: Mutex::default(),
            owes: watch::Sender::new(0),
            answers_again: Arc::clone(answers_again),
            tracked: Arc::clone(tracked),
        })
    }

    /// Its address, without passwords.
    pub fn name(&self) -> &str {
        self.way.name()
    }

    /// Keeps a connection up, for ever.
    pub async fn stay_connected(&self) {
        let mut pause = BACK_OFF.0;
        let mut broken = self.broken.subscribe();
        for number in 1.. {
            match self.connect(number).await {
                Ok(link) => {
                    info!(node = self.name(), id = format!("{:032x}", link.id.0), "connected");
                    let made = Instant::now();
                    self.silent_since.send_replace(None);
                    self.state.send_replace(State::Up(link));
                    self.answers_again.notify_waiters();
                    let _ = broken.wait_for(|&broken| broken >= number).await;
                    warn!(node = self.name(), "the connection is given up");
                    self.state.send_replace(State::Down(NodeFailure::Broken("the connection broke".to_owned())));
                    if made.elapsed() > BACK_OFF.1 {
                        pause = BACK_OFF.0;
                        continue;
                    }
                }
                Err(failure) => {
                    debug!(node = self.name(), %failure, "no connection");
                    let is_lasting = failure.is_lasting();
                    self.state.send_replace(State::Down(failure));
                    if is_lasting {
                        self.answers_again.notify_waiters();
                    }
                }
            }
            // Not all clients at the same moment, nor one again and again.
            let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
            sleep(jittered).await;
            pause = (pause * 2).min(BACK_OFF.1);
        }
    }

    /// Which server it is, as soon as it is connected.
    pub async fn connected(&self, by: Instant) -> Result<NodeId, NodeFailure> {
        self.link(by).await.map(|link| link.id)
    }

    /// Sends `command`, in its turn, and returns what the node answers in the time it is given; with the server that answered.
    /// If it is `about` a lease, that is noted as sent there when it is.
    pub async fn ask(
        self: &Arc<Self>,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
    ) -> (Option<NodeId>, Result<Value, NodeFailure>) {
        let began = Instant::now();
        let Admitted { link, permit } = match self.admit(given, began).await {
            Ok(admitted) => admitted,
            Err(failure) => return (None, Err(failure)),
        };
        about.inspect(|lease| lease.goes_to(self.place));
        let (id, number, mut connection) = (link.id, link.number, link.connection);
        let command = command.clone();
        // If that is answered later than the node's time allows, it is heard all the same.
        let request: Request = Box::pin(async move { connection.send_packed_command(&command).await });
        (Some(id), self.send(number, request, permit, given, began).await)
    }

    /// The connection over which it tells when a key changes that is looked at; `None`: it does not, or there is none.
    pub fn tracks_over(&self) -> Option<u64> {
        match &*self.state.borrow() {
            State::Up(link) if link.tracks => Some(link.number),
            _ => None,
        }
    }

    /// Sends `command`, which reads a key, as [`Node::ask`]; over that connection the node tells when the key changes next.
    pub async fn look(
        self: &Arc<Self>,
        command: Cmd,
        given: Given,
    ) -> (Option<NodeId>, u64, Result<Value, NodeFailure>) {
        // It is never closed, so that cannot fail.
        let _turn = self.looks.acquire().await.ok();
        let began = Instant::now();
        let Admitted { link, permit } = match self.admit(given, began).await {
            Ok(admitted) => admitted,
            Err(failure) => return (None, 0, Err(failure)),
        };
        let (id, number, mut connection) = (link.id, link.number, link.connection);
        // The server keeps in mind what the next command reads.
        let mut both = redis::pipe();
        both.cmd("CLIENT").arg("CACHING").arg("YES").add_command(command);
        let request: Request = Box::pin(async move {
            let replies = connection.send_packed_commands(&both, 1, 1).await?;
            Ok(replies.into_iter().next().unwrap_or(Value::Nil))
        });
        (Some(id), number, self.send(number, request, permit, given, began).await)
    }

    /// Waits until a request can be sent: for the very first connection, and for its turn; but not for a node that is down, or
    /// that has been silent for longer than it would be given.
    async fn admit(&self, given: Given, began: Instant) -> Result<Admitted, NodeFailure> {
        let connect_by = match given {
            Given::Exactly(time) => began + time,
            Given::Within { .. } => began + CONNECT_TIMEOUT,
        };
        loop {
            self.link(connect_by).await?;
            if let Some(since) = *self.silent_since.borrow()
                && since + given.least() <= Instant::now()
            {
                let silent = since.elapsed().as_millis();
                return Err(NodeFailure::Unreachable(format!("it has not answered for {silent} ms")));
            }
            let permit = tokio::select! {
                biased;
                permit = Arc::clone(&self.window).acquire_owned() => permit,
                () = self.changed_for_worse(given) => continue,
            };
            // It may be another connection than the one there was before the wait.
            let link = self.link(connect_by).await?;
            let Ok(permit) = permit else { return Err(NodeFailure::Unreachable("the client is closed".to_owned())) };
            return Ok(Admitted { link, permit });
        }
    }

    /// Returns when it does not make sense to wait for a turn any more.
    async fn changed_for_worse(&self, given: Given) {
        let (mut states, mut silent) = (self.state.subscribe(), self.silent_since.subscribe());
        loop {
            if matches!(*states.borrow_and_update(), State::Down(_)) {
                return;
            }
            let enough = silent.borrow_and_update().map(|since| since + given.least());
            tokio::select! {
                () = sleep_until(enough.unwrap_or_else(Instant::now)), if enough.is_some() => return,
                _ = states.changed() => {}
                _ = silent.changed() => {}
            }
        }
    }

    async fn send(
        self: &Arc<Self>,
        number: u64,
        mut request: Request,
        permit: OwnedSemaphorePermit,
        given: Given,
        began: Instant,
    ) -> Result<Value, NodeFailure> {
        let sent = Instant::now();
        let mut counted_from = match given {
            Given::Exactly(_) => began,
            Given::Within { .. } => sent,
        };
        let mut overslept = 0;
        loop {
            let due = self.due(counted_from, given);
            tokio::select! {
                biased;
                reply = &mut request => return self.heard(number, sent, reply),
                () = sleep_until(due) => {}
            }
            let now = Instant::now();
            if now > due + OVERSLEPT && overslept < OVERSLEPT_TIMES {
                (counted_from, overslept) = (now, overslept + 1);
            } else if self.due(counted_from, given) <= now {
                break;
            }
        }
        self.is_silent(sent);
        tokio::spawn(Arc::clone(self).listen_on(request, permit, number, sent));
        Err(NodeFailure::Silent)
    }

    /// When a request that was sent then is overdue. As long as the node answers others, which were sent before, it is at work.
    fn due(&self, sent: Instant, given: Given) -> Instant {
        let answers = self.answers();
        let allowance = answers.pace.allowance(given);
        match given {
            Given::Exactly(_) => sent + allowance,
            Given::Within { .. } => {
                (answers.last.map_or(sent, |last| last.max(sent)) + allowance).min(sent + given.most())
            }
        }
    }

    /// It did not answer what was sent then in its time.
    fn is_silent(&self, sent: Instant) {
        let mut answers = self.answers();
        if answers.last.is_some_and(|last| last > sent) {
            // It answers, and is only slow.
            return;
        }
        answers.pace.was_silent();
        drop(answers);
        self.silent_since.send_if_modified(|since| since.is_none() && since.replace(sent).is_none());
    }

    /// Hears an answer that comes late: then the node is not silent any more. A connection on which none comes is given up.
    async fn listen_on(
        self: Arc<Self>,
        mut request: Request,
        _permit: OwnedSemaphorePermit,
        number: u64,
        sent: Instant,
    ) {
        let mut overslept = 0;
        loop {
            let last = self.answers().last.map_or(sent, |last| last.max(sent));
            let due = (last + SILENCE).max(Instant::now() + OVERSLEPT);
            tokio::select! {
                biased;
                reply = &mut request => {
                    let _ = self.heard(number, sent, reply);
                    return;
                }
                () = sleep_until(due) => {}
            }
            if Instant::now() > due + OVERSLEPT && overslept < OVERSLEPT_TIMES {
                overslept += 1;
            } else if self.answers().last.is_none_or(|heard| heard <= last) {
                return give_up(&self.broken, number);
            }
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it can be told for whom a request waits, as far as that is known.
    pub fn knows_behind(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(link) if link.knows_behind)
    }

    /// Sends `command`, which may wait in the node's queue, on a connection of its own; to be answered within `patience`.
    /// Dropped meanwhile, the connection is closed, and with it the request leaves the queue.
    pub async fn ask_waiting(
        &self,
        command: &Cmd,
        patience: Duration,
        about: Option<&Lease>,
    ) -> (Option<NodeId>, Result<Value, NodeFailure>) {
        // Who waits can wait for a connection, but not for a node that is known to be down.
        let connect_by = Instant::now() + CONNECT_TIMEOUT.min(patience);
        if let Err(failure) = self.link(connect_by).await {
            return (None, Err(failure));
        }
        about.inspect(|lease| lease.goes_to(self.place));
        let idle = self.waiters.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(link) = idle {
            let (id, reply) = self.ask_on(link, command, patience).await;
            // One that was idle may have been closed meanwhile.
            if !matches!(reply, Err(NodeFailure::Broken(_))) {
                return (id, reply);
            }
        }
        match timeout_at(connect_by, self.connect(0)).await.unwrap_or(Err(NodeFailure::Silent)) {
            Ok(link) => self.ask_on(link, command, patience).await,
            Err(failure) => (None, Err(failure)),
        }
    }

    async fn ask_on(
        &self,
        mut link: Link,
        command: &Cmd,
        patience: Duration,
    ) -> (Option<NodeId>, Result<Value, NodeFailure>) {
        let mut states = self.state.subscribe();
        let reply = tokio::select! {
            reply = timeout(patience, link.connection.send_packed_command(command)) => match reply {
                Ok(reply) => NodeFailure::or_value(reply),
                Err(_) => Err(NodeFailure::Silent),
            },
            // The other connection to the node broke: this one may be half open.
            _ = states.wait_for(|state| matches!(state, State::Down(_))) => {
                Err(NodeFailure::Unreachable("the node is down".to_owned()))
            }
        };
        let id = link.id;
        if matches!(reply, Ok(_) | Err(NodeFailure::Refused(..))) {
            let mut idle = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE_WAITERS {
                idle.push(link);
            }
        }
        (Some(id), reply)
    }

    fn heard(&self, number: u64, sent: Instant, reply: Result<Value, RedisError>) -> Result<Value, NodeFailure> {
        let answer = NodeFailure::or_value(reply);
        if answer.as_ref().is_err_and(|failure| !failure.is_answer()) {
            give_up(&self.broken, number);
            return answer;
        }
        let now = Instant::now();
        let mut answers = self.answers();
        answers.pace.heard_after(now - sent, now);
        answers.last = Some(now);
        drop(answers);
        if self.silent_since.send_if_modified(|since| since.take().is_some()) {
            self.answers_again.notify_waiters();
        }
        answer
    }

    /// Whether it makes sense to ask it; also where it can be told at once why it never will.
    pub fn is_worth_asking(&self) -> bool {
        let can = match &*self.state.borrow() {
            State::Connecting | State::Up(_) => true,
            State::Down(failure) => failure.is_lasting(),
        };
        can && self.silent_since.borrow().is_none()
    }

    /// `debt` is to be given back here as soon as the node answers.
    pub fn owe(&self, debt: &Arc<Debt>) {
        let mut owed = self.outstanding_ttl();
        if owed.len() < OWED_MAX {
            owed.push_back(Arc::clone(debt));
        }
        self.owes.send_replace(owed.len());
    }

    /// What is still to be given back here.
    pub fn outstanding_ttl(&self) -> MutexGuard<'_, VecDeque<Arc<Debt>>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when nothing is to be given back here any more, or the node is down: then that may take long.
    pub async fn is_paid(&self) {
        let (mut owes, mut states) = (self.owes.subscribe(), self.state.subscribe());
        tokio::select! {
            _ = owes.wait_for(|count| *count == 0) => {}
            _ = states.wait_for(|state| matches!(state, State::Down(_))) => {}
        }
    }

    /// Gives back what is owed whenever the node answers, for ever.
    pub async fn pay(self: Arc<Self>) {
        let mut owes = self.owes.subscribe();
        loop {
            let _ = owes.wait_for(|count| *count > 0).await;
            let mut states = self.state.subscribe();
            let mut silent = self.silent_since.subscribe();
            let ends = self.outstanding_ttl().front().map_or(clock::boot_now(), |debt| debt.until);
            tokio::select! {
                // By then the first of them has ended by itself.
                () = sleep(clock::until(ends)) => {}
                () = async {
                    let _ = states.wait_for(|state| matches!(state, State::Up(_))).await;
                    let _ = silent.wait_for(Option::is_none).await;
                } => {}
            }
            let now = clock::boot_now();
            let batch: Vec<_> = self.outstanding_ttl().iter().take(PAID_AT_A_TIME).cloned().collect();
            let release = async |debt: &Arc<Debt>| {
                if now >= debt.until {
                    return true;
                }
                let reply = self
                    .ask(&debt.command, Given::Within { least: CONNECT_TIMEOUT, most: CONNECT_TIMEOUT }, None)
                    .await
                    .1;
                if reply.is_ok() {
                    debt.is_freed();
                }
                is_final(&reply)
            };
            let paid = join_all(batch.iter().map(release)).await;
            let all_paid = paid.iter().all(|paid| *paid);
            {
                let mut owed = self.outstanding_ttl();
                owed.drain(..batch.len());
                batch.into_iter().zip(paid).filter(|(_, paid)| !paid).for_each(|(debt, _)| owed.push_back(debt));
                self.owes.send_replace(owed.len());
            }
            if !all_paid {
                let jittered = PAID_AGAIN.mul_f64(rand::rng().random_range(0.5..1.0));
                sleep(jittered).await;
            }
        }
    }

    /// The connection; waits for the very first one, and for no other.
    async fn link(&self, deadline: Instant) -> Result<Link, NodeFailure> {
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
            Ok(Ok(state)) => known(&state).unwrap_or(Err(NodeFailure::Silent)),
            _ => Err(NodeFailure::Unreachable("no connection yet".to_owned())),
        }
    }

    /// A new connection to a server that can be a node.
    async fn connect(&self, number: u64) -> Result<Link, NodeFailure> {
        let (broken, tracked, place) = (Arc::clone(&self.broken), Arc::clone(&self.tracked), self.place);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WINDOW)
            .set_push_sender(move |push: PushInfo| {
                match push.kind {
                    // The server hung up: noticed at once, not by the next request.
                    PushKind::Disconnection => give_up(&broken, number),
                    PushKind::Invalidate => tracked.changed(place, &push.data),
                    _ => {}
                }
                Ok::<(), SendError>(())
            });
        let unreachable = |why: String| NodeFailure::Unreachable(why);
        let unfit = |why: String| NodeFailure::Unfit(why);
        let connected = async {
            let mut connection = self.way.connect(config).await.map_err(|why| match why {
                Unreached::Access(why) => unfit(why),
                Unreached::Server(error) => {
                    let why = format!("it cannot be reached: {error}");
                    if NodeFailure::of(&error).is_lasting() || error.kind() == redis::ErrorKind::AuthenticationFailed {
                        unfit(why)
                    } else {
                        unreachable(why)
                    }
                }
            })?;
            let asked = Instant::now();
            let node = connection.send_packed_command(&redis::cmd("LOCK.NODE")).await;
            let node = NodeFailure::or_value(node).map_err(|failure| match failure {
                NodeFailure::Refused(code, text) if code == "ERR" && text.contains("unknown command") => {
                    unfit("the server has no lock module: start it with --loadmodule libpalisade.so".to_owned())
                }
                failure if failure.is_lasting() => unfit(failure.to_string()),
                failure => unreachable(failure.to_string()),
            })?;
            let took = asked.elapsed();
            let id = wire::node_id(&node).ok_or_else(|| unfit("its LOCK.NODE has no id".to_owned()))?;
            let protocol = wire::number(&node, "protocol").unwrap_or(0);
            if protocol != PROTOCOL {
                return Err(unfit(format!(
                    "its lock module speaks protocol {protocol}, this client {PROTOCOL}: upgrade the older of them"
                )));
            }
            if wire::text(&node, "role").as_deref() != Some("master") {
                return Err(unreachable("it is a replica: give the address of a master".to_owned()));
            }
            self.answers().pace.heard_after(took, Instant::now());
            // Of keys that are looked at, and not of what this connection changes itself. Those that wait do not look.
            let mut tracking = redis::cmd("CLIENT");
            tracking.arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
            let tracks = number > 0 && matches!(connection.send_packed_command(&tracking).await, Ok(Value::Okay));
            let features = wire::text(&node, "features").unwrap_or_default();
            let knows_behind = features.split(' ').any(|feature| feature == BEHIND);
            Ok(Link { connection, number, id, tracks, knows_behind })
        };
        let limit = CONNECT_TIMEOUT;
        timeout(limit, connected).await.unwrap_or_else(|_| Err(unreachable("it does not answer".to_owned())))
    }
}

/// The connection with this number is of no use any more: another one is made.
fn give_up(broken: &watch::Sender<u64>, number: u64) {
    broken.send_if_modified(|last| {
        let news = number > *last;
        *last = number.max(*last);
        news
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn passwords_are_not_shown() {
        for address in
            ["http://user:secret@host", "redis://user:secret", "unix:///x?db=a&pass=secret", "rediss//:secret@host"]
        {
            if let Err(error) = Node::new(3, address, &Arc::default(), &Arc::default(), &Arc::new(Tracked::new(3))) {
                assert_eq!(error.kind(), ErrorKind::Configuration);
                assert!(error.to_string().contains("number 3") && !error.to_string().contains("secret"), "{error}");
            }
        }
        let builder = crate::Client::builder().node("redis://user:secret@host");
        assert!(!format!("{builder:?} {:?}", builder.clone().build().unwrap()).contains("secret"));
    }
}
