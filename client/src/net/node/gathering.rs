//! Requests that go to a node together: what tasks ask of it at the same moment is written at once.
//!
//! A write, and the read of its answer, cost more than the request itself, here and on the node. So the writer of a connection lets all tasks
//! that can run ask before it sends anything. And where many requests at a time are usual, it waits for most of them while many are under way,
//! and right after some were answered: whoever hears an answer asks for the next thing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Cmd;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::inbox::Sink;
use crate::net::pace::Given;

/// While so many requests are under way to a node, others gather. With fewer, each is sent at once: then it is time that matters, not work.
pub(super) const MANY: usize = 16;

/// This part of as many requests as there are at a time is worth waiting for: the others are late, or were the last of their tasks.
pub(super) const MOST_OF: (usize, usize) = (3, 4);

/// Where fewer came than were waited for, so much smaller is what is usual: one part of this many.
const FORGOTTEN: usize = 8;

/// None is waited for longer than the node took to answer last, within these bounds: on a machine without a core to spare the next
/// requests of those who were answered need the first, and beyond the second it is the way that takes so long, not the work.
const GATHERED_FOR: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(4));

/// Where requests to a node wait for their writer.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    gathered: Mutex<Gathered>,
    news: Notify,
    /// Some of what was written was answered.
    landed: Notify,
}

/// Requests that are gathered, and how many others there are.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The connection that has a writer; 0: none has.
    number: u64,
    pub requests: Vec<Request>,
    /// Others that were written, and are not answered.
    pub under_way: usize,
    /// Requests there are at a time, written or not, as far as is usual.
    at_a_time: usize,
    /// So many are waited for.
    pub expected: usize,
    /// Some were answered not long before that.
    by: Option<Instant>,
    /// How long it took.
    took: Duration,
}

impl Gathered {
    /// So many requests are written at once.
    pub fn writes(&mut self, count: usize) {
        self.under_way += count;
        let forgotten = if count < self.expected { self.at_a_time.div_ceil(FORGOTTEN) } else { 0 };
        self.at_a_time = self.under_way.max(self.at_a_time - forgotten);
        self.expected = if self.at_a_time < MANY { 0 } else { self.at_a_time * MOST_OF.0 / MOST_OF.1 };
    }
}

/// Requests that wait to be written, to add one.
pub(super) struct Queue<'a> {
    gathered: MutexGuard<'a, Gathered>,
    news: &'a Notify,
}

impl Queue<'_> {
    /// `request` is sent with others that are asked for now.
    pub fn add(mut self, request: Request) {
        self.gathered.requests.push(request);
        let count = self.gathered.requests.len();
        let is_news = count == 1 || count == self.gathered.expected;
        drop(self.gathered);
        if is_news {
            self.news.notify_one();
        }
    }
}

/// A request that is let through.
#[derive(Debug)]
pub(super) struct Request {
    pub command: Cmd,
    /// What the server has to be told right before it.
    pub before: Option<Before>,
    pub waiting: Waiting,
}

/// Somebody waits for the answer to a request.
#[derive(Debug)]
pub(super) struct Waiting {
    /// `None`: it was told that the node does not answer in time.
    pub sink: Option<Sink>,
    pub given: Given,
    /// The node's time runs from here on; `None`: from when the request is written.
    pub from: Option<Instant>,
    /// Its place among those that are under way.
    pub _permit: OwnedSemaphorePermit,
    /// The answer to what the server was told before is nobody's.
    pub has_before: bool,
}

/// What a server is told about the command that follows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before {
    /// Its key's slot is on its way here.
    Asking,
    /// Tell when the key changes that it reads.
    Caching,
}

impl Before {
    pub fn command(self) -> Cmd {
        match self {
            Self::Asking => redis::cmd("ASKING"),
            Self::Caching => redis::cmd("CLIENT").arg("CACHING").arg("YES").take(),
        }
    }
}

impl Gathering {
    /// Where requests are gathered; `None`: there is no connection.
    pub fn queue(&self) -> Option<Queue<'_>> {
        let gathered = self.gathered();
        (gathered.number > 0).then(|| Queue { gathered, news: &self.news })
    }

    /// So many requests are not under way any more, after that time.
    pub fn lands(&self, requests: usize, took: Duration) {
        let took = took.clamp(GATHERED_FOR.0, GATHERED_FOR.1);
        let mut gathered = self.gathered();
        gathered.under_way -= requests;
        (gathered.by, gathered.took) = (Some(Instant::now() + took), took);
        drop(gathered);
        self.landed.notify_one();
    }

    pub fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests over the connection with this number are gathered from here on; 0: none are. What was gathered before.
    pub fn begin(&self, number: u64) -> Vec<Request> {
        let mut gathered = self.gathered();
        // Also those over the last connection will have landed.
        let next = Gathered { number, under_way: gathered.under_way, ..Gathered::default() };
        std::mem::replace(&mut *gathered, next).requests
    }

    /// Waits until it makes sense to write.
    pub async fn ready(&self) {
        self.news.notified().await;
        yield_now().await;
        let until = Instant::now() + self.gathered().took.max(GATHERED_FOR.0);
        while self.is_held_up() {
            tokio::select! {
                () = self.landed.notified() => yield_now().await,
                () = self.news.notified() => {}
                () = sleep_until(until) => return,
            }
        }
    }

    /// Whether others are worth waiting for.
    fn is_held_up(&self) -> bool {
        let gathered = self.gathered();
        gathered.requests.len() < gathered.expected
            && (gathered.under_way >= MANY || gathered.by.is_some_and(|by| Instant::now() < by))
    }
}
