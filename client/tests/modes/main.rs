//! Shared locks and permits over several nodes: the client, and nodes in this process that know modes.
//!
//! A node here is as simple as can be, and says what it was asked, so that a test can count messages, take a grant away or refuse
//! one command. What real servers do is tested beside real servers.

#![allow(clippy::disallowed_methods)]

mod blocking;
mod cancelling;
mod downgrading;
mod key;
mod node;
mod permits;
mod reading;
mod resp;

use std::future::Future;
use std::time::{Duration, Instant};

use palisade_client::{Client, ErrorKind, Guard, Options};

use crate::node::Node;

/// Nodes that serve.
pub struct Nodes(pub Vec<Node>);

impl Nodes {
    /// So many.
    pub async fn start(count: usize) -> Self {
        let mut nodes = vec![];
        for n in 0..count {
            nodes.push(Node::start(n as u128 + 1).await);
        }
        Self(nodes)
    }

    /// Their addresses.
    pub fn addresses(&self) -> Vec<String> {
        self.0.iter().map(Node::address).collect()
    }

    /// A client of all of them, connected, that gives each all the time it needs.
    pub async fn client(&self) -> Client {
        let patient = Options::new().ttl(Duration::from_secs(60)).node_timeout(Duration::from_secs(10));
        let client = Client::builder().nodes(self.addresses()).defaults(patient).build().unwrap();
        let key = format!("connected-{:x}", rand::random::<u64>());
        let guard = client.lock(&key).await.unwrap();
        // Not a majority alone: what the others are asked would come later, and be counted.
        until("all have it", || self.holding(&key) == self.0.len()).await;
        guard.release().await;
        until("it is free again", || self.holding(&key) == 0).await;
        self.0.iter().for_each(Node::hear_no_more);
        client
    }

    /// How often each was asked `command`.
    pub fn asked(&self, command: &str) -> Vec<usize> {
        self.0.iter().map(|node| node.asked(command)).collect()
    }

    /// On how many somebody waits for `key`.
    pub fn waited_on(&self, key: &str) -> usize {
        self.0.iter().filter(|node| node.waiters(key) > 0).count()
    }

    /// On how many `key` is held.
    pub fn holding(&self, key: &str) -> usize {
        self.0.iter().filter(|node| !node.grants(key).is_empty()).count()
    }
}

/// Returns when `condition` holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Runs `future` until `condition` holds, and hands it back: it must not have ended by then.
pub async fn meanwhile<F: Future + Unpin>(mut future: F, what: &str, condition: impl FnMut() -> bool) -> F
where
    F::Output: std::fmt::Debug,
{
    tokio::select! {
        biased;
        () = until(what, condition) => future,
        output = &mut future => panic!("it ended before {what}: {output:?}"),
    }
}

/// Extends it. A round in which too few nodes take part is followed by another: the client may not have heard of all grants when
/// it began.
pub async fn extend(guard: &Guard) {
    while let Err(error) = guard.extend().await {
        assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    }
}
