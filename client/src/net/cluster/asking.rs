//! Sends requests to the master of their key, also while the key's slot moves.

use std::sync::Arc;
use std::time::Duration;

use palisade_quorum::NodeId;
use rand::RngExt;
use redis::{Arg, Cmd, Value};
use tokio::time::{Instant, sleep};

use super::Cluster;
use super::map::{REDIRECTIONS_MAX, Redirection};
use crate::net::access::Way;
use crate::net::bounds::{CONNECT_TIMEOUT, connect_within};
use crate::net::lease::Lease;
use crate::net::node::{By, First, Node};
use crate::net::pace::Given;
use crate::values::failure::Why;

/// Pause before a request about a migrating slot is repeated.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Maximum age of a wait that is repeated at once when it is redirected. After that its caller begins it anew, with the
/// rest of its time.
const JUST_BEGUN: Duration = Duration::from_millis(100);

/// The server that answered, and its answer.
type Answer = (Option<NodeId>, Result<Value, Why>);

/// A request for the master of a key.
struct Question<'a> {
    key: &'a [u8],
    command: &'a Cmd,
    given: Given,
    about: Option<&'a Lease>,
    /// The latest moment to follow a redirection.
    until: Instant,
}

impl<'a> Question<'a> {
    fn new(key: &'a [u8], command: &'a Cmd, given: Given, about: Option<&'a Lease>) -> Self {
        Self { key, command, given, about, until: Instant::now() + given.most().max(TRY_AGAIN) }
    }
}

/// The server to which the request is sent next, after ASKING if `asking`.
struct Next {
    node: Arc<Node>,
    asking: bool,
}

impl Cluster {
    /// Sends `command`, whose first argument is its key. See [`Node::ask`].
    pub async fn ask(self: &Arc<Self>, command: &Cmd, given: Given, about: Option<&Lease>) -> Answer {
        self.ask_at(key_of(command), command, given, about).await
    }

    /// Sends `command` to the master of `key`, whatever the command's arguments are.
    pub async fn ask_at(self: &Arc<Self>, key: &[u8], command: &Cmd, given: Given, about: Option<&Lease>) -> Answer {
        let question = Question::new(key, command, given, about);
        let node = match self.master_of(key, Instant::now() + connect_within(given)).await {
            Ok(node) => node,
            Err(failure) => return (None, Err(failure)),
        };
        let answer = node.ask_as(command, given, about, false).await;
        self.follow((node.way().cloned(), answer), question).await
    }

    /// Returns the final answer to `command` after the answer `first`: follows redirections to other masters.
    pub async fn ask_after(
        self: &Arc<Self>,
        first: First,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
    ) -> Answer {
        match first {
            (Some(By { way, id, .. }), reply) => {
                let question = Question::new(key_of(command), command, given, about);
                self.follow((Some(way), (Some(id), reply)), question).await
            }
            (None, reply) => {
                self.stale.notify_one();
                (None, reply)
            }
        }
    }

    async fn follow(
        self: &Arc<Self>,
        (mut way, mut answer): (Option<Arc<Way>>, Answer),
        question: Question<'_>,
    ) -> Answer {
        let Question { key, command, given, about, until } = question;
        for redirections in 0.. {
            let may_follow = redirections < REDIRECTIONS_MAX && Instant::now() < until;
            match self.after(key, way.as_deref(), &answer.1).await {
                Some(next) if may_follow => {
                    answer = next.node.ask_as(command, given, about, next.asking).await;
                    way = next.node.way().cloned();
                }
                _ => return (answer.0, reply_of_server(way.as_deref(), answer.1)),
            }
        }
        unreachable!("it follows {REDIRECTIONS_MAX} redirections at most")
    }

