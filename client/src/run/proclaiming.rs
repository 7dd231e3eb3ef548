//! Sends a leader's proclamations to the nodes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use palisade_quorum::{Held, NodeId, NoteAnswer, NoteCall, Proclaim, Proclamation};
use redis::Value;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::{Error, Why};

/// Reports the term and the sequence number to a caller once a majority has the proclamation.
pub type Proclaimed = oneshot::Sender<Result<(u64, u64), Error>>;

/// The index of the node, the server that answered, and its answer.
type Reply = (usize, Option<NodeId>, Result<Value, Why>);

/// The leader's side of an election, for a held lock.
pub struct Proclaiming {
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    given: Given,
    machine: Proclaim,
    note: Vec<u8>,
    replies: FuturesUnordered<BoxFuture<'static, Reply>>,
    /// The waiting callers, each with the sequence number of its proclamation.
    waiting: Vec<(u64, Proclaimed)>,
    /// For each node, the reason of a lasting refusal.
    refusals: Vec<Option<Why>>,
}

impl Proclaiming {
    /// Creates the leader's side for a held lock, whose token now is the term. Sends nothing yet.
    pub fn begin(nodes: &Arc<Nodes>, lease: &Arc<Lease>, held: &Held, given: Given) -> Self {
        Self {
            nodes: Arc::clone(nodes),
            lease: Arc::clone(lease),
            given,
            machine: Proclaim::of(held, nodes.len()),
            note: vec![],
            replies: FuturesUnordered::new(),
            waiting: vec![],
            refusals: vec![None; nodes.len()],
        }
    }

    /// Proclaims `value` on all nodes, from now on in place of the last value.
    pub fn proclaim(&mut self, value: Vec<u8>, done: Proclaimed) {
        self.note = Proclamation { term: self.machine.term(), value }.note();
        let tells = self.machine.advance();
        self.refusals.fill(None);
        self.waiting.push((self.machine.sequence(), done));
        self.send_notes(tells);
    }

    /// Sends the proclamation to all nodes again.
    pub fn again(&mut self) {
        // A node that hangs is sent only one request at a time.
        if self.replies.is_empty() {
            self.send_notes(self.machine.again());
        }
    }

    /// Moves to the nodes of another version of the set.
    pub fn move_to(&mut self, nodes: &Arc<Nodes>) {
        self.nodes = Arc::clone(nodes);
        self.replies = FuturesUnordered::new();
        self.refusals = vec![None; nodes.len()];
        let tells = self.machine.move_to(nodes.len());
        self.send_notes(tells);
    }

    /// Sends the proclamation to a node that granted the lock anew.
    pub fn on_grant(&mut self, node: usize) {
        let tell = self.machine.on_grant(node);
        self.send_notes(tell);
    }

    /// Handles the next answer; never returns while none is outstanding.
    pub async fn handle_next(this: &mut Option<Box<Self>>) {
        let Some(this) = this.as_mut().filter(|this| !this.replies.is_empty()) else {
            return std::future::pending().await;
        };
        if let Some(reply) = this.replies.next().await {
            this.on_reply(reply);
        }
    }

    fn send_notes(&mut self, tells: impl IntoIterator<Item = NoteCall>) {
        for NoteCall { node, sequence } in tells {
            let (nodes, given) = (Arc::clone(&self.nodes), self.given);
            let command = self.lease.note(&self.note, sequence);
            let told = async move {
                let deadline = Instant::now() + given.most();
                loop {
                    let (id, reply) = nodes.list[node].ask(&command, given, None).await;
                    match &reply {
                        Err(Why::NotYet { left_ms, .. }) if Instant::now() < deadline => {
                            sleep(Duration::from_millis(*left_ms)).await;
                        }
                        _ => return (node, id, reply),
                    }
                }
            };
            self.replies.push(told.boxed());
        }
    }

    fn on_reply(&mut self, (node, id, reply): Reply) {
        let noted = match reply {
            Ok(Value::Int(sequence)) => u64::try_from(sequence).map_or(NoteAnswer::Failed, NoteAnswer::Has),
            Ok(Value::Nil) => NoteAnswer::NotHeld,
            Ok(_) => NoteAnswer::Failed,
            Err(failure) => {
                let (key, token) = (self.lease.shown_key(), self.machine.term().get());
                debug!(%key, token, node = self.nodes.list[node].name(), %failure, "not proclaimed there");
                self.refusals[node] = failure.is_lasting().then_some(failure);
                NoteAnswer::Failed
            }
        };
        self.machine.on_answer(node, id, noted);
        let term = self.machine.term().get();
        for (sequence, done) in self.waiting.extract_if(.., |(sequence, _)| self.machine.is_proclaimed(*sequence)) {
            let _ = done.send(Ok((term, sequence)));
        }
        let text = "too few nodes let this client proclaim that it leads (LOCK.NOTE)";
        if let Some(error) = self.nodes.refuse_for_good(&self.refusals, text) {
            self.waiting.drain(..).for_each(|(_, done)| drop(done.send(Err(error.clone()))));
        }
    }
}
