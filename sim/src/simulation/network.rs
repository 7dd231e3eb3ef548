//! The network of a run: which messages arrive, when, and how often.

use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::agenda::Next;
use super::kinds::Kind;
use super::world::World;
use crate::messages::{Payload, Reply, Request};

impl World<'_> {
    /// Returns the server that receives a request: the node's own server, or the server that serves the slot instead.
    fn place(&self, request: &Request) -> usize {
        self.server_of(self.plan.server(request.who.client as usize, request.node), request.key)
    }

    pub(super) fn send(&mut self, after_ms: u32, request: Request) {
        let (client, n) = (request.who.client as usize, self.place(&request));
        let mut copies = self.copies(n, client, true);
        // A client that waits, or that locks on one node, uses a connection. A connection does not lose bytes silently,
        // and duplicates nothing.
        if matches!(request.says, Payload::Wait { .. } | Payload::Command(_)) {
            copies.truncate(1);
        }
        for delay in copies {
            self.plan_at(self.at + u64::from(after_ms) * 1_000 + delay, Next::Arrives(n, request));
        }
    }

    pub(super) fn send_back(&mut self, n: usize, reply: Reply) {
        let copies = self.copies(n, reply.who.client as usize, false);
        for delay in copies.into_iter().take(1) {
            self.plan_at(self.at + delay, Next::Returns(reply));
        }
    }

    /// Returns the delay of each copy of a message that arrives; none if the message is lost.
    pub(super) fn copies(&mut self, n: usize, client: usize, to_node: bool) -> Vec<u64> {
        let network = self.plan.network;
        // The servers of one cluster share the node's number.
        let n = n % self.plan.nodes.len();
        let mut extra = 0;
        for (fault, _) in self.plan.faults.iter().zip(&self.under_way).filter(|(_, under_way)| **under_way) {
            match fault.kind {
                Kind::Cut { node, client: only, there, back }
                    if node.is_none_or(|node| node == n)
                        && only.is_none_or(|only| only == client)
                        && if to_node { there } else { back } =>
                {
                    return vec![];
                }
                Kind::Slow { node, by_us } if node == n => extra += by_us,
                Kind::LateAnswers { client: only, by_us } if only == client && !to_node => extra += by_us,
                _ => {}
            }
        }
        let rng = &mut self.rng;
        let chance = |rng: &mut ChaCha8Rng, permille: u32| permille > 0 && rng.random_range(0..1_000) < permille;
        if !self.quiet && chance(rng, network.lost_permille) {
            return vec![];
        }
        let copies = if !self.quiet && chance(rng, network.doubled_permille) { 2 } else { 1 };
        (0..copies)
            .map(|_| {
                let longest =
                    if !self.quiet && chance(rng, network.slow_permille) { 100 } else { 2 } * network.delay_us;
                extra + rng.random_range(1..=longest)
            })
            .collect()
    }
}