    /// Sends `command`, which reads a key. See [`Node::ask_tracked`].
    pub async fn ask_tracked(
        self: &Arc<Self>,
        command: Cmd,
        given: Given,
    ) -> (Option<NodeId>, u64, Result<Value, Why>) {
        let key = key_of(&command).to_vec();
        let node = match self.master_of(&key, Instant::now() + connect_within(given)).await {
            Ok(node) => node,
            Err(failure) => return (None, 0, Err(failure)),
        };
        let (id, over, reply) = node.ask_tracked(command, given).await;
        // Redirections are not followed: the lock is checked at its new master after its next extension.
        self.after(&key, node.way().map(|way| &**way), &reply).await;
        (id, over, reply)
    }

    /// Sends `command`, which may wait in a queue of its key's master. See [`Node::ask_waiting`]. If the slot moves to
    /// another master meanwhile, the answer is Null, as at the end of a wait. A caller that still waits asks again.
    pub async fn ask_waiting(self: &Arc<Self>, command: &Cmd, patience: Duration, about: Option<&Lease>) -> Answer {
        self.wait(command, patience, about, false).await
    }

    /// Sends a request to wait. See [`Node::ask_to_wait`].
    pub async fn ask_to_wait(self: &Arc<Self>, command: &Cmd, lease: &Lease, patience: Duration) -> Answer {
        self.wait(command, patience, Some(lease), true).await
    }

    async fn wait(
        self: &Arc<Self>,
        command: &Cmd,
        patience: Duration,
        about: Option<&Lease>,
        may_be_heard: bool,
    ) -> Answer {
        let began = Instant::now();
        let key = key_of(command);
        let mut next = match self.master_of(key, began + CONNECT_TIMEOUT.min(patience)).await {
            Ok(node) => Next { node, asking: false },
            Err(failure) => return (None, Err(failure)),
        };
        for redirections in 0.. {
            let (id, reply) = match about {
                Some(lease) if may_be_heard && !next.asking => next.node.ask_to_wait(command, lease, patience).await,
                about => next.node.ask_waiting(command, patience, about, next.asking).await,
            };
            let way = next.node.way().map(|way| &**way);
            let Some(following) = self.after(key, way, &reply).await else {
                return (id, reply_of_server(way, reply));
            };
            if redirections >= REDIRECTIONS_MAX || began.elapsed() > JUST_BEGUN {
                return (id, Ok(Value::Nil));
            }
            next = following;
        }
        unreachable!("it follows {REDIRECTIONS_MAX} redirections at most")
    }

    /// Returns the server to ask next after this answer; `None` if the answer is final.
    async fn after(self: &Arc<Self>, key: &[u8], way: Option<&Way>, reply: &Result<Value, Why>) -> Option<Next> {
        let failure = reply.as_ref().err()?;
        let host = way.and_then(Way::host).unwrap_or_default();
        match Redirection::of(failure, host) {
            Some(Redirection::Moved(place)) => Some(Next { node: self.moved(key, &place), asking: false }),
            Some(Redirection::Ask(place)) => Some(Next { node: self.importing(&place), asking: true }),
            Some(Redirection::TryAgain) => {
                let jittered = TRY_AGAIN.mul_f64(rand::rng().random_range(0.5..1.0));
                sleep(jittered).await;
                let node = self.master_of(key, Instant::now()).await.ok()?;
                Some(Next { node, asking: false })
            }
            None => {
                // A refusal by a master that is not ready does not mean that the map of slots is old. A master that
                // does not answer may have been replaced.
                if !failure.is_answer() || failure.code() == Some("CLUSTERDOWN") {
                    self.stale.notify_one();
                }
                None
            }
        }
    }
}

/// Returns the key of a module's command: its first argument.
fn key_of(command: &Cmd) -> &[u8] {
    match command.args_iter().nth(1) {
        Some(Arg::Simple(key)) => key,
        _ => &[],
    }
}

/// Adds the server's name to a failure.
fn reply_of_server(way: Option<&Way>, reply: Result<Value, Why>) -> Result<Value, Why> {
    reply.map_err(|failure| failure.of_server(way.map_or("", Way::name)))
}
