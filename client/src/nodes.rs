//! All nodes of a client, and questions to them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use palisade_core::quorum::{Answer, Ask, Call, NodeId, Out, majority};
use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::HybridClock;
use crate::node::{CONNECT_TIMEOUT, Node};
use crate::wire::{self, Lease, Trouble};
use crate::{Error, ErrorKind, Holder, NodeError};

/// What all locks of a client share.
#[derive(Debug)]
pub struct Nodes {
    pub list: Vec<Arc<Node>>,
    pub clock: HybridClock,
    /// What keeps each connection up; none before the first use.
    connectors: Mutex<Vec<AbortHandle>>,
}

/// What came of a call.
#[derive(Debug)]
pub struct Reply {
    /// The round it belongs to.
    pub round: u64,
    pub call: Call,
    /// The server that answered.
    pub id: Option<NodeId>,
    pub answer: Answer,
    /// For people, if it is no token.
    pub why: Option<String>,
}

/// Calls under way; dropped, they are not waited for any more, though what was sent arrives.
pub type Calls = FuturesUnordered<BoxFuture<'static, Reply>>;

impl Nodes {
    /// These nodes; nothing is connected yet.
    pub fn new(list: Vec<Node>) -> Arc<Self> {
        let list = list.into_iter().map(Arc::new).collect();
        Arc::new(Self { list, clock: HybridClock::default(), connectors: Mutex::default() })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Begins to connect, at the first use: only then there is a runtime to do it. And again, if that has ended since.
    pub fn start(&self) {
        let mut connectors = self.connectors.lock().unwrap_or_else(PoisonError::into_inner);
        if !connectors.is_empty() && !connectors.iter().any(AbortHandle::is_finished) {
            return;
        }
        let connect = |node: &Arc<Node>| {
            let node = Arc::clone(node);
            node.forget();
            tokio::spawn(async move { node.stay_connected().await }).abort_handle()
        };
        *connectors = self.list.iter().map(connect).collect();
    }

    /// Returns when a majority is connected.
    pub async fn connected(&self) -> Result<(), Error> {
        let by = Instant::now() + CONNECT_TIMEOUT;
        let connect = |n: usize| async move { (n, self.list[n].connected(by).await) };
        let mut asked: FuturesUnordered<_> = (0..self.len()).map(connect).collect();
        let (mut ids, mut whys) = (HashSet::new(), vec![None; self.len()]);
        while let Some((n, connected)) = asked.next().await {
            match connected {
                Ok(id) if ids.insert(id) && ids.len() >= majority(self.len()) => return Ok(()),
                Ok(_) => {}
                Err(trouble) => whys[n] = Some(trouble.to_string()),
            }
        }
        let text =
            format!("{} of {} nodes can be asked, and {} are needed", ids.len(), self.len(), majority(self.len()));
        Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(self.errors(&whys)))
    }

    /// A question of a machine to one node, which has `timeout` to answer.
    pub fn call(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        round: u64,
        call: Call,
        timeout: Duration,
    ) -> BoxFuture<'static, Reply> {
        let (nodes, lease) = (Arc::clone(self), Arc::clone(lease));
        async move {
            if call.after_ms > 0 {
                sleep(Duration::from_millis(call.after_ms.into())).await;
            }
            let deadline = Instant::now() + timeout;
            let mut ask = call.ask;
            let mut not_ready = None;
            let (id, answer, why) = loop {
                let (id, reply) = nodes.list[call.node].ask(&lease.command(ask), deadline).await;
                let is_silent = matches!(reply, Err(Trouble::Silent));
                let (answer, why) = nodes.heard(reply);
                let Answer::NotYet { ms } = answer else {
                    // Asked again right before its time was up, it has not had time to say the same again.
                    break (id, answer, not_ready.filter(|_| is_silent).or(why));
                };
                // All of its time, and no more, is given to a node that is not ready yet.
                let again = Instant::now() + Duration::from_millis(ms.into());
                if again >= deadline {
                    break (id, Answer::Failed, why);
                }
                not_ready = why;
                sleep_until(again).await;
                if let Ask::Acquire { retry, .. } = &mut ask {
                    *retry = true;
                }
            };
            Reply { round, call, id, answer, why }
        }
        .boxed()
    }

    /// What a node's reply means; proposals go on from the token in it.
    pub fn heard(&self, reply: Result<Value, Trouble>) -> (Answer, Option<String>) {
        let (answer, why) = wire::answer(reply);
        if let Answer::Token(token) = answer {
            self.clock.saw(token);
        }
        (answer, why)
    }

    /// Sends `command` to every node, each with `timeout` to answer.
    pub async fn ask_all(&self, command: &Cmd, timeout: Duration) -> Vec<Result<Value, Trouble>> {
        let deadline = Instant::now() + timeout;
        let replies = join_all(self.list.iter().map(|node| node.ask(command, deadline))).await;
        replies.into_iter().map(|(_, reply)| reply).collect()
    }

    /// Who holds the lock, as the first node tells that can; nodes where it is contended are asked.
    pub async fn holder(&self, lease: &Lease, outs: &[Option<Out>], timeout: Duration) -> Option<Holder> {
        let deadline = Instant::now() + timeout;
        let command = lease.info();
        let contended = self.list.iter().zip(outs).filter(|(_, out)| **out == Some(Out::Contended));
        let mut asked: FuturesUnordered<_> = contended.map(|(node, _)| node.ask(&command, deadline)).collect();
        while let Some((_, reply)) = asked.next().await {
            if let Ok(info) = reply
                && let Some(token) = wire::number(&info, "token")
            {
                let ms = |name| Duration::from_millis(wire::number(&info, name).unwrap_or(0));
                return Some(Holder {
                    note: wire::text(&info, "note").unwrap_or_default(),
                    held_for: ms("held"),
                    lease_left: ms("ttl"),
                    token,
                });
            }
        }
        None
    }

    /// The nodes with something to say, for people.
    pub fn errors(&self, whys: &[Option<String>]) -> Vec<NodeError> {
        let named = self.list.iter().zip(whys);
        named.filter_map(|(node, why)| Some(NodeError { node: node.name().to_owned(), why: why.clone()? })).collect()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for connector in self.connectors.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            connector.abort();
        }
    }
}

/// Gives an acquisition back to every node when it is dropped, unless it was kept: best effort, in the background.
#[derive(Debug)]
pub struct GiveBack {
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    timeout: Duration,
    armed: bool,
}

impl GiveBack {
    pub fn new(nodes: &Arc<Nodes>, lease: &Arc<Lease>, timeout: Duration) -> Self {
        Self { nodes: Arc::clone(nodes), lease: Arc::clone(lease), timeout, armed: true }
    }

    /// It is kept.
    pub fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // Outside of a runtime nothing can be sent: the leases end by themselves.
        if let Ok(runtime) = Handle::try_current() {
            let (nodes, lease, timeout) = (Arc::clone(&self.nodes), Arc::clone(&self.lease), self.timeout);
            runtime.spawn(async move { nodes.ask_all(&lease.release(1), timeout).await });
        }
    }
}
