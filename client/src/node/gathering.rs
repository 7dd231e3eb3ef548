//! Requests that go to a node together: what tasks ask of it at the same moment is written at once.
//!
//! A write, and the read of its answer, cost more than the request itself, here and on the node. So the writer of a connection lets all tasks
//! that can run ask before it sends anything. And where many requests at a time are usual, it waits for most of them while many are under way,
//! and right after some were answered: whoever hears an answer asks for the next thing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Cmd;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::connecting::Link;
use super::flight::Flight;
use super::inbox::Sink;
use super::{BROKE, Node};
use crate::failure::Why;
use crate::pace::Given;

/// While so many requests are under way to a node, others gather. With fewer, each is sent at once: then it is time that matters, not work.
const MANY: usize = 16;

/// This part of as many requests as there are at a time is worth waiting for: the others are late, or were the last of their tasks.
const MOST_OF: (usize, usize) = (3, 4);

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

#[derive(Debug, Default)]
struct Gathered {
    /// The connection that has a writer; 0: none has.
    number: u64,
    requests: Vec<Request>,
    /// Others that were written, and are not answered.
    under_way: usize,
    /// Requests there are at a time, written or not, as far as is usual.
    at_a_time: usize,
    /// So many are waited for.
    expected: usize,
    /// Some were answered not long before that.
    by: Option<Instant>,
    /// How long it took.
    took: Duration,
}

impl Gathered {
    /// So many requests are written at once.
    fn writes(&mut self, count: usize) {
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

/// Writes over one connection what is gathered for it. It lives on the client's thread; when it ends, what it has not sent fails.
pub(super) struct Writer<'a> {
    node: &'a Arc<Node>,
    link: Link,
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

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests over the connection with this number are gathered from here on; 0: none are. What was gathered before.
    fn begin(&self, number: u64) -> Vec<Request> {
        let mut gathered = self.gathered();
        // Also those over the last connection will have landed.
        let next = Gathered { number, under_way: gathered.under_way, ..Gathered::default() };
        std::mem::replace(&mut *gathered, next).requests
    }

    /// Waits until it makes sense to write.
    async fn ready(&self) {
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

impl<'a> Writer<'a> {
    /// From here on requests over this connection are gathered.
    pub fn begin(node: &'a Arc<Node>, link: &Link) -> Self {
        drop(node.gathering.begin(link.number));
        Self { node, link: link.clone() }
    }

    /// Writes, for ever.
    pub async fn run(&self) {
        let gathering = &self.node.gathering;
        loop {
            gathering.ready().await;
            let mut requests = std::mem::take(&mut gathering.gathered().requests);
            requests.retain(|request| request.waiting.sink.as_ref().is_some_and(Sink::is_wanted));
            if !requests.is_empty() {
                gathering.gathered().writes(requests.len());
                tokio::spawn(Flight::of(self.node, &self.link, requests));
            }
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let by = self.link.by(self.node);
        for Request { waiting, .. } in self.node.gathering.begin(0) {
            let reply = self.node.counted(Err(Why::Broken(BROKE.to_owned())));
            waiting.sink.into_iter().for_each(|sink| sink.put(Some(by.clone()), reply.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::task::noop_waker;
    use palisade_core::Members;

    use super::super::inbox::Inbox;
    use super::super::{Common, Server};
    use super::*;

    const GIVEN: Given = Given::Within { least: Duration::from_secs(1), most: Duration::from_secs(1) };

    fn common() -> Common {
        Common::new(1, Members::default(), false)
    }

    /// Polls `ready` so often that nothing but an answer or time can hold it up.
    fn goes_on(ready: &mut std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        let waker = noop_waker();
        let mut context = std::task::Context::from_waker(&waker);
        (0..10).any(|_| ready.as_mut().poll(&mut context).is_ready())
    }

    /// A node with a connection, and what asks it once more.
    fn connected() -> (Arc<Node>, impl Fn()) {
        let node = Arc::new(Node::new(0, Server::Nowhere(String::new(), String::new()), &common()));
        drop(node.gathering.begin(1));
        let (asked, inbox) = (Arc::clone(&node), Inbox::new(MANY));
        (node, move || assert!(asked.send_now(redis::cmd("PING"), GIVEN, None, (&inbox, 0)).is_ok()))
    }

    #[tokio::test]
    async fn few_requests_are_not_held_up() {
        let (node, ask) = connected();
        let gathering = &node.gathering;
        gathering.gathered().writes(MANY - 1);
        assert!(gathering.ready().now_or_never().is_none(), "there is nothing to write");
        ask();
        assert!(goes_on(&mut std::pin::pin!(gathering.ready())));
    }

    #[tokio::test]
    async fn behind_many_requests_others_gather_until_they_are_most() {
        let (node, ask) = connected();
        let gathering = &node.gathering;
        gathering.gathered().writes(MANY);
        ask();
        let mut ready = std::pin::pin!(gathering.ready());
        let most = MANY * MOST_OF.0 / MOST_OF.1;
        for count in 1..most {
            assert!(!goes_on(&mut ready), "{count} of {MANY}");
            ask();
        }
        assert!(goes_on(&mut ready));
    }

    #[tokio::test]
    async fn right_after_many_were_answered_most_are_waited_for() {
        let (node, ask) = connected();
        let gathering = &node.gathering;
        gathering.gathered().writes(MANY);
        gathering.lands(MANY, Duration::ZERO);
        ask();
        let mut ready = std::pin::pin!(gathering.ready());
        assert!(!goes_on(&mut ready), "those who were answered go on");
        (1..MANY).for_each(|_| ask());
        assert!(goes_on(&mut ready));
    }

    #[test]
    fn requests_of_the_last_connection_land_after_the_next_has_begun() {
        let gathering = Gathering::default();
        gathering.gathered().writes(2);
        drop(gathering.begin(1));
        gathering.gathered().writes(1);
        gathering.lands(2, Duration::ZERO);
        assert_eq!(gathering.gathered().under_way, 1);
    }

    #[test]
    fn that_many_asked_at_a_time_is_forgotten_where_few_do() {
        let mut gathered = Gathered::default();
        let mut write = |count| {
            gathered.writes(count);
            gathered.under_way -= count;
            gathered.expected
        };
        assert!(write(16 * MANY) > MANY);
        let steps = (0..1_000).take_while(|_| write(1) > 0).count();
        assert!((1..40).contains(&steps), "{steps} requests waited");
    }

    #[tokio::test]
    async fn a_node_far_away_holds_nothing_up_for_long() {
        let (node, ask) = connected();
        node.gathering.gathered().writes(MANY);
        ask();
        // None of them is ever answered.
        node.gathering.ready().await;
    }
}
