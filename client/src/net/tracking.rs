//! Receives the nodes' reports that a held lock may have changed there.
//!
//! A server reports the next change of a key to the connection that read it (client-side caching, `CLIENT TRACKING`).
//! It does so once, and again only after the next read. So nothing is polled, and no connection is blocked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::Value;
use tokio::sync::watch;

/// For each node, the number of reported changes of one key.
type Changes = Box<[u64]>;

/// The keys of held locks whose changes nodes report. Several guards may share a key.
#[derive(Debug)]
pub struct Tracked {
    nodes: usize,
    keys: Mutex<HashMap<Vec<u8>, watch::Sender<Changes>>>,
}

/// A tracked key, until this is dropped.
pub struct Tracking {
    tracked: Arc<Tracked>,
    key: Vec<u8>,
    changes: watch::Receiver<Changes>,
    seen: Changes,
}

impl Tracked {
    /// Creates an empty table for this many nodes.
    pub fn new(nodes: usize) -> Self {
        Self { nodes, keys: Mutex::default() }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Vec<u8>, watch::Sender<Changes>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tracks changes of `key` from now on.
    pub fn track(self: &Arc<Self>, key: &[u8]) -> Tracking {
        let none = || vec![0; self.nodes].into_boxed_slice();
        let changes = self.keys().entry(key.to_vec()).or_insert_with(|| watch::Sender::new(none())).subscribe();
        let seen = changes.borrow().clone();
        Tracking { tracked: Arc::clone(self), key: key.to_vec(), changes, seen }
    }

    /// Records that `node` reported a change of the keys in `data`, or of all keys when it was flushed.
    pub fn changed(&self, node: usize, data: &[Value]) {
        let keys = self.keys();
        let tell = |changes: &watch::Sender<Changes>| changes.send_modify(|changes| changes[node] += 1);
        match data {
            [Value::Array(names)] => {
                let names = names.iter().filter_map(|name| match name {
                    Value::BulkString(name) => keys.get(name),
                    _ => None,
                });
                names.for_each(tell);
            }
            _ => keys.values().for_each(tell),
        }
    }
}

impl Tracking {
    /// Returns the nodes where the lock may have changed since the last call; waits until there is one.
    pub async fn changed(&mut self) -> Vec<usize> {
        let seen = &self.seen;
        // The sender lives as long as this, so this cannot fail.
        let _ = self.changes.wait_for(|changes| changes != seen).await.is_ok();
        let changes = self.changes.borrow().clone();
        let seen = std::mem::replace(&mut self.seen, changes);
        (0..seen.len()).filter(|&node| self.seen[node] != seen[node]).collect()
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        let mut keys = self.tracked.keys();
        // This receiver, which is being dropped, still counts.
        if keys.get(&self.key).is_some_and(|changes| changes.receiver_count() <= 1) {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn invalidated(names: &[&str]) -> Vec<Value> {
        vec![Value::Array(names.iter().map(|name| Value::BulkString(name.as_bytes().to_vec())).collect())]
    }

    #[test]
    fn each_lock_is_told_of_its_key_alone_and_of_nodes_that_were_emptied() {
        let tracked = Arc::new(Tracked::new(3));
        let (mut one, mut two) = (tracked.track(b"one"), tracked.track(b"two"));
        assert_eq!(one.changed().now_or_never(), None);
        tracked.changed(1, &invalidated(&["one", "other"]));
        assert_eq!((one.changed().now_or_never(), two.changed().now_or_never()), (Some(vec![1]), None));
        assert_eq!(one.changed().now_or_never(), None, "once");
        tracked.changed(0, &[Value::Nil]);
        tracked.changed(2, &invalidated(&["two"]));
        assert_eq!((one.changed().now_or_never(), two.changed().now_or_never()), (Some(vec![0]), Some(vec![0, 2])));
    }

    #[test]
    fn a_key_is_tracked_as_long_as_one_of_its_locks_is_held() {
        let tracked = Arc::new(Tracked::new(1));
        let one = tracked.track(b"k");
        let mut two = tracked.track(b"k");
        drop(one);
        tracked.changed(0, &invalidated(&["k"]));
        assert_eq!(two.changed().now_or_never(), Some(vec![0]));
        drop(two);
        assert!(tracked.keys().is_empty());
    }
}
