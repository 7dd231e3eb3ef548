//! What is done for the connection of a node: what is asked is written, what is answered is handed out, and the time is minded.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{PushKind, Value};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::inbox::{By, Sink};
use super::link::{Link, give_up};
use super::{Node, Whereabouts};
use crate::net::bounds::BROKE;
use crate::net::line::{Arrived, Checked};
use crate::values::failure::Why;

/// One connection, as long as it is used. It lives on the client's thread; when it ends, whoever waits is told that it broke.
pub(super) struct Talking {
    node: Arc<Node>,
    link: Link,
}

impl Talking {
    pub fn new(node: &Arc<Node>, link: &Link) -> Self {
        Self { node: Arc::clone(node), link: link.clone() }
    }

    /// Goes on until the connection breaks.
    pub async fn run(&self) {
        let failure = self.talk(|| false).await.err();
        tracing::debug!(node = self.node.name(), failure = failure.map(tracing::field::display), "it broke");
    }

    /// Nothing is asked over it any more: what was sent is still answered.
    pub async fn finish(self) {
        let by = self.link.by();
        self.link.line.close().into_iter().for_each(|sink| self.node.cut(sink, &by));
        let _ = self.talk(|| self.link.line.under_way() == 0).await;
    }

    async fn talk(&self, is_over: impl Fn() -> bool) -> Result<(), Why> {
        let (node, link, line) = (&self.node, &self.link, &self.link.line);
        let socket = line.readiness()?;
        let mut timer = pin!(sleep_until(Instant::now()));
        while !is_over() {
            let (check_at, is_blocked) = line.wants();
            if let Some(at) = check_at
                && (timer.is_elapsed() || at < timer.deadline())
            {
                timer.as_mut().reset(at);
            }
            tokio::select! {
                biased;
                ready = socket.readable() => {
                    ready.map_err(|why| Why::Broken(why.to_string()))?;
                    node.hear(link)?;
                }
                ready = socket.writable(), if is_blocked => {
                    ready.map_err(|why| Why::Broken(why.to_string()))?;
                    line.flush(Instant::now())?;
                }
                () = line.asked() => {
                    // What other tasks ask for now is written with it.
                    yield_now().await;
                    line.flush(Instant::now())?;
                }
                () = &mut timer, if check_at.is_some() => node.mind(link)?,
            }
        }
        Ok(())
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let by = self.link.by();
        self.link.line.end().into_iter().for_each(|sink| self.node.cut(sink, &by));
    }
}

impl Node {
    /// Reads what came over a connection, and hands it out.
    fn hear(self: &Arc<Self>, link: &Link) -> Result<(), Why> {
        let (now, mut arrived) = (Instant::now(), vec![]);
        let read = link.line.read(now, &mut arrived);
        let sent = arrived.iter().find_map(|arrived| match arrived {
            Arrived::Answer { sent, .. } => Some(*sent),
            Arrived::Push(_) => None,
        });
        if let Some(sent) = sent {
            self.answers_after(now - sent, now);
        }
        let by = link.by();
        for arrived in arrived {
            match arrived {
                Arrived::Answer { waits, sent, reply } => self.hand_out(waits, (now - sent, reply), link, &by),
                Arrived::Push(push) if push.kind == PushKind::Invalidate => {
                    self.common.tracked.changed(self.place, &push.data);
                }
                Arrived::Push(_) => {}
            }
        }
        read
    }

    fn hand_out(&self, sink: Option<Sink>, (took, reply): (Duration, Value), link: &Link, by: &By) {
        let reply = Why::or_value(Ok(reply));
        if reply.as_ref().err().is_none_or(Why::is_answer) {
            self.meter.responded(took);
        }
        if let (Whereabouts::Named(_), Some("READONLY")) = (&self.server, reply.as_ref().err().and_then(Why::code)) {
            // It is the master no more: the Sentinels know who is.
            give_up(&self.broken, link.number);
        }
        if let Some(sink) = sink {
            sink.put(Some(by.clone()), self.counted(reply));
        }
    }

    /// Tells those whose answers are late, and fails if the connection is of no use.
    fn mind(self: &Arc<Self>, link: &Link) -> Result<(), Why> {
        // What lies unread is not late.
        self.hear(link)?;
        let now = Instant::now();
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

    /// What came of a request, which is counted.
    pub(super) fn counted(&self, reply: Result<Value, Why>) -> Result<Value, Why> {
        self.meter.asked(&reply);
        reply
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
        if self.silent_since.send_if_modified(|since| since.is_none() && since.replace(sent).is_none()) {
            self.meter_state();
        }
    }

    /// It answered now, after `took`.
    fn answers_after(&self, took: Duration, now: Instant) {
        let mut answers = self.answers();
        answers.pace.heard_after(took, now);
        answers.last = Some(now);
        drop(answers);
        if self.silent_since.borrow().is_some() && self.silent_since.send_if_modified(|since| since.take().is_some()) {
            self.meter_state();
            self.common.answers_again.notify_waiters();
        }
    }
}
