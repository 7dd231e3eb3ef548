//! Requests that wait in the node's queues without a connection each: one more connection, the listener, receives the
//! outcome of all.
//!
//! The listener is opened when first needed, and closed when no request has waited for a while. If it breaks, the node
//! removes its requests from the queues, and their callers get an error and ask again with their tickets.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use palisade_quorum::NodeId;
use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use super::link::Waiter;
use super::listener::{About, Last, Listener, NAME_BYTES, OutcomeReceiver};
use super::{Node, State};
use crate::net::bounds::{CONNECT_TIMEOUT, LATE, UNHURRIED};
use crate::net::lease::Lease;
use crate::net::line::{OVERSLEPT, OVERSLEPT_TIMES};
use crate::net::wire;
use crate::values::failure::Why;

/// Length of one LOCK.HEAR, by which the listener waits for outcomes. A half-open listener is noticed [`LATE`] after
/// that.
const HEARD: Duration = Duration::from_secs(5);

/// Number of LOCK.HEARs that the node has at a time, so that it has the next one when it answers one.
const ASKED_AHEAD: usize = 2;

/// Pause before another listener is tried after a failure.
const AGAIN: Duration = Duration::from_millis(200);

/// Grace period of an abandoned request, whose answer may be on the way. After that the request is withdrawn.
const SETTLED: Duration = Duration::from_millis(100);

/// The error code of a node that does not know the listener's name.
const NO_LISTENER: &str = "NOLISTENER";

/// A caller that waits for the outcome of its LOCK.WAIT over the listener. Dropping this withdraws the request.
struct Waiting {
    node: Arc<Node>,
    listener: Arc<Listener>,
    about: About,
    number: u64,
    /// Receives the outcome; `None` once it has arrived.
    told: Option<OutcomeReceiver>,
    /// True if the node may have the request in its queue.
    is_sent: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Self { node, listener, about, number, told, is_sent } = self;
        node.hearing.waits.fetch_sub(1, Ordering::Relaxed);
        listener.waiters().idle_since = Instant::now();
        // Outside of a runtime nothing can be sent. Then the client's thread has ended, and the listener with it.
        match (told.take(), Handle::try_current()) {
            (Some(told), Ok(runtime)) if *is_sent => {
                runtime.spawn(stop_waiting(Arc::clone(node), Arc::clone(listener), about.clone(), *number, told));
            }
            (Some(_), _) => listener.forget(about, *number),
            (None, _) => {}
        }
    }
}

/// Removes an abandoned request from the queue, unless it has left for another reason, such as a grant or a release.
/// Even if this command arrives late, it does not affect a lock that the owner holds.
async fn stop_waiting(node: Arc<Node>, listener: Arc<Listener>, about: About, number: u64, told: OutcomeReceiver) {
    if timeout(SETTLED, told).await.is_err() {
        listener.forget(&about, number);
        let command = wire::wait_no_more(&about.0, &about.1, &listener.name);
        let _ = node.ask(&command, UNHURRIED, None).await;
    }
}

impl Node {
    /// Sends `command`, a LOCK.WAIT of `lease`, to be answered within `patience`: over the listener if the node
    /// supports that, otherwise on a connection of its own. If the future is dropped, the request leaves the queue.
    pub async fn ask_to_wait(
        self: &Arc<Self>,
        command: &Cmd,
        lease: &Lease,
        patience: Duration,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        let due = Instant::now() + patience;
        let number = match self.link(Instant::now() + CONNECT_TIMEOUT.min(patience)).await {
            Ok(link) if link.hears => link.number,
            Ok(_) => return self.ask_waiting(command, patience, Some(lease), false).await,
            Err(failure) => return (None, Err(failure)),
        };
        // If the listener has ended without the client's knowledge, a new one is tried once.
        for _ in 0..2 {
            let listener = match timeout_at(due, self.listener(number)).await {
                Ok(Ok(Some(listener))) => listener,
                Ok(Ok(None)) => return self.ask_waiting(command, patience, Some(lease), false).await,
                Ok(Err(failure)) => return (None, Err(failure)),
                Err(_) => return (None, Err(Why::Silent)),
            };
            let (id, reply) = self.ask_heard(&listener, command, lease, due).await;
            match reply {
                Err(why) if why.code() == Some(NO_LISTENER) => listener.end(),
                reply => return (id, reply),
            }
        }
        (None, Err(Why::Silent))
    }

    /// Returns the number of this client's requests that wait at the node through its listener.
    pub fn listener_waits(&self) -> usize {
        self.hearing.waits.load(Ordering::Relaxed)
    }

