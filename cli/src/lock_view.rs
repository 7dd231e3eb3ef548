//! A lock as all nodes together tell of it.

use std::collections::BTreeMap;

use redis::{Cmd, Value, cmd};
use serde::Serialize;

use crate::node_failure::NodeFailure;
use crate::nodes::{Fields, Nodes, Reply};
use crate::show::{printable, time};

/// Most waiters that are listed.
const WAITERS_LISTED: usize = 10;

/// A lock, and who holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LockView {
    /// Its name; bytes that are no UTF-8 are replaced.
    pub key: String,
    /// The note of the holder.
    pub holder: String,
    /// The owner, as its client named this acquisition, in hexadecimal.
    pub owner: String,
    /// What a majority has at least; without one, the largest.
    pub token: u64,
    pub holds: u64,
    pub held_ms: u64,
    /// For how long the lease still runs, where longest.
    pub ttl_ms: u64,
    /// On so many nodes this owner holds it.
    pub nodes: usize,
    /// Whether these are a majority: if not, it is being taken, or ends with its lease.
    pub is_held: bool,
    /// Nodes that cannot vouch for it: there it keeps others out until its lease ends, and is not extended.
    pub suspect: usize,
    /// Most that wait for it on one node.
    pub waiters: u64,
    /// The first of them.
    pub queue: Vec<Waiter>,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiter {
    pub note: String,
    pub owner: String,
    pub waited_ms: u64,
}

/// What a node tells of a lock.
struct Told {
    owner: Vec<u8>,
    token: u64,
    fields: Fields,
}

/// The command that asks a node for it.
pub fn question(key: &[u8]) -> Cmd {
    cmd("LOCK.INFO").arg(key).arg("WAITERS").arg(WAITERS_LISTED).take()
}

impl LockView {
    /// What `replies`, of one node each, come to; `None`: nobody holds it anywhere.
    pub fn of(key: &[u8], replies: impl IntoIterator<Item = Value>, majority: usize) -> Option<Self> {
        let mut owners: BTreeMap<Vec<u8>, Vec<Told>> = BTreeMap::new();
        let mut waiters = 0;
        let mut queue = vec![];
        for fields in replies.into_iter().filter_map(Fields::of) {
            let told = Told { owner: fields.get("owner"), token: fields.get("token"), fields };
            let waiting: u64 = told.fields.get("waiters");
            if waiting > waiters {
                waiters = waiting;
                queue = told.fields.get("queue");
            }
            // Nobody holds it there, and yet some wait: for a guard to end, or for one who was told to take it.
            if !told.owner.is_empty() {
                owners.entry(told.owner.clone()).or_default().push(told);
            }
        }
        let mut told = owners.into_values().max_by_key(Vec::len)?;
        told.sort_by_key(|told| std::cmp::Reverse(told.token));
        let max = |name| told.iter().map(|told| told.fields.get::<u64>(name)).max().unwrap_or(0);
        let first = &told[0];
        Some(Self {
            key: String::from_utf8_lossy(key).into_owned(),
            holder: String::from_utf8_lossy(&first.fields.get::<Vec<u8>>("note")).into_owned(),
            owner: hex(&first.owner),
            token: told.get(majority - 1).unwrap_or(first).token,
            holds: max("holds"),
            held_ms: max("held"),
            ttl_ms: max("ttl"),
            nodes: told.len(),
            is_held: told.len() >= majority,
            suspect: told.iter().filter(|told| told.fields.get::<u64>("suspect") > 0).count(),
            waiters,
            queue: queue.into_iter().filter_map(Waiter::of).collect(),
        })
    }

    /// This lock on these nodes, now; with what each node had to say.
    pub async fn ask(nodes: &Nodes, key: &[u8]) -> (Option<Self>, Vec<Result<Reply, NodeFailure>>) {
        let replies = nodes.ask(&question(key)).await;
        (Self::of(key, replies.iter().flatten().map(|reply| reply.value.clone()), nodes.majority()), replies)
    }

    /// Who holds it and for how long, in a line.
    pub fn holder_line(&self) -> String {
        format!("held by {} for {}", self.holder_name(), time(self.held_ms))
    }

    /// The holder, as people know it.
    pub fn holder_name(&self) -> String {
        if self.holder.is_empty() { "somebody without a note".to_owned() } else { printable(self.holder.as_bytes()) }
    }
}

impl Waiter {
    fn of(reply: Value) -> Option<Self> {
        let fields = Fields::of(reply)?;
        Some(Self {
            note: String::from_utf8_lossy(&fields.get::<Vec<u8>>("note")).into_owned(),
            owner: hex(&fields.get::<Vec<u8>>("owner")),
            waited_ms: fields.get("waited"),
        })
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(owner: &str, token: i64) -> Value {
        let text = |text: &str| Value::BulkString(text.into());
        Value::Map(vec![(text("owner"), text(owner)), (text("token"), Value::Int(token)), (text("note"), text("n"))])
    }

    #[test]
    fn the_token_is_what_a_majority_has_at_least() {
        let view = |replies: Vec<Value>| LockView::of(b"k", replies, 2).unwrap();
        let all = view(vec![info("a", 7), info("a", 9), info("a", 8)]);
        assert_eq!((all.token, all.nodes, all.is_held), (8, 3, true));
        let split = view(vec![info("a", 7), info("b", 9), Value::Nil]);
        assert_eq!((split.nodes, split.is_held), (1, false));
        let most = view(vec![info("a", 7), info("b", 9), info("a", 7)]);
        assert_eq!((most.owner.as_str(), most.token), ("61", 7));
        assert_eq!(LockView::of(b"k", vec![Value::Nil], 2), None);
        let (free, one) = (info("", 0), view(vec![info("", 0), info("a", 7), info("", 0)]));
        assert_eq!(
            (one.owner.as_str(), one.nodes, one.is_held),
            ("61", 1, false),
            "nodes where it is free do not count"
        );
        assert_eq!(LockView::of(b"k", vec![free.clone(), free], 2), None);
    }
}
