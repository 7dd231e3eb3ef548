//! Requests to a node on its one connection, each within the node's time to answer.

use std::sync::Arc;

use palisade_quorum::NodeId;
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::inbox::{Answer, Inbox};
use super::talking::follow;
use super::{Node, State};
use crate::net::bounds::{BROKE, connect_within};
use crate::net::home;
use crate::net::lease::Lease;
use crate::net::line::{Before, Waiting};
use crate::net::pace::Given;
use crate::values::clock;
use crate::values::failure::Why;

/// A request to a node.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// The command as the bytes that are sent.
    packed: &'a [u8],
    /// The command that precedes this request, if any.
    before: Option<Before>,
    given: Given,
}

impl Node {
    /// Sends `command` after earlier ones. Returns the node's answer, if it comes in time, and the server that
    /// answered. If the command is `about` a lease, the sending is recorded there.
    pub async fn ask(
        self: &Arc<Self>,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        self.ask_as(command, given, about, false).await
    }

    /// As [`Node::ask`], but sends ASKING before `command` if `asking`: another master of the cluster demanded that,
    /// because the key's slot is migrating to this one.
    pub async fn ask_as(
        self: &Arc<Self>,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
        asking: bool,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        let before = asking.then_some(Before::Asking);
        let asked = Asked { packed: &command.get_packed_command(), before, given };
        let Answer { by, reply, .. } = self.answer_to(asked, about).await;
        (by.map(|by| by.id), reply)
    }

    /// Sends `command`, which reads a key, as [`Node::ask`] does. The node reports the next change of the key over the
    /// same connection. Returns the server's id, the number of that connection (0 without an answer), and the answer.
    pub async fn ask_tracked(
        self: &Arc<Self>,
        command: Cmd,
        given: Given,
    ) -> (Option<NodeId>, u64, Result<Value, Why>) {
        let asked = Asked { packed: &command.get_packed_command(), before: Some(Before::Caching), given };
        let Answer { by, reply, .. } = self.answer_to(asked, None).await;
        let (id, over) = by.map(|by| (by.id, by.over)).unzip();
        (id, over.unwrap_or(0), reply)
    }

    /// Sends the bytes of a command if that is possible at once, and returns whether it was. The answer goes to
    /// `inbox`, with this tag.
    pub fn send_now(
        self: &Arc<Self>,
        packed: &[u8],
        given: Given,
        about: Option<&Lease>,
        to: (&Arc<Inbox>, usize),
    ) -> bool {
        self.silent_since.borrow().is_none()
            && self.send(Asked { packed, before: None, given }, about, clock::now(), to)
    }

    async fn answer_to(self: &Arc<Self>, asked: Asked<'_>, about: Option<&Lease>) -> Answer {
        let (inbox, began) = (Inbox::new(1), clock::now());
        if self.silent_since.borrow().is_some() || !self.send(asked, about, began, (&inbox, 0)) {
            let admitted = self.admit(asked.given, began).await;
            let sent = admitted.and_then(|()| match self.send(asked, about, began, (&inbox, 0)) {
                true => Ok(()),
                false => Err(Why::Broken(BROKE.to_owned())),
            });
            if let Err(failure) = sent {
                return Answer { tag: 0, by: None, reply: self.counted(Err(failure)) };
            }
        }
        inbox.next().await
    }

    /// Sends the request if there is a connection, and returns whether there is.
    fn send(
        self: &Arc<Self>,
        Asked { packed, before, given }: Asked<'_>,
        about: Option<&Lease>,
        began: Instant,
        (inbox, tag): (&Arc<Inbox>, usize),
    ) -> bool {
        let State::Up(link) = &*self.state.borrow() else { return false };
        let from = match given {
            Given::Exactly(_) => Some(began),
            Given::Within { .. } => None,
        };
        // This has to come before the sending: from then on the node may have the request.
        about.inspect(|lease| lease.mark_sent(self.place));
        let guest = home::guest();
        match link.line.ask(packed, Waiting { waits: inbox.sink(tag), given, from, before }, guest.as_ref()) {
            Ok(None) => true,
            Ok(Some(claim)) => {
                if let Some(runtime) = guest {
                    runtime.spawn(follow(Arc::clone(self), link.clone(), claim));
                }
                true
            }
            Err(waiting) => {
                waiting.waits.forget();
                false
            }
        }
    }

    /// Waits for the first connection, or for a new one to a node that just failed, so that a request can be sent. Does
    /// not wait for a node that stays down, or that does not answer within its time limit.
    async fn admit(&self, given: Given, began: Instant) -> Result<(), Why> {
        self.redial(began + given.least()).await;
        self.link(began + connect_within(given)).await?;
        match *self.silent_since.borrow() {
            Some(since) if since + given.least() <= Instant::now() => {
                let silent = since.elapsed().as_millis();
                Err(Why::Unreachable(format!("it has not answered for {silent} ms")))
            }
            _ => Ok(()),
        }
    }
}
