//! Serves the connection of a node: writes requests, delivers answers, and checks time limits.

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{PushKind, Value};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::inbox::{By, Sink};
use super::link::{Link, give_up};
use super::{Node, Whereabouts};
use crate::net::bounds::BROKE;
use crate::net::line::{Arrived, AwaitedEvents, Checked, Claim, Readiness, STAND_BY};
use crate::values::clock;
use crate::values::failure::Why;

/// A connection in use, on the client's thread. When this is dropped, its callers get the error that the connection
/// broke.
pub(super) struct Talking {
    node: Arc<Node>,
    link: Link,
}

impl Talking {
    pub fn new(node: &Arc<Node>, link: &Link) -> Self {
        Self { node: Arc::clone(node), link: link.clone() }
    }

    /// Serves the connection until it breaks.
    pub async fn run(&self) {
        let failure = self.talk(|| false).await.err();
        tracing::debug!(node = self.node.name(), failure = failure.map(tracing::field::display), "it broke");
    }

    /// Refuses new requests, and serves the connection until those that were sent are answered.
    pub async fn finish(self) {
        let by = self.link.by();
        self.link.line.close().into_iter().for_each(|sink| self.node.cut(sink, &by));
        let _ = self.talk(|| self.link.line.under_way() == 0).await;
    }

