//! The set of nodes in a run: the decided versions, the clients and nodes that learn of them, and the times at which a
//! node may lose its id.

use std::sync::Arc;

use palisade_core::Members;
use rand::RngExt;

use super::agenda::Next;
use super::kinds::Kind;
use super::outcome::Failure;
use super::world::World;
use crate::client::Set;

/// Returns the address of the node with this index.
pub(super) fn address(node: usize) -> String {
    format!("node-{node}")
}

/// Returns the index of the node with this address.
pub(super) fn place(address: &str) -> usize {
    address.trim_start_matches("node-").parse().unwrap_or(usize::MAX)
}

impl World<'_> {
    /// Records that a program found `members` to be decided.
    ///
    /// # Errors
    ///
    /// The version already has another list.
    pub(super) fn is_decided(&mut self, members: &Members) -> Result<(), Failure> {
        match self.decided.get(&members.version) {
            Some(before) if before != members => Err(Failure::TwoLists { version: members.version }),
            Some(_) => Ok(()),
            None => {
                self.totals.versions += 1;
                self.decided.insert(members.version, members.clone());
                Ok(())
            }
        }
    }

    /// Returns the last decided version that a program knows.
    pub(super) fn newest(&self) -> Option<&Members> {
        self.decided.last_key_value().map(|(_, members)| members)
    }

    /// Ends the connections to the node of clients that joined with a version older than `version`.
    pub(super) fn connections_of_older_end(&mut self, node: usize, version: u64) {
        for client in 0..self.clients.len() {
            if self.clients[client].1.version() < version {
                for delay in self.copies(node, client, false).into_iter().take(1) {
                    self.hear_of(client as u32, version, delay);
                }
            }
        }
    }

    /// Makes a client hear of `version` after `delay`. The client uses it at once, or after a random time more.
    pub(super) fn hear_of(&mut self, client: u32, version: u64, delay: u64) {
        let late = match self.quiet {
            true => 0,
            false => self.rng.random_range(0..=self.plan.learns_after_us),
        };
        self.plan_at(self.at + delay + late, Next::Learns(client, version));
    }

    pub(super) fn learn(&mut self, client: u32, version: u64) -> Result<(), Failure> {
        let Some(members) = self.decided.get(&version) else { return Ok(()) };
        let known = self.clients[client as usize].1.version();
        if known >= version {
            return Ok(());
        }
        let set = Arc::new(Set::of_members(members, place));
        self.totals.learnt += 1;
        self.totals.moved += u64::from(self.clients[client as usize].1.holding().is_some());
        self.tell(|| format!("client {client} learns of version {version}"));
        self.on_client(client, |client, now| client.learn(set, now))
    }

    /// Restarts a client after a kill. It starts with the addresses in its configuration, or with the last version that
    /// it knew.
    pub(super) fn start_from(&mut self, client: u32) {
        if self.plan.changes_set() && self.may_go_by_names() && self.rng.random() {
            let set = Arc::new(Set::of_names(self.plan.first_set()));
            self.clients[client as usize].1.start_from(set);
        }
    }

    /// Returns true if a client may start with addresses alone, without the servers' ids. A client that knows no
    /// version of the set cannot distinguish a node from another server at its address. Neither can a program that
    /// founds the first version. So no node may lose its state file between the founding and the moment after which
    /// every client and program knows a version.
    fn may_go_by_names(&self) -> bool {
        !self.is_id_lost
    }

    /// Returns true if a node may lose its id now: before the set is founded, or once every client knows a version of
    /// the set. Records the loss if the set is founded.
    pub(super) fn may_lose_id(&mut self) -> bool {
        if !self.is_founded {
            return true;
        }
        let may = self.newest().is_some() && self.clients.iter().all(|(_, client)| client.version() > 0);
        self.is_id_lost |= may;
        may
    }

    /// Returns true if this fault would change the id of a node that must keep it.
    pub(super) fn is_excluded(&mut self, kind: &Kind) -> bool {
        matches!(kind, Kind::NewDisk { .. } | Kind::OtherStateFile { .. }) && !self.may_lose_id()
    }

    /// Makes all clients, and all nodes that are members, learn the newest version.
    pub(super) fn all_learn(&mut self) -> Result<(), Failure> {
        let Some(newest) = self.newest().cloned() else { return Ok(()) };
        for node in newest.list.iter().map(|member| place(&member.address)) {
            let members = newest.clone();
            self.on_server(node, |server, now| server.adopt(members, now));
            self.write_at_once(node);
        }
        for client in 0..self.clients.len() {
            self.learn(client as u32, newest.version)?;
        }
        Ok(())
    }

    /// Returns true if a majority of the newest version is up, with the ids that the version has. Otherwise no lock can
    /// be acquired any longer, since too many nodes have lost their ids.
    pub(super) fn has_majority(&self) -> bool {
        let Some(newest) = self.newest() else { return true };
        let is_there = |member: &&palisade_core::Member| {
            let server = self.nodes[place(&member.address)].server.as_ref();
            server.is_some_and(|server| Some(server.id().0) == member.id)
        };
        newest.list.iter().filter(is_there).count() >= palisade_core::quorum::majority(newest.list.len())
    }
}