    /// Returns whether requests can wait at the node without a connection each, as far as that is known.
    pub fn may_listen(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(link) if link.hears)
    }

    async fn ask_heard(
        self: &Arc<Self>,
        listener: &Arc<Listener>,
        command: &Cmd,
        lease: &Lease,
        due: Instant,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        let broken = || Why::Broken("the connection that hears of its waits broke".to_owned());
        // This has to come before the sending, because the listener can receive the outcome before the node's answer
        // arrives here.
        let Some(mut waiting) = self.wait_for(listener, lease) else { return (None, Err(broken())) };
        let mut command = command.clone();
        command.arg("HEARD").arg(&listener.name);
        let (id, reply) = {
            // The semaphore is never closed, so this cannot fail.
            let _turn = self.hearing.asks.acquire().await.ok();
            waiting.is_sent = true;
            self.ask(&command, UNHURRIED, Some(lease)).await
        };
        if !reply.as_ref().is_ok_and(wire::is_waiting) {
            // A node that did not answer in time may have the request in its queue.
            waiting.is_sent = matches!(reply, Err(Why::Silent));
            return (id, reply);
        }
        let Some(told) = &mut waiting.told else { return (id, Err(broken())) };
        let told = match timeout_at(due, told).await {
            Ok(told) => {
                waiting.told = None;
                told.unwrap_or_else(|_| Err(broken()))
            }
            Err(_) => Err(Why::Silent),
        };
        (id, told)
    }

    /// Begins to wait for the outcome of a LOCK.WAIT of `lease` over `listener`; `None` if the listener has ended.
    fn wait_for(self: &Arc<Self>, listener: &Arc<Listener>, lease: &Lease) -> Option<Waiting> {
        let about = (Box::from(&*lease.key), Box::from(&*lease.owner));
        let (number, told) = listener.add(&about)?;
        self.hearing.waits.fetch_add(1, Ordering::Relaxed);
        let (node, listener) = (Arc::clone(self), Arc::clone(listener));
        Some(Waiting { node, listener, about, number, told: Some(told), is_sent: false })
    }

    /// Returns the listener, opening one if there is none; `None` if the node does not let this client listen. `number`
    /// is that of the connection for requests.
    async fn listener(&self, number: u64) -> Result<Option<Arc<Listener>>, Why> {
        let mut last = self.hearing.last.lock().await;
        if let Some(listener) = last.listener.as_ref().filter(|listener| listener.waiters().is_open) {
            return Ok(Some(Arc::clone(listener)));
        }
        if last.refused_on == number {
            return Ok(None);
        }
        if let Some((_, failure)) = last.failed.as_ref().filter(|(when, _)| when.elapsed() < AGAIN) {
            return Err(failure.clone());
        }
        match self.begin_to_listen().await {
            Ok(listener) => {
                *last = Last { listener: Some(Arc::clone(&listener)), ..Last::default() };
                Ok(Some(listener))
            }
            // The node knows the command, but this user may not use it.
            Err(failure) if failure.is_answer() && failure.is_lasting() => {
                debug!(node = self.name(), %failure, "each wait has a connection of its own");
                *last = Last { refused_on: number, ..Last::default() };
                Ok(None)
            }
            Err(failure) => {
                last.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    async fn begin_to_listen(&self) -> Result<Arc<Listener>, Why> {
        let mut link = self.connect_to_wait().await?;
        let name: [u8; NAME_BYTES] = rand::random();
        // Once this is answered, the node knows the listener's name.
        let hear = wire::hear(&name, 0);
        let first = timeout(CONNECT_TIMEOUT, link.connection.send_packed_command(&hear)).await;
        Why::or_value(first.map_err(|_| Why::late())?)?;
        debug!(node = self.name(), "listens");
        let listener = Arc::new(Listener::new(name));
        tokio::spawn(listen(Arc::clone(&listener), link, self.state.subscribe()));
        Ok(listener)
    }
}

/// Receives outcomes until no caller waits for one, or none can be received.
async fn listen(listener: Arc<Listener>, link: Waiter, mut states: watch::Receiver<State>) {
    let hear = wire::hear(&listener.name, HEARD.as_millis() as u64);
    let ask = || {
        let (mut connection, hear) = (link.connection.clone(), hear.clone());
        async move { Why::or_value(connection.send_packed_command(&hear).await) }
    };
    let mut asked: FuturesOrdered<_> = (0..ASKED_AHEAD).map(|_| ask()).collect();
    let mut overslept = 0;
    while !listener.end_if_idle() {
        let due = Instant::now() + HEARD + LATE;
        let reply = tokio::select! {
            biased;
            reply = timeout_at(due, asked.next()) => reply,
            // The other connection to the node broke, so this one may be half open.
            _ = states.wait_for(|state| matches!(state, State::Down(_))) => break,
        };
        match reply {
            Ok(Some(Ok(news))) => {
                overslept = 0;
                let Some(news) = wire::news(news) else { break };
                news.into_iter().for_each(|news| listener.deliver(news));
                // Lets the callers that received an outcome run first: the node already has another LOCK.HEAR to
                // answer.
                yield_now().await;
                asked.push_back(ask());
            }
            Err(_) if Instant::now() > due + OVERSLEPT && overslept < OVERSLEPT_TIMES => overslept += 1,
            _ => break,
        }
    }
    listener.end();
    debug!("listens no more");
}
