//! Nodes that are parts of clusters. Each node has a neighbour, a server without faults that may receive its slots.
//!
//! A client follows redirections, so it asks the server that has the slot. A message that is on its way while a slot
//! moves reaches a server that no longer serves the slot.

use palisade_core::{CLUSTER_SLOTS, SlotSet, slot_of};

use super::world::World;
use crate::server::name;

impl World<'_> {
    /// Returns the index of the server that has the slot of `key` in the cluster of `node`: the node's own server, or
    /// its neighbour if the slot was given away.
    pub(super) fn server_of(&self, node: usize, key: u32) -> usize {
        if self.given_away.contains(&(node, key)) { self.plan.nodes.len() + node } else { node }
    }

    /// Returns the slots of server `n`.
    pub(super) fn slots_of(&self, n: usize) -> SlotSet {
        let count = self.plan.nodes.len();
        let given_away = self.given_away.iter().filter(|(node, _)| *node == n % count);
        let given_away: Vec<u16> = given_away.map(|(_, key)| slot_of(&name(*key))).collect();
        let mut slots = SlotSet::default();
        let is_of = |slot: &u16| given_away.contains(slot) == (n >= count);
        (0..CLUSTER_SLOTS).filter(is_of).for_each(|slot| slots.insert(slot..=slot));
        slots
    }

    pub(super) fn give_slot_away(&mut self, node: usize, key: u32) {
        if self.given_away.insert((node, key)) {
            self.slots_change(node);
        }
    }

    /// Gives a slot back to its first server, as an operator. Starts that server if it is down.
    pub(super) fn give_slot_back(&mut self, node: usize, key: u32) {
        if self.nodes[node].server.is_none() {
            self.start(node);
        }
        if self.given_away.remove(&(node, key)) {
            self.slots_change(node);
        }
    }

    fn slots_change(&mut self, node: usize) {
        for n in [node, self.plan.nodes.len() + node] {
            let owned = self.slots_of(n);
            self.on_server(n, |server, now| server.own_slots(&owned, now));
            self.write_at_once(n);
        }
    }

    pub(super) fn flush_slot(&mut self, node: usize, key: u32) {
        let n = self.server_of(node, key);
        self.on_server(n, |server, now| server.flush_slot(key, now));
        self.write_at_once(n);
    }
}