    async fn talk(&self, is_over: impl Fn() -> bool) -> Result<(), Why> {
        let (node, link, line) = (&self.node, &self.link, &self.link.line);
        let mut timer = pin!(sleep_until(Instant::now()));
        let (mut socket, mut arrived) = (None, vec![]);
        while !is_over() {
            if let Some(failure) = line.failure() {
                return Err(failure);
            }
            let AwaitedEvents { check_at, is_blocked, is_followed } = line.awaited_events();
            // If a follower, a task in a caller's runtime, serves the connection, a registered socket would wake this
            // thread at each answer for nothing.
            match (is_followed, &socket) {
                (true, _) => socket = None,
                (false, None) => socket = Some(line.readiness()?),
                (false, Some(_)) => {}
            }
            let at = if is_followed { Some(next_look()) } else { check_at };
            if let Some(at) = at
                && (timer.is_elapsed() || at < timer.deadline())
            {
                timer.as_mut().reset(at);
            }
            tokio::select! {
                biased;
                ready = ready(socket.as_ref(), Readiness::readable) => {
                    ready?;
                    node.read_messages(link, &mut arrived)?;
                }
                ready = ready(socket.as_ref(), Readiness::writable), if is_blocked => {
                    ready?;
                    line.flush(clock::now())?;
                }
                () = line.wait_for_work() => {
                    // Lets other tasks add requests, which are then written together with this one.
                    yield_now().await;
                    line.flush(clock::now())?;
                }
                () = &mut timer, if at.is_some() => {
                    if is_followed {
                        node.stand_by(link, &mut arrived)?;
                    }
                    if check_at.is_some_and(|at| at <= clock::now()) {
                        node.mind(link, &mut arrived)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the next moment at which the client's thread checks all connections that tasks in callers' runtimes serve.
fn next_look() -> Instant {
    static FIRST: LazyLock<Instant> = LazyLock::new(clock::now);
    let now = clock::now();
    let looks = (now - *FIRST).as_micros() / STAND_BY.as_micros() + 1;
    *FIRST + STAND_BY * u32::try_from(looks).unwrap_or(u32::MAX)
}

/// Waits until `socket` is ready; never returns if there is none.
async fn ready<'a, F>(socket: Option<&'a Readiness>, wait: impl FnOnce(&'a Readiness) -> F) -> Result<(), Why>
where
    F: Future<Output = std::io::Result<()>>,
{
    match socket {
        Some(socket) => wait(socket).await.map_err(|why| Why::Broken(why.to_string())),
        None => std::future::pending().await,
    }
}

/// Serves a connection in the runtime of this task, as long as `claim` gives it the right to.
pub(super) async fn follow(node: Arc<Node>, link: Link, claim: Claim<Sink>) {
    let serve = async {
        let (line, socket, mut arrived) = (&link.line, link.line.readiness()?, vec![]);
        while claim.is_current() {
            let AwaitedEvents { is_blocked, .. } = line.awaited_events();
            tokio::select! {
                biased;
                ready = ready(Some(&socket), Readiness::readable) => {
                    ready?;
                    claim.mark_running();
                    node.read_messages(&link, &mut arrived)?;
                }
                ready = ready(Some(&socket), Readiness::writable), if is_blocked => {
                    ready?;
                    line.flush(clock::now())?;
                }
                () = claim.called() => {
                    claim.mark_running();
                    yield_now().await;
                    line.flush(clock::now())?;
                }
            }
        }
        Ok::<_, Why>(())
    };
    if let Err(failure) = serve.await {
        link.line.fail(failure);
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let by = self.link.by();
        self.link.line.end().into_iter().for_each(|sink| self.node.cut(sink, &by));
    }
}

impl Node {
    /// Reads the messages of a connection, and delivers them.
    fn read_messages(&self, link: &Link, arrived: &mut Vec<Arrived<Sink>>) -> Result<(), Why> {
        let now = clock::now();
        let read = link.line.read(now, arrived);
        self.hand_on(link, now, arrived);
        read
    }

    /// Does the work that a connection's follower, its task in a caller's runtime, has left undone.
    fn stand_by(&self, link: &Link, arrived: &mut Vec<Arrived<Sink>>) -> Result<(), Why> {
        let now = clock::now();
        let stood = link.line.stand_by(now, arrived);
        self.hand_on(link, now, arrived);
        stood
    }

    fn hand_on(&self, link: &Link, now: Instant, arrived: &mut Vec<Arrived<Sink>>) {
        let sent = arrived.iter().find_map(|arrived| match arrived {
            Arrived::Answer { sent, .. } => Some(*sent),
            Arrived::Push(_) => None,
        });
        if let Some(sent) = sent {
            self.record_answer(now - sent, now);
        }
        let by = link.by();
        for arrived in arrived.drain(..) {
            match arrived {
                Arrived::Answer { waits, sent, reply } => self.hand_out(waits, (now - sent, reply), link, &by),
                Arrived::Push(push) if push.kind == PushKind::Invalidate => {
                    self.common.tracked.changed(self.place, &push.data);
                }
                Arrived::Push(_) => {}
            }
        }
    }

    fn hand_out(&self, sink: Option<Sink>, (took, reply): (Duration, Value), link: &Link, by: &By) {
        let reply = Why::or_value(Ok(reply));
        if reply.as_ref().err().is_none_or(Why::is_answer) {
            self.meter.responded(took);
        }
        if let (Whereabouts::Named(_), Some("READONLY")) = (&self.server, reply.as_ref().err().and_then(Why::code)) {
            // The server is no longer the master, so the Sentinels are asked again.
            give_up(&self.broken, link.number);
        }
        if let Some(sink) = sink {
            sink.put(Some(by.clone()), self.counted(reply));
        }
    }

    /// Reports to callers that their answers are late. Fails if the connection is dead.
    fn mind(&self, link: &Link, arrived: &mut Vec<Arrived<Sink>>) -> Result<(), Why> {
        // Answers that have arrived but were not read are not late.
        self.read_messages(link, arrived)?;
        let now = clock::now();
        let checked = link.line.check(now, &self.answers().pace);
        let Checked { late, sent, is_dead } = checked;
        let by = link.by();
        for sink in late {
            sink.put(Some(by.clone()), self.counted(Err(Why::Silent)));
        }
        if let Some(sent) = sent {
            self.is_silent(sent);
        }
        if is_dead { Err(Why::Silent) } else { Ok(()) }
    }

    fn cut(&self, sink: Sink, by: &By) {
        sink.put(Some(by.clone()), self.counted(Err(Why::Broken(BROKE.to_owned()))));
    }

    /// Counts the outcome of a request in the metrics.
    pub(super) fn counted(&self, reply: Result<Value, Why>) -> Result<Value, Why> {
        self.meter.count_request(&reply);
        reply
    }

    /// Records that the node did not answer a request, sent at `sent`, in time.
    fn is_silent(&self, sent: Instant) {
        let mut answers = self.answers();
        if answers.last.is_some_and(|last| last > sent) {
            // The node has answered since, so it is only slow.
            return;
        }
        answers.pace.was_silent();
        drop(answers);
        if self.silent_since.send_if_modified(|since| since.is_none() && since.replace(sent).is_none()) {
            self.meter_state();
        }
    }

    /// Records that the node answered now, after `took`.
    fn record_answer(&self, took: Duration, now: Instant) {
        let mut answers = self.answers();
        answers.pace.on_answer(took, now);
        answers.last = Some(now);
        drop(answers);
        if self.silent_since.borrow().is_some() && self.silent_since.send_if_modified(|since| since.take().is_some()) {
            self.meter_state();
            self.common.answers_again.notify_waiters();
        }
    }
}
