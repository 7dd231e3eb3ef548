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
mod gathering;
mod hearing;
mod owing;
mod waiting;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use palisade_core::quorum::NodeId;
use rand::RngExt;
use redis::io::tcp::TcpSettings;
use socket2::TcpKeepalive;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, info, warn};

use self::connecting::Link;
use self::gathering::Gathering;
use self::hearing::Hearing;
use crate::Error;
use crate::access::{Access, Way};
use crate::give_back::{Debt, Tally};
use crate::metrics::NodeMeter;
use crate::pace::Pace;
use crate::tracking::Tracked;
use crate::wire::NodeFailure;

/// How long a connection may take to be made, and the node to say who it is.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// First and longest pause between two attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Requests on their way to a node at a time: enough for some thousand a second over a slow network, few enough that the node
/// has answered the last of them a moment after the first.
pub const WINDOW: usize = 128;

/// Looks on their way to a node at a time, of these: extensions do not wait behind them.
const LOOKS: usize = WINDOW / 8;

/// A connection that waits is probed by the system after so long a silence, so often, so many times: one that is half open
/// is noticed within a quarter of a minute.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(3), 3);

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
    gathering: Gathering,
    looks: Semaphore,
    answers: Mutex<Answers>,
    /// When the request was sent that it did not answer in its time; `None`: it answers.
    silent_since: watch::Sender<Option<Instant>>,
    waiters: Mutex<Vec<Link>>,
    hearing: Hearing,
    /// Requests that wait on connections of their own.
    blocked: Tally,
    owed: Mutex<VecDeque<Arc<Debt>>>,
    /// How many these are.
    owes: watch::Sender<usize>,
    /// Of all nodes: one of them began to answer.
    answers_again: Arc<Notify>,
    /// Of all nodes: held locks that this one tells of.
    tracked: Arc<Tracked>,
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
        let meter = NodeMeter::new(way.name());
        Ok(Self {
            place: number - 1,
            way,
            state,
            broken: Arc::new(watch::Sender::new(0)),
            window: Arc::new(Semaphore::new(WINDOW)),
            gathering: Gathering::default(),
            looks: Semaphore::new(LOOKS),
            answers: Mutex::default(),
            silent_since: watch::Sender::new(None),
            waiters: Mutex::default(),
            hearing: Hearing::default(),
            blocked: Tally::default(),
            owed: Mutex::default(),
            owes: watch::Sender::new(0),
            answers_again: Arc::clone(answers_again),
            tracked: Arc::clone(tracked),
            meter,
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
                    let writer = self.gathering.writer(&link);
                    self.state.send_replace(State::Up(link));
                    self.meter_state();
                    self.answers_again.notify_waiters();
                    tokio::select! {
                        _ = broken.wait_for(|&broken| broken >= number) => {}
                        () = writer.run() => {}
                    }
                    warn!(node = self.name(), "the connection is given up");
                    self.state.send_replace(State::Down(NodeFailure::Broken("the connection broke".to_owned())));
                    self.meter_state();
                    drop(writer);
                    if made.elapsed() > BACK_OFF.1 {
                        pause = BACK_OFF.0;
                        continue;
                    }
                }
                Err(failure) => {
                    debug!(node = self.name(), %failure, "no connection");
                    let is_lasting = failure.is_lasting();
                    self.state.send_replace(State::Down(failure));
                    self.meter_state();
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
