//! The callers that wait until a majority of the nodes has made the owner of a held lock a reader.

use crate::net::nodes::Nodes;
use crate::run::shared::{Done, answer};
use crate::{Error, Why};

/// The callers of one lock, with the nodes that refuse for good to convert it (LOCK.CONVERT).
#[derive(Default)]
pub struct Sharing {
    waiting: Vec<Done>,
    refusals: Vec<Option<Why>>,
}

impl Sharing {
    /// Adds a caller.
    pub fn wait(&mut self, done: Done) {
        self.waiting.push(done);
    }

    /// Tells all callers the outcome.
    pub fn end(&mut self, outcome: &Result<(), Error>) {
        answer(&mut self.waiting, outcome);
    }

    /// Handles the answer of `node`, one of `nodes`; `why` tells why it did not convert the lock. Callers are not kept
    /// waiting for a majority that somebody has to enable first.
    pub fn on_answer(&mut self, nodes: &Nodes, node: usize, why: Option<&Why>) {
        self.refusals.resize(nodes.len(), None);
        self.refusals[node] = why.filter(|why| why.is_lasting()).cloned();
        let text = "too few nodes make its owner a reader (LOCK.CONVERT); rely on it as a reader all the same";
        if let Some(error) = nodes.refuse_for_good(&self.refusals, text) {
            self.end(&Err(error));
        }
    }

    /// Forgets the refusals, because the set of nodes is another one.
    pub fn moves(&mut self) {
        self.refusals.clear();
    }
}
