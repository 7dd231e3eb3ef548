//! Who leads, as the nodes tell.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};
use palisade_core::BootTime;
use palisade_core::quorum::{NodeId, Observer, Says};
use redis::Value;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Leader;
use crate::nodes::Nodes;
use crate::pace::Given;
use crate::thread::{Running, Thread};
use crate::waiting::LATE;
use crate::wire::{self, NodeFailure};
use crate::{Error, ErrorKind, clock};

/// A node is watched for so long at a time: that nothing changed is heard so often.
const WATCHED: Duration = Duration::from_secs(3);

/// What a node said counts for so long, in milliseconds: for three watches and a little.
const FRESH_MS: u32 = 10_000;

/// A node that does not answer is asked again after so long.
const AGAIN: Duration = Duration::from_millis(200);

/// And one that is guarded at the latest after so long.
const GUARDED_AGAIN: Duration = Duration::from_secs(1);

/// Changes that nobody has read. Whoever reads slowly is told less often, not late.
const UNREAD_MAX: usize = 16;

/// Changes of who leads; of [`Election::observe`](crate::Election::observe).
///
/// `Some`: this leader was proclaimed, or proclaims something new. Terms grow, and within one the sequence. `None`: nobody leads; a
/// majority of the nodes says so. As long as too few nodes answer, nothing is told: what was told last is the best that is known.
///
/// It is a `Stream` too, which ends when the client is closed.
pub struct Observation {
    changes: mpsc::Receiver<Option<Leader>>,
    _running: Running<()>,
    _thread: Arc<Thread>,
}

impl Observation {
    pub(super) fn begin(thread: Arc<Thread>, nodes: &Arc<Nodes>, key: &[u8], given: Given) -> Result<Self, Error> {
        let (tell, changes) = mpsc::channel(UNREAD_MAX);
        let (nodes, key) = (Arc::clone(nodes), Arc::from(key));
        let running = thread.run(async move {
            tokio::select! {
                biased;
                () = nodes.closed() => {}
                () = observe(&nodes, &key, given, &tell) => {}
            }
        });
        Ok(Self { changes, _running: running, _thread: thread })
    }

    /// The next change; at first, who leads now.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let mut leaders = locks.election("scheduler").observe()?;
    /// println!("{:?}", leaders.changed().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Closed`: the client was closed.
    pub async fn changed(&mut self) -> Result<Option<Leader>, Error> {
        self.changes.recv().await.ok_or_else(Error::closed)
    }
}

impl Stream for Observation {
    type Item = Option<Leader>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.changes.poll_recv(context)
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").finish_non_exhaustive()
    }
}

/// What a node said last: token and sequence; token 0 if the lock is free. `None`: nothing that can be watched for changes.
type Known = Option<(u64, u64)>;

/// What came of asking a node.
struct Told {
    node: usize,
    asked: BootTime,
    what: What,
}

enum What {
    Says {
        id: NodeId,
        says: Says,
        known: Known,
    },
    Same {
        id: NodeId,
        known: Known,
    },
    /// And for how long to leave it alone, and why it did not answer.
    Silent(String),
}

fn to_leader(leader: &palisade_core::quorum::Leader) -> Leader {
    Leader { term: leader.term.get(), sequence: leader.sequence, value: leader.value.clone() }
}

/// Tells changes until nobody listens.
async fn observe(nodes: &Arc<Nodes>, key: &Arc<[u8]>, given: Given, tell: &mpsc::Sender<Option<Leader>>) {
    let mut machine = Observer::new(nodes.len(), FRESH_MS);
    let mut last = None;
    let ask = |node, known, after| ask(Arc::clone(nodes), Arc::clone(key), node, known, given, after);
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(|node| ask(node, None, Duration::ZERO)).collect();
    while let Some(told) = asked.next().await {
        let node = told.node;
        let (known, after) = match &told.what {
            What::Says { known: known @ Some(_), .. } | What::Same { known, .. } => (*known, Duration::ZERO),
            What::Says { known: None, .. } => (None, GUARDED_AGAIN),
            What::Silent(_) => (None, AGAIN),
        };
        hear(&mut machine, told);
        // Asked again before anything is told: the next change is not missed meanwhile.
        asked.push(ask(node, known, after));
        let observed = machine.observed(clock::boot_now());
        let current = match (observed.leader, observed.is_fresh) {
            (None, false) => continue,
            (leader, _) => leader.map(to_leader),
        };
        if last.as_ref() != Some(&current) {
            last = Some(current.clone());
            if tell.send(current).await.is_err() {
                return;
            }
        }
    }
}

