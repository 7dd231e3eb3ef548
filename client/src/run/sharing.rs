//! The callers that wait until a majority of the nodes has made the owner of a held lock a reader.

use palisade_quorum::majority;

use crate::net::nodes::Nodes;
use crate::run::shared::Done;
use crate::{Error, ErrorKind, Why};

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
        self.waiting.drain(..).for_each(|done| drop(done.send(outcome.clone())));
    }

    /// Handles the answer of `node`, one of `nodes`; `why` tells why it did not convert the lock. Callers are not kept
    /// waiting for a majority that somebody has to enable first.
    pub fn on_answer(&mut self, nodes: &Nodes, node: usize, why: Option<&Why>) {
        self.refusals.resize(nodes.len(), None);
        self.refusals[node] = why.filter(|why| why.is_lasting()).cloned();
        if self.refusals.iter().flatten().count() > nodes.len() - majority(nodes.len()) {
            let text = "too few nodes make its owner a reader (LOCK.CONVERT); rely on it as a reader all the same";
            let error = Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&self.refusals)).lasting(true);
            self.end(&Err(error));
        }
    }

    /// Forgets the refusals, because the set of nodes is another one.
    pub fn moves(&mut self) {
        self.refusals.clear();
    }
}
