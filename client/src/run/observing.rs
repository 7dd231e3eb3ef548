//! Observes the leader that the nodes report.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::{LockReport, Observer};
use tokio::sync::mpsc;

use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::wire;
use crate::run::watching::{NodeReport, Observation, State, ask};
use crate::values::clock;
use crate::{Error, ErrorKind, Why};

/// Milliseconds for which a node's report counts: slightly longer than three requests to watch it.
const FRESH_MS: u32 = 10_000;

/// The leader that an observer has seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Leader {
    /// The term: larger than that of every earlier leader.
    pub term: u64,
    /// The number of the proclamation within its term, from 1.
    pub sequence: u64,
    /// The proclaimed value, such as an address.
    pub value: Vec<u8>,
}

fn to_leader(leader: &palisade_quorum::Leader) -> Leader {
    Leader { term: leader.term.get(), sequence: leader.sequence, value: leader.value.clone() }
}

/// Sends changes of the leader until the receiver is dropped, also when the set of nodes changes.
pub async fn observe(nodes: Arc<Nodes>, key: Arc<[u8]>, given: Given, tell: mpsc::Sender<Option<Leader>>) {
    let mut nodes = nodes.latest();
    let (mut machine, mut last) = (Observer::new(nodes.len(), FRESH_MS), None);
    loop {
        tokio::select! {
            biased;
            () = nodes.superseded() => {}
            () = observe_version(&nodes, &key, given, &tell, &mut machine, &mut last) => return,
        }
        nodes = nodes.latest();
        machine.move_to(nodes.len());
    }
}

async fn observe_version(
    nodes: &Arc<Nodes>,
    key: &Arc<[u8]>,
    given: Given,
    tell: &mpsc::Sender<Option<Leader>>,
    machine: &mut Observer,
    last: &mut Option<Option<Leader>>,
) {
    let ask = |node, known, after| ask(Arc::clone(nodes), Arc::clone(key), node, known, given, after);
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(|node| ask(node, None, Duration::ZERO)).collect();
    while let Some(told) = asked.next().await {
        let (node, (known, after)) = (told.node, told.next());
        pass_report(machine, told);
        // The next request is sent before the change is passed on, so that the next change is not missed.
        asked.push(ask(node, known, after));
        let observed = machine.observed(clock::boot_now());
        let current = match (observed.leader, observed.is_fresh) {
            (None, false) => continue,
            (leader, _) => leader.map(to_leader),
        };
        if last.as_ref() != Some(&current) {
            if tell.send(current.clone()).await.is_err() {
                return;
            }
            *last = Some(current);
        }
    }
}

/// Returns the leader that a majority reports now.
pub async fn leader(nodes: &Arc<Nodes>, key: &[u8], given: Given) -> Result<Option<Leader>, Error> {
    let mut machine = Observer::new(nodes.len(), FRESH_MS);
    let mut whys = vec![None; nodes.len()];
    let key: Arc<[u8]> = key.into();
    // If the nodes disagree, another round shows whether the leader is new or gone.
    for _ in 0..2 {
        let ask = |node| ask(Arc::clone(nodes), Arc::clone(&key), node, None, given, Duration::ZERO);
        let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(ask).collect();
        while let Some(told) = asked.next().await {
            whys[told.node] = match &told.what {
                Observation::Silent(why) => Some(why.clone()),
                Observation::Shows { state: State::Guarded, .. } => {
                    Some(Why::Unreachable("it is guarded: it may have forgotten who leads".to_owned()))
                }
                _ => None,
            };
            pass_report(&mut machine, told);
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

fn pass_report(machine: &mut Observer, NodeReport { node, asked, what }: NodeReport) {
    let now = clock::boot_now();
    match what {
        Observation::Shows { id, state, .. } => match to_lock_report(state) {
            Some(says) => machine.on_answer(node, id, says, asked, now),
            None => machine.on_silence(node),
        },
        Observation::Same { id, .. } => machine.on_same(node, id, asked, now),
        Observation::Silent(_) => machine.on_silence(node),
    }
}

/// Converts the state of the lock on a node to the report for the state machine that observes the election.
fn to_lock_report(state: State) -> Option<LockReport> {
    match state {
        State::Free => Some(LockReport::Free),
        State::Guarded => Some(LockReport::Guarded),
        State::Held(info) => {
            let bytes = |name| wire::bytes(&info, name).map(<[u8]>::to_vec);
            Some(LockReport::Held {
                owner: bytes("owner")?,
                note: bytes("note")?,
                sequence: wire::number(&info, "seq")?,
            })
        }
    }
}
