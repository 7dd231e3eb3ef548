//! The faults of a run, their ends, and the checks afterwards.

use palisade_core::Wanted;
use rand::RngExt;

use super::agenda::Next;
use super::kinds::Kind;
use super::node::Files;
use super::outcome::Failure;
use super::world::World;
use crate::client::Step;
use crate::server::NOT_YET_MS;
use crate::single_client::{FIRST, SingleClient};

/// The number of successive questions of an acquisition: ACQUIRE and FENCE, each up to twice.
const QUESTIONS: u64 = 4;

/// The longest wait, in milliseconds, of a client that locks on one node when nothing disturbs it.
const SOON_MS: u32 = 50;

/// The time, in microseconds, after which a client repeats a request to a node that was not ready.
const NOT_YET_US: u64 = NOT_YET_MS as u64 * 1_000;

impl World<'_> {
    pub(super) fn begin_fault(&mut self, number: usize) -> Result<(), Failure> {
        let fault = self.plan.faults[number];
        if self.quiet || self.plan.is_excepted(&fault) || self.is_excluded(&fault.kind) {
            return Ok(());
        }
        *self.totals.faults.entry(fault.kind.name()).or_default() += 1;
        self.tell(|| format!("fault {number}: {:?}, for {} us", fault.kind, fault.for_us));
        self.under_way[number] = true;
        let end = self.at + fault.for_us;
        match fault.kind {
            Kind::Crash { node, .. } => self.kill(node),
            Kind::NewDisk { node } => {
                self.kill(node);
                let node = &mut self.nodes[node];
                node.id = node.id.wrapping_add(1_000);
                node.files = Files::default();
            }
            Kind::Failover { node, .. } => self.kill(node),
            Kind::Restart { node, .. } => self.shut_down(node),
            Kind::OlderFiles { node } => self.copy_files(node),
            Kind::OtherStateFile { node } => self.change_state_file(node),
            Kind::RaisedTokens => self.raise_tokens(),
            Kind::Flush { node } => {
                self.on_server(node, |server, now| server.flush(now));
            }
            Kind::Break { node, key } if self.has_several(node, key) => self.take_one_away(node, key),
            Kind::Break { node, key } => self.take_away(node, key, |server, now| server.break_lock(key, now)),
            Kind::Delete { node, key } => self.take_away(node, key, |server, now| server.delete(key, now)),
            Kind::Evict { node, key } => self.evict(node, key),
            Kind::Arm { node } => {
                let ms = u32::try_from(fault.for_us / 1_000).unwrap_or(u32::MAX);
                self.on_server(node, |server, now| server.arm(ms, now));
                self.write_at_once(node);
            }
            Kind::SlotGivenAway { node, key, dies } => {
                if dies {
                    self.kill(node);
                }
                self.give_slot_away(node, key);
            }
            Kind::FlushSlot { node, key } => self.flush_slot(node, key),
            Kind::SetNodes { wants, dies_after } => self.changer_begins(number, wants, dies_after),
            Kind::PauseNode { node } => {
                let until = &mut self.nodes[node].machine.paused_until;
                *until = end.max(*until);
            }
            Kind::PauseClient { client } => {
                let until = &mut self.machine_of(client as u32).paused_until;
                *until = end.max(*until);
            }
            Kind::KillClient { client } => self.kill_client(client as u32)?,
            Kind::DiskHangs { node } => {
                let until = &mut self.nodes[node].hangs_until;
                *until = end.max(*until);
            }
            Kind::NodeClockStep { node, by_us } => self.nodes[node].machine.step(by_us),
            Kind::ClientClockStep { client, by_us } => self.clients[client].0.step(by_us),
            Kind::Cut { .. } | Kind::Slow { .. } | Kind::LateAnswers { .. } => {}
            Kind::BreakAll { key } => {
                self.break_everywhere(key);
                return Ok(());
            }
            Kind::BreakInTurn { key, .. } => return self.break_in_turn(number, key),
            Kind::Stalls { .. } | Kind::Bursts { .. } => {
                self.plan_at(end, Next::Ends(number));
                return self.again(number, 0);
            }
        }
        self.break_things_until(end);
        self.plan_at(end, Next::Ends(number));
        Ok(())
    }

    /// Returns true at random, in half of the cases in which several clients hold the lock of `key`. The caller then
    /// breaks one of the grants.
    fn has_several(&mut self, node: usize, key: u32) -> bool {
        let server = self.nodes[self.server_of(node, key)].server.as_ref();
        let several = server.and_then(|server| server.locks().get(&key)).is_some_and(|lock| lock.len() > 1);
        several && self.rng.random()
    }

    pub(super) fn end_fault(&mut self, number: usize) {
        if !std::mem::take(&mut self.under_way[number]) {
            return;
        }
        let fault = self.plan.faults[number];
        match fault.kind {
            Kind::Crash { node, reboot } | Kind::Restart { node, reboot } if self.nodes[node].server.is_none() => {
                if reboot {
                    self.nodes[node].machine.reboot(self.at);
                }
                self.start(node);
            }
            Kind::NewDisk { node } if self.nodes[node].server.is_none() => self.start(node),
            Kind::SlotGivenAway { node, key, .. } => self.give_slot_back(node, key),
            Kind::OlderFiles { node } if self.may_lose_id() => self.restore_files(node),
            Kind::SetNodes { .. } => drop(self.changers.remove(&number)),
            Kind::OtherStateFile { node } => self.change_state_file_back(node),
            Kind::RaisedTokens => self.raise_tokens(),
            Kind::Failover { node, lag_us } if self.nodes[node].server.is_none() => {
                let died = self.nodes[node].died;
                match self.may_lose_id() {
                    true => self.promote(node, died.saturating_sub(lag_us)),
                    // The node must keep its id now, so its own server starts again instead of the replica.
                    false => self.start(node),
                }
            }
            Kind::KillClient { client } => self.begin_again(client as u32),
            _ => {}
        }
    }

    /// Raises the tokens of a hostile client's keys as far as the nodes allow.
    fn raise_tokens(&mut self) {
        let keys = self.plan.keys;
        for n in 0..self.nodes.len() {
            self.on_server(n, |server, now| server.raise_far(keys, now));
        }
    }

    /// Ends every fault, and keeps clients from beginning anything new.
    pub(super) fn heal(&mut self) -> Result<(), Failure> {
        self.quiet = true;
        self.taking.iter_mut().for_each(|taking| *taking = None);
        self.lines.clear();
        for fault in 0..self.plan.faults.len() {
            self.end_fault(fault);
        }
        for n in 0..self.nodes.len() {
            (self.nodes[n].hangs_until, self.nodes[n].machine.paused_until) = (0, 0);
            if self.nodes[n].server.is_none() {
                self.start(n);
            }
            self.on_server(n, |_, _| ());
        }
        for n in 0..self.clients.len() {
            (self.clients[n].0.paused_until, self.clients[n].0.down) = (0, false);
        }
        for (machine, _) in &mut self.single_clients {
            (machine.paused_until, machine.down) = (0, false);
        }
        self.tell(|| "every fault has ended".to_owned());
        self.all_learn()
    }

    /// Returns the longest time of an acquisition without faults, in microseconds. Each question is answered within a
    /// node's timeout. The first answer to ACQUIRE and to FENCE may be that the node is not ready yet, so both are
    /// asked again.
    fn longest_acquisition_us(&self) -> u64 {
        QUESTIONS * u64::from(self.plan.node_timeout_ms) * 1_000 + QUESTIONS / 2 * NOT_YET_US
    }

    /// Checks that every lock can be acquired at once, and that no request waits.
    pub(super) fn comes_right(&mut self) -> Result<(), Failure> {
        // Clients that still hold or want a lock stop.
        for n in 0..self.clients.len() as u32 {
            let gone =
                self.on_client(n, |client, now| if client.is_idle() { Step::default() } else { client.release(now) });
            gone?;
        }
        for n in 0..self.single_clients.len() as u32 {
            let goes = |client: &mut SingleClient, now| match client.holding() {
                Some(_) => client.release(now),
                None => client.leave(now),
            };
            self.on_single(FIRST + n, goes)?;
        }
        self.run_until(self.at + 1_000_000)?;
        // A wait whose end did not reach the client ends at its own time limit.
        self.run_until(self.at + 10_000_000)?;
        for (n, node) in self.nodes.iter().enumerate() {
            if node.server.as_ref().is_some_and(|server| !server.node().waiting().is_empty()) {
                return Err(Failure::Unserved { node: n });
            }
        }
        let keys = if self.has_majority() { self.plan.keys } else { 0 };
        let asks = self.plan.has_every_node();
        for key in 0..keys {
            let held = self.totals.held;
            self.on_client(asks, |client, now| client.acquire(key, now))?;
            self.run_until(self.at + self.longest_acquisition_us())?;
            if self.totals.held == held {
                return Err(Failure::Stuck { key });
            }
            self.on_client(asks, |client, now| client.release(now))?;
            self.run_until(self.at + 1_000_000)?;
        }
        for n in 0..self.plan.single_clients.len() {
            let number = FIRST + n as u32;
            for key in self.plan.keys_of(self.plan.single_clients[n].node) {
                let held = self.totals.single_held;
                self.on_single(number, |client, now| client.acquire(key, Wanted::Exclusive, SOON_MS, now))?;
                self.run_until(self.at + self.longest_acquisition_us() + u64::from(SOON_MS) * 1_000)?;
                if self.totals.single_held == held {
                    return Err(Failure::Stuck { key });
                }
                self.on_single(number, SingleClient::release)?;
                self.run_until(self.at + 1_000_000)?;
            }
        }
        Ok(())
    }
}
