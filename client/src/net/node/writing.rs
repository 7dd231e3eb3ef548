//! The writer of a connection.

use std::sync::Arc;

use super::Node;
use super::flight::Flight;
use super::gathering::Request;
use super::inbox::Sink;
use super::link::Link;
use crate::net::bounds::BROKE;
use crate::values::failure::Why;

/// Writes over one connection what is gathered for it. It lives on the client's thread; when it ends, what it has not sent fails.
pub(super) struct Writer<'a> {
    node: &'a Arc<Node>,
    link: Link,
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
        let by = self.link.by();
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
    use palisade_quorum::Members;

    use std::time::Duration;

    use super::super::gathering::{Gathered, Gathering, MANY, MOST_OF};
    use super::super::inbox::Inbox;
    use super::super::{Common, Whereabouts};
    use super::*;
    use crate::net::pace::Given;

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
        let node = Arc::new(Node::new(0, Whereabouts::Nowhere(String::new(), String::new()), &common()));
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
