//! Releases locks: at once on nodes that answer, later on those that do not, until their leases have ended anyway.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use palisade_quorum::{Release, majority};
use redis::{Cmd, Value};
use tokio::sync::mpsc;

use crate::net::debt::{Debt, is_final};
use crate::net::lease::Lease;
use crate::net::node::{Answer, First, Inbox};
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::rest::Rest;
use crate::net::tally::Counted;
use crate::run::checked::Checked;
use crate::values::clock;
use crate::values::failure::Why;

/// The answer of a node to a release, with its index in the list.
#[derive(Debug)]
pub struct ReleaseAnswer {
    pub place: usize,
    pub reply: Result<Value, Why>,
    /// True if the node was asked before and did not answer, so that it may have freed the lock then.
    is_repeated: bool,
}

impl ReleaseAnswer {
    /// Passes the answer on to `release`.
    pub fn pass_to(&self, release: &mut Release) {
        if self.is_repeated {
            release.on_answer(self.place, None);
        }
        release.on_answer(self.place, self.reply.as_ref().ok().map(|reply| matches!(reply, Value::Int(_))));
    }
}

/// A release in progress, on every node of one version that may have the lock.
#[derive(Debug)]
pub struct Giving {
    /// The nodes of the version of the set on which the lock is released.
    pub nodes: Arc<Nodes>,
    debt: Arc<Debt>,
    given: Given,
    /// Receives the answers of nodes that the release was sent to at once.
    inbox: Arc<Inbox>,
    sent: usize,
    /// At most this many answers are still missing for a majority.
    awaited: usize,
    /// The nodes to which no request for the lock was sent.
    spared: Vec<usize>,
    /// The nodes that could not be sent the release at once.
    rest: Rest<ReleaseAnswer>,
    _under_way: Counted,
}

impl Giving {
    /// Sends `command` to all nodes of the [latest](Nodes::latest) version that may have the lock.
    fn begin(nodes: &Arc<Nodes>, command: Cmd, lease: &Arc<Lease>, checked: Checked) -> Self {
        let latest = nodes.latest();
        if !Arc::ptr_eq(&latest, nodes) {
            lease.moves();
        }
        let until = clock::boot_now().plus_ms(checked.ttl_ms.max(lease.lasts_ms()));
        let packed = command.get_packed_command();
        let debt = Debt::new(lease, command, until);
        let _under_way = nodes.under_way.begin();
        let inbox = Inbox::new(latest.len());
        let rest = Rest::default();
        let given = checked.given;
        let mut giving =
            Self { nodes: latest, debt, given, inbox, sent: 0, awaited: 0, spared: vec![], rest, _under_way };
        (0..giving.nodes.len()).for_each(|place| giving.send(place, &packed));
        giving.awaited = majority(giving.nodes.len());
        giving
    }

    fn send(&mut self, place: usize, packed: &[u8]) {
        if !self.debt.lease.may_be_at(place) {
            // No request for the lock was sent to the node, so it cannot have it.
            return self.spared.push(place);
        }
        let (about, to) = ((&*self.debt.lease.key, packed), (&self.inbox, place));
        match self.nodes.list[place].send_now(about, self.given, None, to) {
            true => self.sent += 1,
            false => self.send_wherever(place, None),
        }
    }

    fn send_wherever(&mut self, place: usize, first: Option<First>) {
        let (nodes, debt, given) = (Arc::clone(&self.nodes), Arc::clone(&self.debt), self.given);
        let asked = async move {
            let (reply, is_repeated) = nodes.ask_wherever(place, &debt.command, given, first).await;
            ReleaseAnswer { place, reply, is_repeated }
        };
        self.rest.push(asked.boxed());
    }

    /// Returns the answer of the next node; `None` once all have answered.
    pub async fn next(&mut self) -> Option<ReleaseAnswer> {
        let told = poll_fn(|context| self.poll_next(context)).await?;
        match &told.reply {
            Ok(_) => self.debt.is_freed(),
            reply if is_final(reply) => {}
            Err(_) => self.nodes.owe(told.place, &self.debt),
        }
        Some(told)
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<ReleaseAnswer>> {
        if let Some(place) = self.spared.pop() {
            return Poll::Ready(Some(ReleaseAnswer { place, reply: Ok(Value::Nil), is_repeated: false }));
        }
        while self.sent > 0
            && let Poll::Ready(Answer { tag: place, by, reply }) =
                self.inbox.poll_next(context, self.awaited.clamp(1, self.sent))
        {
            self.sent -= 1;
            self.awaited = self.awaited.saturating_sub(1);
            if is_final(&reply) {
                return Poll::Ready(Some(ReleaseAnswer { place, reply, is_repeated: false }));
            }
            // The lock may have moved: to another index in a later version, or to another master of a cluster.
            self.send_wherever(place, Some((by, reply)));
        }
        match self.rest.poll_next(context) {
            Poll::Ready(None) if self.sent > 0 => Poll::Pending,
            polled => polled,
        }
    }

    /// Receives the answers on the client's thread, and passes them on.
    pub fn into_answers(mut self) -> mpsc::UnboundedReceiver<ReleaseAnswer> {
        let (told, answers) = mpsc::unbounded_channel();
        let home = Arc::clone(&self.nodes.home);
        home.spawn(async move {
            while let Some(answer) = self.next().await {
                let _ = told.send(answer);
            }
        });
        answers
    }

    /// Receives the remaining answers in the background. Once the client's thread has ended, nothing can be sent, and
    /// leases end by themselves.
    fn receive_rest(mut self) {
        let home = Arc::clone(&self.nodes.home);
        home.finish(async move { while self.next().await.is_some() {} }.boxed());
    }
}

/// A release that is completed even if nobody awaits it.
#[derive(Debug)]
pub struct Heard(Option<Giving>);

impl Heard {
    /// Wraps `giving`, so that the release is completed in the background if the result is dropped.
    pub fn of(giving: Giving) -> Self {
        Self(Some(giving))
    }

    /// Returns the answer of the next node; `None` once all have answered.
    pub async fn next(&mut self) -> Option<ReleaseAnswer> {
        match &mut self.0 {
            Some(giving) => giving.next().await,
            None => None,
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        if let Some(giving) = self.0.take() {
            giving.receive_rest();
        }
    }
}

impl Nodes {
    /// Begins to release `lease` on every node that may have it.
    pub fn give_back(self: &Arc<Self>, lease: &Arc<Lease>, checked: Checked) -> Giving {
        Giving::begin(self, lease.release(1), lease, checked)
    }
}

/// Releases an acquisition in the background when it is dropped, unless it was disarmed.
#[derive(Debug)]
pub struct GiveBack {
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    checked: Checked,
    armed: bool,
}

impl GiveBack {
    pub fn new(nodes: &Arc<Nodes>, lease: &Arc<Lease>, checked: Checked) -> Self {
        Self { nodes: Arc::clone(nodes), lease: Arc::clone(lease), checked, armed: true }
    }

    /// Keeps the acquisition: dropping this no longer releases it.
    pub fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        if self.armed {
            Giving::begin(&self.nodes, self.lease.give_up(), &self.lease, self.checked).receive_rest();
        }
    }
}
