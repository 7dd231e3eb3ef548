//! Giving locks back: at once to nodes that answer, later to those that do not, until their leases have ended anyway.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_core::BootTime;
use palisade_core::quorum::majority;
use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::clock;
use crate::nodes::Nodes;
use crate::options::Checked;
use crate::wire::{Lease, NodeFailure};

/// What a node answered, by its place in the list.
pub type Answered = (usize, Result<Value, NodeFailure>);

/// Counts what is under way and must not be cut off.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<watch::Sender<usize>>);

/// One of them, as long as it lives.
#[derive(Debug)]
pub struct Counted(Tally);

impl Tally {
    /// One more.
    pub fn begin(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.clone())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Returns when there is none.
    pub async fn none(&self) {
        // The sender is here, so it cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// A lock that is being given back to nodes that did not answer at first.
#[derive(Debug)]
pub struct Debt {
    pub lease: Arc<Lease>,
    /// What gives it back.
    pub command: Cmd,
    /// Its leases have ended by then, wherever they are.
    pub until: BootTime,
    /// How many nodes do not have it any more.
    freed: AtomicUsize,
}

impl Debt {
    /// One node more does not have it.
    pub fn is_freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether others can have the lock: a majority of so many nodes does not have it.
    pub fn is_paid(&self, nodes: usize) -> bool {
        self.freed.load(Ordering::Relaxed) >= majority(nodes) || clock::boot_now() >= self.until
    }
}

/// Whether the node will not say more than that, asked again.
pub fn is_final(reply: &Result<Value, NodeFailure>) -> bool {
    reply.as_ref().err().is_none_or(NodeFailure::is_lasting)
}

impl Nodes {
    /// Gives `lease` back to every node of the [latest](Self::latest) version that may have it, and tells which these are and what each says
    /// at first. Goes on when nobody listens.
    pub fn give_back(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        checked: Checked,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Answered>) {
        self.give_back_by(lease.release(1), lease, checked)
    }

    /// The same by this command.
    fn give_back_by(
        self: &Arc<Self>,
        command: Cmd,
        lease: &Arc<Lease>,
        checked: Checked,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Answered>) {
        let nodes = self.latest();
        if !Arc::ptr_eq(&nodes, self) {
            lease.moves();
        }
        let (told, answers) = mpsc::unbounded_channel();
        let until = clock::boot_now().plus_us(u64::from(checked.ttl_ms) * 1_000);
        let debt = Arc::new(Debt { lease: Arc::clone(lease), command, until, freed: AtomicUsize::new(0) });
        let (under_way, those) = (self.under_way.begin(), Arc::clone(&nodes));
        let give = async move {
            let _under_way = under_way;
            let command = &debt.command;
            let release = |place: usize| {
                let (nodes, debt) = (&nodes, &debt);
                async move {
                    // What was never sent there cannot be there.
                    let nothing = !debt.lease.may_be_at(place);
                    let reply = if nothing {
                        Ok(Value::Nil)
                    } else {
                        nodes.ask_wherever(place, command, checked.given).await.1
                    };
                    (place, reply)
                }
            };
            let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(release).collect();
            while let Some((place, reply)) = asked.next().await {
                match &reply {
                    Ok(_) => debt.is_freed(),
                    Err(_) if is_final(&reply) => {}
                    Err(_) => nodes.owe(place, &debt),
                }
                let _ = told.send((place, reply));
            }
        };
        // Outside of the client's thread, which has ended, nothing can be sent: the leases end by themselves.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(give);
        }
        (those, answers)
    }
}

/// Gives an acquisition back when it is dropped, unless it was kept: best effort, in the background.
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

    /// It is kept.
    pub fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        if self.armed {
            drop(self.nodes.give_back_by(self.lease.give_up(), &self.lease, self.checked));
        }
    }
}
