//! Keys that requests of this process watch on the nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{mpsc, watch};

use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::run::thread::Running;
use crate::{Client, Error};

/// The keys watched by this process. Each key is watched on the nodes once, for all requests.
#[derive(Debug, Default)]
pub struct Watches(Mutex<HashMap<Vec<u8>, Weak<Watch>>>);

/// A watched key.
#[derive(Debug)]
pub struct Watch {
    pub changed: watch::Receiver<u64>,
    _running: Running<()>,
}

impl Watches {
    /// Returns the watch of `key`, and begins it if there is none.
    pub fn of(&self, client: &Client, nodes: &Arc<Nodes>, key: &[u8], given: Given) -> Result<Arc<Watch>, Error> {
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watches.get(key).and_then(Weak::upgrade) {
            return Ok(watch);
        }
        if watches.len() == watches.capacity() {
            watches.retain(|_, watch| watch.strong_count() > 0);
            let live = watches.len();
            watches.reserve(live + 1);
        }
        let (nodes, watched): (_, Arc<[u8]>) = (Arc::clone(nodes), key.into());
        let (changes, changed) = watch::channel(0);
        let running = client.thread()?.run(async move {
            let (tell, mut told) = mpsc::channel(1);
            let watching = crate::run::watch::watch(nodes, watched, given, tell, |_| Some(()));
            let counting = async {
                while told.recv().await.is_some() {
                    changes.send_modify(|count| *count += 1);
                }
            };
            tokio::join!(watching, counting);
        });
        let watch = Arc::new(Watch { changed, _running: running });
        watches.insert(key.to_vec(), Arc::downgrade(&watch));
        Ok(watch)
    }
}
