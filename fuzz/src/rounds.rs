//! Fuzzes a wait for a majority, and a release on all nodes: with answers in any order, repeated, or from one server
//! under two names.

use std::collections::BTreeSet;

use arbitrary::{Arbitrary, Result, Unstructured};
use palisade_core::quorum::{NodeId, Release, Released, Turn, TurnProgress, majority};

/// The answer of one node to a wait and to a release. `server` says that the lock is free; `None` if the node does not
/// say so. `held` is whether the node had the lock; `None` if that is unknown.
#[derive(Debug, Arbitrary)]
struct FuzzedAnswer {
    node: u8,
    server: Option<u8>,
    held: Option<bool>,
}

/// Returns the number of the permit that this server reserves.
fn kept(server: u8) -> u16 {
    1 + u16::from(server / 64)
}

/// Runs a wait and a release that are made of the bytes: the number of nodes, then their answers one after the other.
pub fn run(input: &[u8]) {
    let _ = all(&mut Unstructured::new(input));
}

fn all(bytes: &mut Unstructured<'_>) -> Result<()> {
    let nodes = bytes.int_in_range(1..=7)?;
    let (mut turn, mut release) = (Turn::begin(nodes), Release::begin(nodes));
    let mut last: Vec<Option<FuzzedAnswer>> = (0..nodes).map(|_| None).collect();
    // For each node, the server that answered last that the lock is free. A node that then stops answering does not
    // withdraw that.
    let mut told: Vec<Option<u8>> = vec![None; nodes];
    // For each node, whether it had the lock when it was released; `None` if that is unknown.
    let mut had: Vec<Option<bool>> = vec![None; nodes];
    // For each node, the permit number that it reserved.
    let mut numbers: Vec<u16> = vec![0; nodes];
    while !bytes.is_empty() {
        let says: FuzzedAnswer = bytes.arbitrary()?;
        let node = usize::from(says.node) % nodes;
        // The servers are few, so that one often has two names.
        let progress = turn.on_answer(node, says.server.map(|server| (NodeId((server % 8).into()), kept(server))));
        release.on_answer(node, says.held);
        // If the first answer of a node was lost, the first request may have released the lock. So its later "no"
        // proves nothing.
        let was_silent = last[node].is_some();
        had[node] = had[node].or(says.held.filter(|held| *held || !was_silent));
        numbers[node] = says.server.map_or(numbers[node], kept);
        told[node] = says.server.map(|server| server % 8).or(told[node]);
        last[node] = Some(says);

        let answered = || last.iter().flatten();
        let servers: BTreeSet<u8> = told.iter().flatten().copied().collect();
        let silent = answered().filter(|says| says.server.is_none()).count();
        let number = turn.number(servers.len() as u64);
        assert_eq!(number.is_some(), !servers.is_empty());
        assert!(number.is_none_or(|number| numbers.contains(&number)), "{number:?} of {numbers:?}");
        match progress {
            TurnProgress::Free => assert!(servers.len() >= majority(nodes), "free at {servers:?} of {nodes}"),
            TurnProgress::Goes => {}
            TurnProgress::Impossible => {
                assert!(answered().count() > nodes - majority(nodes), "{nodes} nodes, {silent} silent")
            }
        }
        let count = |what| had.iter().filter(|had| **had == Some(what)).count() >= majority(nodes);
        let expected = match (count(true), count(false)) {
            (true, _) => Released::Released,
            (false, true) => Released::NotHeld,
            (false, false) => Released::Unknown,
        };
        assert_eq!(release.outcome(), expected, "{had:?}");
        assert_eq!(release.is_complete(), answered().count() == nodes);
        assert_eq!(release.silent().count(), had.iter().filter(|had| had.is_none()).count());
    }
    Ok(())
}
