//! Requests that were written together, until they are answered: each in the time that the node is given.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, RedisError, Value};
use tokio::time::{Instant, sleep_until};

use super::gathering::{Request, Waiting};
use super::link::{Link, give_up};
use super::{Answers, Node, Whereabouts};
use crate::net::pace::Given;
use crate::values::failure::Why;

/// A connection on which requests have gone unanswered for so long is given up: it may be half open.
const SILENCE: Duration = Duration::from_millis(500);

/// A timer that fires later than this after its time tells of this process, not of the node: the machine was busy, or the process
/// was stopped. The node's answer may be there, unread.
pub(super) const OVERSLEPT: Duration = Duration::from_millis(10);

/// So often the node is given its time once more for that.
pub(super) const OVERSLEPT_TIMES: u32 = 5;

/// What was written at once, and those who wait for answers.
pub(super) struct Flight {
    node: Arc<Node>,
    link: Link,
    sent: Instant,
    waiting: Vec<Waiting>,
    /// How many these are.
    count: usize,
    /// Somebody was told that the node does not answer in time; since then its last answer counts.
    is_silent: bool,
    overslept: u32,
}

/// What comes next if no answer comes before.
struct Due {
    at: Instant,
    /// When the node had answered anything last, or these were sent.
    heard: Instant,
    /// By then the connection is given up, if the node has not answered anything.
    silence: Option<Instant>,
}

impl Flight {
    /// Writes `requests` and hears what the node answers to them, to its end.
    pub fn of(node: &Arc<Node>, link: &Link, requests: Vec<Request>) -> impl Future<Output = ()> + Send + use<> {
        let (node, link) = (Arc::clone(node), link.clone());
        let mut pipeline = Pipeline::with_capacity(requests.len());
        let mut waiting = Vec::with_capacity(requests.len());
        let mut commands = 0;
        for request in requests {
            if let Some(before) = request.before {
                pipeline.add_command(before.command());
                commands += 1;
            }
            pipeline.add_command(request.command);
            commands += 1;
            waiting.push(request.waiting);
        }
        async move {
            let mut connection = link.connection.clone();
            let mut answered = pin!(connection.send_packed_commands(&pipeline, 0, commands));
            let sent = Instant::now();
            let mut flight = Self { node, link, sent, count: waiting.len(), waiting, is_silent: false, overslept: 0 };
            loop {
                let due = flight.due();
                tokio::select! {
                    biased;
                    replies = &mut answered => return flight.land(replies),
                    () = sleep_until(due.at) => if flight.is_over(&due) {
                        return give_up(&flight.node.broken, flight.link.number);
                    },
                }
            }
        }
    }

    fn due(&self) -> Due {
        let answers = self.node.answers();
        let heard = self.heard(&answers);
        let open = self.waiting.iter().filter(|waiting| waiting.sink.is_some());
        let overdue = open.map(|waiting| self.overdue(waiting, heard, answers.pace.allowance(waiting.given))).min();
        let silence = self.is_silent.then(|| (heard + SILENCE).max(Instant::now() + OVERSLEPT));
        // One of both there is.
        let at = [overdue, silence].into_iter().flatten().min().unwrap_or(heard + SILENCE);
        Due { at, heard, silence }
    }

    /// When the node answered anything last, or these were sent.
    fn heard(&self, answers: &Answers) -> Instant {
        answers.last.map_or(self.sent, |last| last.max(self.sent))
    }

    /// When a request is overdue. As long as the node answers others, which were sent before, it is at work.
    fn overdue(&self, waiting: &Waiting, heard: Instant, allowance: Duration) -> Instant {
        let from = waiting.from.unwrap_or(self.sent);
        match waiting.given {
            Given::Exactly(_) => from + allowance,
            Given::Within { .. } => (heard.max(from) + allowance).min(from + waiting.given.most()),
        }
    }

    /// It is time. Whether the connection is to be given up.
    fn is_over(&mut self, due: &Due) -> bool {
        let now = Instant::now();
        if now > due.at + OVERSLEPT && self.overslept < OVERSLEPT_TIMES {
            self.overslept += 1;
            self.waiting.iter_mut().for_each(|waiting| waiting.from = Some(now));
            return false;
        }
        let answers = self.node.answers();
        let heard = self.heard(&answers);
        let allowances: Vec<_> = self.waiting.iter().map(|waiting| answers.pace.allowance(waiting.given)).collect();
        drop(answers);
        // What the node answers over a later connection says nothing of this one.
        let is_replaced = *self.node.broken.borrow() >= self.link.number;
        if due.silence.is_some_and(|silence| silence <= now) && (heard <= due.heard || is_replaced) {
            return true;
        }
        let mut is_news = false;
        for (n, allowance) in allowances.into_iter().enumerate() {
            if self.overdue(&self.waiting[n], heard, allowance) <= now
                && let Some(sink) = self.waiting[n].sink.take()
            {
                is_news = true;
                sink.put(Some(self.link.by()), self.node.counted(Err(Why::Silent)));
            }
        }
        if is_news {
            (self.is_silent, self.overslept) = (true, 0);
            self.node.is_silent(self.sent);
        }
        false
    }

    /// All of it is answered, or never will be.
    fn land(&mut self, replies: Result<Vec<Value>, RedisError>) {
        let now = Instant::now();
        let failure = replies.as_ref().err().map(Why::of);
        match &failure {
            Some(failure) if !failure.is_answer() => give_up(&self.node.broken, self.link.number),
            _ => self.node.answers_after(now - self.sent, now),
        }
        let by = self.link.by();
        let mut replies = replies.unwrap_or_default().into_iter();
        for Waiting { sink, has_before, .. } in self.waiting.drain(..) {
            if has_before {
                replies.next();
            }
            let reply = match (&failure, replies.next()) {
                (Some(failure), _) => Err(failure.clone()),
                (None, Some(reply)) => Why::or_value(Ok(reply)),
                (None, None) => Err(Why::Broken("it answered less than it was asked".to_owned())),
            };
            if reply.as_ref().err().is_none_or(Why::is_answer) {
                self.node.meter.responded(now - self.sent);
            }
            if let (Whereabouts::Named(_), Some("READONLY")) =
                (&self.node.server, reply.as_ref().err().and_then(Why::code))
            {
                // It is the master no more: the Sentinels know who is.
                give_up(&self.node.broken, self.link.number);
            }
            if let Some(sink) = sink {
                sink.put(Some(by.clone()), self.node.counted(reply));
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.node.gathering.lands(self.count, self.sent.elapsed());
    }
}

impl Node {
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
        if self.silent_since.send_if_modified(|since| since.take().is_some()) {
            self.meter_state();
            self.common.answers_again.notify_waiters();
        }
    }
}
