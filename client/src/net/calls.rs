//! Sends the calls of a quorum machine to nodes, and receives their answers.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use palisade_quorum::{Answer, Ask, Call, NodeId, Wanted};
use redis::Value;
use tokio::time::{Instant, sleep, sleep_until};

use crate::net::bounds::LATE;
use crate::net::home;
use crate::net::lease::Lease;
use crate::net::node::{self, First, Inbox};
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::rest::Rest;
use crate::net::tally::Tally;
use crate::net::wire;
use crate::values::clock;
use crate::values::failure::Why;

/// The answer of one node to a call of a quorum machine, or the reason why there is none.
#[derive(Debug)]
pub struct Reply {
    /// The quorum machine's round in which the call was made.
    pub round: u64,
    pub call: Call,
    /// The server that answered.
    pub id: Option<NodeId>,
    pub answer: Answer,
    /// The time that the call waited in the node's queue, in milliseconds; 0 for calls that do not wait.
    pub waited_ms: u64,
    /// The reason why the answer is no token, if it is none.
    pub why: Option<Why>,
}

/// The outstanding calls about one lease. Dropping this stops waiting for them, but calls that were sent still arrive.
#[derive(Debug)]
pub struct Calls {
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    /// The last call with its mode, and the bytes of its command, which are the same for all nodes.
    last: Option<(Ask, Wanted, Vec<u8>)>,
    /// Receives the answers to calls that could be sent at once. It is created for the first such call. `sent` lists
    /// the calls, by their tags.
    inbox: Option<Arc<Inbox>>,
    sent: Vec<Option<Made>>,
    /// Number of further answers after which the waiting task is woken.
    awaited: usize,
    /// The calls that could not be sent at once.
    rest: Rest<Reply>,
}

/// A call of the quorum machine to one node, not answered yet.
#[derive(Clone, Copy, Debug)]
struct Made {
    round: u64,
    call: Call,
    given: Given,
    /// The latest time at which a node that is not ready is asked again.
    until: Instant,
}

/// The server that answered, and its answer.
type Answered = (Option<NodeId>, Result<Value, Why>);

impl Calls {
    /// Creates an empty set of calls about `lease`.
    pub fn new(nodes: &Arc<Nodes>, lease: &Arc<Lease>) -> Self {
        Self {
            nodes: Arc::clone(nodes),
            lease: Arc::clone(lease),
            last: None,
            inbox: None,
            sent: vec![],
            awaited: 1,
            rest: Rest::default(),
        }
    }

    /// Sends a call, which a state machine of `palisade-quorum` has asked for, to one node.
    pub fn make(&mut self, round: u64, call: Call, given: Given) {
        let now = clock::now();
        let after = Duration::from_millis(call.after_ms.into());
        let made = Made { round, call, given, until: now + after + given.most() };
        if after.is_zero() {
            let tag = self.sent.iter().position(Option::is_none).unwrap_or(self.sent.len());
            self.pack(call.ask);
            let count = self.nodes.len();
            let inbox = self.inbox.get_or_insert_with(|| {
                self.sent.reserve_exact(count);
                let inbox = Inbox::new(count);
                if !home::is_home() {
                    let unfinished: Weak<Inbox> = Arc::downgrade(&inbox);
                    self.nodes.home.take_over(unfinished);
                }
                inbox
            });
            let (to, lease) = ((&*inbox, tag), Some(&*self.lease));
            if let Some((.., packed)) = &self.last
                && self.nodes.list[call.node].send_now((&self.lease.key, packed), given, lease, to)
            {
                match self.sent.get_mut(tag) {
                    Some(free) => *free = Some(made),
                    None => self.sent.push(Some(made)),
                }
                return;
            }
        }
        let slowly = send_until_ready(Arc::clone(&self.nodes), Arc::clone(&self.lease), made, None);
        self.rest.push(
            async move {
                if !after.is_zero() {
                    sleep(after).await;
                }
                slowly.await
            }
            .boxed(),
        );
    }

    /// Sends an ACQUIRE to a single node, where it waits in the queue for up to `patience`. Reports the number of this
    /// process's callers `behind` it, if the node accepts that.
    pub fn make_waiting(&mut self, call: Call, given: Given, patience: Duration, behind: &Tally) {
        let (nodes, lease) = (Arc::clone(&self.nodes), Arc::clone(&self.lease));
        let behind = nodes.list[call.node].may_send_behind(&lease.key).then(|| behind.count());
        let made = Made { round: 0, call, given, until: clock::now() + patience + given.most() };
        self.rest.push(
            async move {
                let command = lease.acquire_waiting(call.ask, patience.as_millis() as u64, behind);
                let (id, reply) = nodes.list[call.node].ask_waiting(&command, patience + LATE, Some(&lease)).await;
                let waited_ms = reply.as_ref().map_or(0, wire::waited_ms);
                Reply { waited_ms, ..to_reply(&nodes, &lease, made, (id, reply)) }
            }
            .boxed(),
        );
    }

