//! Requests to a node on its one connection: so many at a time, each in the time that the node is given.

use std::sync::Arc;

use palisade_quorum::NodeId;
use redis::{Cmd, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::gathering::{Before, Request, Waiting};
use super::inbox::{Answer, Inbox};
use super::{Node, State};
use crate::net::bounds::{BROKE, connect_within};
use crate::net::lease::Lease;
use crate::net::pace::Given;
use crate::values::failure::Why;

/// What is sent to a node.
struct Asked {
    command: Cmd,
    /// What the server is told right before.
    before: Option<Before>,
    given: Given,
}

impl Node {
    /// Sends `command`, in its turn, and returns what the node answers in the time it is given; with the server that answered.
    /// If it is `about` a lease, that is noted as sent there when it is.
    pub async fn ask(
        &self,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        self.ask_as(command, given, about, false).await
    }

    /// The same; `asking`: as another master of the cluster told, while the key's slot is on its way to this one.
    pub async fn ask_as(
        &self,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
        asking: bool,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        let before = asking.then_some(Before::Asking);
        let Answer { by, reply, .. } = self.answer_to(Asked { command: command.clone(), before, given }, about).await;
        (by.map(|by| by.id), reply)
    }

    /// Sends `command`, which reads a key, as [`Node::ask`]; over that connection the node tells when the key changes next.
    pub async fn look(&self, command: Cmd, given: Given) -> (Option<NodeId>, u64, Result<Value, Why>) {
        // It is never closed, so that cannot fail.
        let _turn = self.looks.acquire().await.ok();
        let Answer { by, reply, .. } =
            self.answer_to(Asked { command, before: Some(Before::Caching), given }, None).await;
        let (id, over) = by.map(|by| (by.id, by.over)).unzip();
        (id, over.unwrap_or(0), reply)
    }

    /// Sends `command` if that can be done at once; its answer goes to `inbox`, with this tag. Else it is back.
    pub fn send_now(
        &self,
        command: Cmd,
        given: Given,
        about: Option<&Lease>,
        (inbox, tag): (&Arc<Inbox>, usize),
    ) -> Result<(), Cmd> {
        let began = Instant::now();
        let sent = self.send(Asked { command, before: None, given }, about, began, None, (inbox, tag));
        sent.map_err(|asked| asked.command)
    }

    async fn answer_to(&self, asked: Asked, about: Option<&Lease>) -> Answer {
        let (inbox, began) = (Inbox::new(1), Instant::now());
        if let Err(asked) = self.send(asked, about, began, None, (&inbox, 0)) {
            // Rarely needed, and large.
            if let Err(failure) = Box::pin(self.send_in_turn(asked, about, began, &inbox)).await {
                return Answer { tag: 0, by: None, reply: self.counted(Err(failure)) };
            }
        }
        inbox.next().await
    }

    async fn send_in_turn(
        &self,
        asked: Asked,
        about: Option<&Lease>,
        began: Instant,
        inbox: &Arc<Inbox>,
    ) -> Result<(), Why> {
        let permit = self.admit(asked.given, began).await?;
        let sent = self.send(asked, about, began, Some(permit), (inbox, 0));
        sent.map_err(|_| Why::Broken(BROKE.to_owned()))
    }

    /// Sends it if there is a connection; with no `permit`, if no other is in turn before it and the node is not silent.
    fn send(
        &self,
        asked: Asked,
        about: Option<&Lease>,
        began: Instant,
        permit: Option<OwnedSemaphorePermit>,
        (inbox, tag): (&Arc<Inbox>, usize),
    ) -> Result<(), Asked> {
        let permit = match permit {
            Some(permit) => permit,
            None if self.silent_since.borrow().is_some() => return Err(asked),
            None => match Arc::clone(&self.window).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => return Err(asked),
            },
        };
        let Some(queue) = self.gathering.queue() else { return Err(asked) };
        let Asked { command, before, given } = asked;
        let from = match given {
            Given::Exactly(_) => Some(began),
            Given::Within { .. } => None,
        };
        let sink = Some(inbox.sink(tag));
        let waiting = Waiting { sink, given, from, _permit: permit, has_before: before.is_some() };
        // Before it is sent: from then on it may be there.
        about.inspect(|lease| lease.goes_to(self.place));
        queue.add(Request { command, before, waiting });
        Ok(())
    }

    /// Waits until a request can be sent: for the very first connection, for a new one to a node that is down, and for its turn; but not for
    /// one that stays down, or that has been silent for longer than it would be given.
    async fn admit(&self, given: Given, began: Instant) -> Result<OwnedSemaphorePermit, Why> {
        let connect_by = began + connect_within(given);
        self.redial(began + given.least()).await;
        loop {
            self.link(connect_by).await?;
            if let Some(since) = *self.silent_since.borrow()
                && since + given.least() <= Instant::now()
            {
                let silent = since.elapsed().as_millis();
                return Err(Why::Unreachable(format!("it has not answered for {silent} ms")));
            }
            let permit = tokio::select! {
                biased;
                permit = Arc::clone(&self.window).acquire_owned() => permit,
                () = self.changed_for_worse(given) => continue,
            };
            // The connection may have broken meanwhile.
            self.link(connect_by).await?;
            return permit.map_err(|_| Why::Unreachable("the client is closed".to_owned()));
        }
    }

    /// Returns when it does not make sense to wait for a turn any more.
    async fn changed_for_worse(&self, given: Given) {
        let (mut states, mut silent) = (self.state.subscribe(), self.silent_since.subscribe());
        loop {
            if matches!(*states.borrow_and_update(), State::Down(_)) {
                return;
            }
            let enough = silent.borrow_and_update().map(|since| since + given.least());
            tokio::select! {
                () = sleep_until(enough.unwrap_or_else(Instant::now)), if enough.is_some() => return,
                _ = states.changed() => {}
                _ = silent.changed() => {}
            }
        }
    }
}