/// Who leads, as a majority says now.
pub async fn leader(nodes: &Arc<Nodes>, key: &[u8], given: Given) -> Result<Option<Leader>, Error> {
    let mut machine = Observer::new(nodes.len(), FRESH_MS);
    let mut whys = vec![None; nodes.len()];
    let key: Arc<[u8]> = key.into();
    // Where they do not agree, one round more tells whether a leader is new or gone.
    for _ in 0..2 {
        let ask = |node| ask(Arc::clone(nodes), Arc::clone(&key), node, None, given, Duration::ZERO);
        let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(ask).collect();
        while let Some(told) = asked.next().await {
            whys[told.node] = match &told.what {
                What::Silent(why) => Some(why.clone()),
                What::Says { says: Says::Guarded, .. } => {
                    Some("it is guarded: it may have forgotten who leads".to_owned())
                }
                _ => None,
            };
            hear(&mut machine, told);
            let observed = machine.observed(clock::boot_now());
            if observed.is_fresh && (observed.leader.is_none() || machine.is_agreed()) {
                return Ok(observed.leader.map(to_leader));
            }
        }
    }
    let observed = machine.observed(clock::boot_now());
    if observed.is_fresh {
        return Ok(observed.leader.map(to_leader));
    }
    Err(Error::new(ErrorKind::NoQuorum, "too few nodes can tell who leads").with_nodes(nodes.errors(&whys)))
}

fn hear(machine: &mut Observer, Told { node, asked, what }: Told) {
    let now = clock::boot_now();
    match what {
        What::Says { id, says, .. } => machine.on_answer(node, id, says, asked, now),
        What::Same { id, .. } => machine.on_same(node, id, asked, now),
        What::Silent(_) => machine.on_silence(node),
    }
}

/// What a node says: at once, or, if it is known what it said last, when that changes.
fn ask(
    nodes: Arc<Nodes>,
    key: Arc<[u8]>,
    node: usize,
    known: Known,
    given: Given,
    after: Duration,
) -> BoxFuture<'static, Told> {
    async move {
        sleep(after).await;
        let asked = clock::boot_now();
        let (id, reply) = match known {
            Some((token, sequence)) => {
                let command = wire::watch(&key, WATCHED.as_millis() as u64, token, sequence);
                nodes.list[node].ask_waiting(&command, WATCHED + LATE, None).await
            }
            None => nodes.list[node].ask(&wire::info(&key), given, None).await,
        };
        let silent = |why: &NodeFailure| What::Silent(why.to_string());
        let what = match (id, &reply) {
            (Some(id), Ok(Value::Nil)) if known.is_some() => What::Same { id, known },
            (Some(id), Ok(info)) => match says(info) {
                Some((Says::Free, _)) => {
                    // What a guarded node has forgotten looks the same.
                    let (server, reply) = nodes.list[node].ask(&redis::cmd("LOCK.NODE"), given, None).await;
                    match reply {
                        Ok(_) if server != Some(id) => What::Silent("it was replaced by another server".to_owned()),
                        Ok(reply) if wire::text(&reply, "state").as_deref() == Some("serving") => {
                            What::Says { id, says: Says::Free, known: Some((0, 0)) }
                        }
                        Ok(_) => What::Says { id, says: Says::Guarded, known: None },
                        Err(why) => silent(&why),
                    }
                }
                Some((says, known)) => What::Says { id, says, known },
                None => What::Silent(format!("it answered {info:?}")),
            },
            (_, Err(why)) => silent(why),
            (None, Ok(_)) => What::Silent("it is not known which server answered".to_owned()),
        };
        Told { node, asked, what }
    }
    .boxed()
}

/// What LOCK.INFO or LOCK.WATCH tell.
fn says(info: &Value) -> Option<(Says, Known)> {
    let token = match info {
        Value::Nil => 0,
        info => wire::number(info, "token")?,
    };
    if token == 0 {
        return Some((Says::Free, Some((0, 0))));
    }
    let (sequence, bytes) = (wire::number(info, "seq")?, |name| wire::bytes(info, name).map(<[u8]>::to_vec));
    Some((Says::Held { owner: bytes("owner")?, note: bytes("note")?, sequence }, Some((token, sequence))))
}
