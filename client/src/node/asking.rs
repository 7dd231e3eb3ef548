//! Requests to a node on its one connection: so many at a time, each in the time that the node is given.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use palisade_core::quorum::NodeId;
use redis::{Cmd, RedisError, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::connecting::{Link, give_up, send_asking};
use super::{CONNECT_TIMEOUT, Node, Server, State};
use crate::pace::Given;
use crate::wire::{Lease, NodeFailure};

/// A connection on which requests have gone unanswered for so long is given up: it may be half open.
const SILENCE: Duration = Duration::from_millis(500);

/// A timer that fires later than this after its time tells of this process, not of the node: the machine was busy, or the process
/// was stopped. The node's answer may be there, unread.
pub(super) const OVERSLEPT: Duration = Duration::from_millis(10);

/// So often the node is given its time once more for that.
pub(super) const OVERSLEPT_TIMES: u32 = 5;

/// A request that is let through: it can be sent.
struct Admitted {
    link: Link,
    permit: OwnedSemaphorePermit,
}

/// A request under way.
type Request = BoxFuture<'static, Result<Value, RedisError>>;

/// How long a request waits for the very first connection.
pub fn connect_within(given: Given) -> Duration {
    match given {
        Given::Exactly(time) => time,
        Given::Within { .. } => CONNECT_TIMEOUT,
    }
}

impl Node {
    /// Sends `command`, in its turn, and returns what the node answers in the time it is given; with the server that answered.
    /// If it is `about` a lease, that is noted as sent there when it is.
    pub async fn ask(
        self: &Arc<Self>,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
    ) -> (Option<NodeId>, Result<Value, NodeFailure>) {
        self.ask_as(command, given, about, false).await
    }

    /// The same; `asking`: as another master of the cluster told, while the key's slot is on its way to this one.
    pub async fn ask_as(
        self: &Arc<Self>,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
        asking: bool,
    ) -> (Option<NodeId>, Result<Value, NodeFailure>) {
        let began = Instant::now();
        let admitted = match self.admit_now() {
            Some(admitted) => Ok(admitted),
            // Rarely needed, and large.
            None => Box::pin(self.admit(given, began)).await,
        };
        let Admitted { link, permit } = match admitted {
            Ok(admitted) => admitted,
            Err(failure) => return (None, self.counted(Err(failure))),
        };
        about.inspect(|lease| lease.goes_to(self.place));
        let (id, number) = (link.id, link.number);
        // If that is answered later than the node's time allows, it is heard all the same.
        let request: Request = match asking {
            false => Box::pin(self.gathering.ask(number, command.clone())),
            true => {
                let (command, mut connection) = (command.clone(), link.connection);
                Box::pin(async move { send_asking(&mut connection, command).await })
            }
        };
        (Some(id), self.counted(self.send(number, request, permit, given, began).await))
    }

    /// Sends `command`, which reads a key, as [`Node::ask`]; over that connection the node tells when the key changes next.
    pub async fn look(
        self: &Arc<Self>,
        command: Cmd,
        given: Given,
    ) -> (Option<NodeId>, u64, Result<Value, NodeFailure>) {
        // It is never closed, so that cannot fail.
        let _turn = self.looks.acquire().await.ok();
        let began = Instant::now();
        let Admitted { link, permit } = match self.admit(given, began).await {
            Ok(admitted) => admitted,
            Err(failure) => return (None, 0, self.counted(Err(failure))),
        };
        let (id, number, mut connection) = (link.id, link.number, link.connection);
        // The server keeps in mind what the next command reads.
        let mut both = redis::pipe();
        both.cmd("CLIENT").arg("CACHING").arg("YES").add_command(command);
        let request: Request = Box::pin(async move {
            let replies = connection.send_packed_commands(&both, 1, 1).await?;
            Ok(replies.into_iter().next().unwrap_or(Value::Nil))
        });
        (Some(id), number, self.counted(self.send(number, request, permit, given, began).await))
    }

    /// What came of a request, which is counted.
    pub(super) fn counted(&self, reply: Result<Value, NodeFailure>) -> Result<Value, NodeFailure> {
        self.meter.asked(&reply);
        reply
    }

    /// Lets a request through if it can be sent at once.
    fn admit_now(&self) -> Option<Admitted> {
        let State::Up(link) = &*self.state.borrow() else { return None };
        if self.silent_since.borrow().is_some() {
            return None;
        }
        let permit = Arc::clone(&self.window).try_acquire_owned().ok()?;
        Some(Admitted { link: link.clone(), permit })
    }

    /// Waits until a request can be sent: for the very first connection, and for its turn; but not for a node that is down, or
    /// that has been silent for longer than it would be given.
    async fn admit(&self, given: Given, began: Instant) -> Result<Admitted, NodeFailure> {
        let connect_by = began + connect_within(given);
        loop {
            self.link(connect_by).await?;
            if let Some(since) = *self.silent_since.borrow()
                && since + given.least() <= Instant::now()
            {
                let silent = since.elapsed().as_millis();
                return Err(NodeFailure::Unreachable(format!("it has not answered for {silent} ms")));
            }
            let permit = tokio::select! {
                biased;
                permit = Arc::clone(&self.window).acquire_owned() => permit,
                () = self.changed_for_worse(given) => continue,
            };
            // It may be another connection than the one there was before the wait.
            let link = self.link(connect_by).await?;
            let Ok(permit) = permit else { return Err(NodeFailure::Unreachable("the client is closed".to_owned())) };
            return Ok(Admitted { link, permit });
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

    async fn send(
        self: &Arc<Self>,
        number: u64,
        mut request: Request,
        permit: OwnedSemaphorePermit,
        given: Given,
        began: Instant,
    ) -> Result<Value, NodeFailure> {
        let sent = Instant::now();
        let mut counted_from = match given {
            Given::Exactly(_) => began,
            Given::Within { .. } => sent,
        };
        let mut overslept = 0;
        loop {
            let due = self.due(counted_from, given);
            tokio::select! {
                biased;
                reply = &mut request => return self.heard(number, sent, reply),
                () = sleep_until(due) => {}
            }
            let now = Instant::now();
            if now > due + OVERSLEPT && overslept < OVERSLEPT_TIMES {
                (counted_from, overslept) = (now, overslept + 1);
            } else if self.due(counted_from, given) <= now {
                break;
            }
        }
        self.is_silent(sent);
        tokio::spawn(Arc::clone(self).listen_on(request, permit, number, sent));
        Err(NodeFailure::Silent)
    }

    /// When a request that was sent then is overdue. As long as the node answers others, which were sent before, it is at work.
    fn due(&self, sent: Instant, given: Given) -> Instant {
        let answers = self.answers();
        let allowance = answers.pace.allowance(given);
        match given {
            Given::Exactly(_) => sent + allowance,
            Given::Within { .. } => {
                (answers.last.map_or(sent, |last| last.max(sent)) + allowance).min(sent + given.most())
            }
        }
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

    /// Hears an answer that comes late: then the node is not silent any more. A connection on which none comes is given up.
    async fn listen_on(
        self: Arc<Self>,
        mut request: Request,
        _permit: OwnedSemaphorePermit,
        number: u64,
        sent: Instant,
    ) {
        let mut overslept = 0;
        loop {
            let last = self.answers().last.map_or(sent, |last| last.max(sent));
            let due = (last + SILENCE).max(Instant::now() + OVERSLEPT);
            tokio::select! {
                biased;
                reply = &mut request => {
                    let _ = self.heard(number, sent, reply);
                    return;
                }
                () = sleep_until(due) => {}
            }
            if Instant::now() > due + OVERSLEPT && overslept < OVERSLEPT_TIMES {
                overslept += 1;
            } else if self.answers().last.is_none_or(|heard| heard <= last) {
                return give_up(&self.broken, number);
            }
        }
    }

    fn heard(&self, number: u64, sent: Instant, reply: Result<Value, RedisError>) -> Result<Value, NodeFailure> {
        let answer = NodeFailure::or_value(reply);
        if answer.as_ref().is_err_and(|failure| !failure.is_answer()) {
            give_up(&self.broken, number);
            return answer;
        }
        if let (Server::Named(_), Some("READONLY")) = (&self.server, answer.as_ref().err().and_then(NodeFailure::code))
        {
            // It is the master no more: the Sentinels know who is.
            give_up(&self.broken, number);
        }
        let now = Instant::now();
        let mut answers = self.answers();
        answers.pace.heard_after(now - sent, now);
        self.meter.responded(now - sent);
        answers.last = Some(now);
        drop(answers);
        if self.silent_since.send_if_modified(|since| since.take().is_some()) {
            self.meter_state();
            self.common.answers_again.notify_waiters();
        }
        answer
    }
}