    /// Wakes the task only after this many further answers, since fewer decide nothing.
    pub fn wait_for(&mut self, answers: usize) {
        self.awaited = answers;
    }

    /// Returns the next answer; `None` if nothing is outstanding.
    pub async fn next(&mut self) -> Option<Reply> {
        let reply = poll_fn(|context| self.poll_next(context)).await;
        if self.is_empty() {
            // Frees memory, since a lock may be held for long without another call.
            (self.last, self.inbox, self.sent) = (None, None, vec![]);
        }
        reply
    }

    /// Returns whether no call is outstanding.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.sent.iter().all(Option::is_none)
    }

    fn pack(&mut self, ask: Ask) {
        let wanted = self.lease.wanted();
        if !matches!(&self.last, Some((last, mode, _)) if (*last, *mode) == (ask, wanted)) {
            self.last = Some((ask, wanted, self.lease.command(ask).get_packed_command()));
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        while let under_way @ 1.. = self.sent.iter().flatten().count()
            && let Some(inbox) = &self.inbox
            && let Poll::Ready(node::Answer { tag, by, reply }) =
                inbox.poll_next(context, self.awaited.clamp(1, under_way))
        {
            self.awaited = self.awaited.saturating_sub(1);
            let Some(made) = self.sent[tag].take() else { continue };
            let is_all = match &reply {
                Ok(_) => true,
                Err(why) => !matches!(why, Why::NotYet { .. }) && !self.nodes.list[made.call.node].is_cluster(),
            };
            if is_all {
                let id = by.map(|by| by.id);
                return Poll::Ready(Some(to_reply(&self.nodes, &self.lease, made, (id, reply))));
            }
            let (nodes, lease) = (Arc::clone(&self.nodes), Arc::clone(&self.lease));
            self.rest.push(send_until_ready(nodes, lease, made, Some((by, reply))).boxed());
        }
        match self.rest.poll_next(context) {
            Poll::Ready(None) if !self.is_empty() => Poll::Pending,
            Poll::Ready(Some(reply)) => {
                self.awaited = self.awaited.saturating_sub(1);
                Poll::Ready(Some(reply))
            }
            polled => polled,
        }
    }
}

/// Converts a node's answer to the reply that the quorum machine receives.
fn to_reply(nodes: &Nodes, lease: &Lease, made: Made, (id, reply): Answered) -> Reply {
    let Made { round, call, .. } = made;
    let (answer, why) = wire::answer(call.ask, lease.checked(reply));
    if let Answer::Token(token) = answer {
        // Later proposals will exceed it.
        nodes.clock.saw(token);
    }
    Reply { round, call, id, answer, waited_ms: 0, why }
}

/// Sends the call, and repeats it while the node is not ready. If there is a `first` answer already, begins with that.
async fn send_until_ready(nodes: Arc<Nodes>, lease: Arc<Lease>, mut made: Made, mut first: Option<First>) -> Reply {
    let mut not_ready = None;
    loop {
        let command = lease.command(made.call.ask);
        let endpoint = &nodes.list[made.call.node];
        let answered = match first.take() {
            Some(first) => endpoint.ask_after(first, &command, made.given, Some(&lease)).await,
            None => endpoint.ask(&command, made.given, Some(&lease)).await,
        };
        let is_silent = matches!(answered.1, Err(Why::Silent));
        let reply = to_reply(&nodes, &lease, made, answered);
        let Answer::NotYet { ms } = reply.answer else {
            // The last repetition came too late to be answered, so the reason of the one before it is reported.
            let why = not_ready.filter(|_| is_silent).or(reply.why);
            return Reply { why, ..reply };
        };
        // A node that is not ready is asked again exactly when it said.
        let again = Instant::now() + Duration::from_millis(ms.into());
        if again >= made.until {
            return Reply { answer: Answer::Failed, ..reply };
        }
        not_ready = reply.why;
        sleep_until(again).await;
        if let Ask::Acquire { retry, .. } = &mut made.call.ask {
            *retry = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_quorum::Token;

    use super::*;
    use crate::Client;

    #[test]
    fn a_command_is_of_the_mode_in_which_the_lease_is_wanted_by_then() {
        let client = Client::new(["redis://127.0.0.1:1"]).unwrap();
        let lease = Arc::new(Lease::new((*b"k").into(), (None, 0), b"", Wanted::Exclusive, 1));
        let mut calls = Calls::new(&client.nodes(), &lease);
        let ask = Ask::Acquire { ttl_ms: 1_000, proposal: Token::new(7).unwrap(), retry: false };
        for wanted in [Wanted::Exclusive, Wanted::Shared, Wanted::Permit { limit: 3, number: Some(2) }] {
            lease.set_wanted(wanted);
            for _ in 0..2 {
                calls.pack(ask);
                let packed = calls.last.as_ref().map(|(.., packed)| packed.clone());
                assert_eq!(packed, Some(lease.command(ask).get_packed_command()));
            }
        }
    }
}
