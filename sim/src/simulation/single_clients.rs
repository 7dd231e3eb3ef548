//! Clients of a run that lock on one node: when they want a lock, wait for it, keep it and leave. Also the actions of
//! operators on such a lock.

use palisade_core::Now;
use rand::RngExt;

use super::agenda::{Next, SingleWake, Wake};
use super::machine::Machine;
use super::outcome::Failure;
use super::world::World;
use crate::client::{Status, Step};
use crate::history::{HeldAs, Holder};
use crate::messages::{Command, Payload};
use crate::server::Server;
use crate::single_client::{FIRST, SingleClient};

/// The number of a holder's actions during one lease.
const ACTS_OF_TTL: u64 = 4;

/// The largest number of holds that an owner takes.
const LEVEL_MAX: u32 = 4;

/// The longest time, in microseconds, for a request to be answered once no other request waits for its lock.
const LATE_US: u64 = 200_000;

/// The time between a client's last check of its lock and its write, in microseconds.
const LOOK_TO_WRITE_US: u64 = 20_000;

/// Returns the index of a client among the clients that lock on one node; `None` for a client of the quorum.
fn place(client: u32) -> Option<usize> {
    client.checked_sub(FIRST).map(|place| place as usize)
}

impl World<'_> {
    /// Returns the computer of a client.
    pub(super) fn machine_of(&mut self, client: u32) -> &mut Machine {
        match place(client) {
            Some(place) => &mut self.single_clients[place].0,
            None => &mut self.clients[client as usize].0,
        }
    }

    /// Restarts a client after its process was killed.
    pub(super) fn begin_again(&mut self, client: u32) {
        self.machine_of(client).down = false;
        match place(client) {
            Some(place) => {
                let who = self.single_clients[place].1.who();
                self.single_wakes(who, self.plan.rest_us, SingleWake::Wants);
            }
            None => {
                self.start_from(client);
                let who = self.clients[client as usize].1.who();
                self.plan_wake(who, self.plan.rest_us, Wake::Wants);
            }
        }
    }

    /// Kills a client's process.
    pub(super) fn kill_client(&mut self, client: u32) -> Result<(), Failure> {
        if place(client).is_some() {
            self.on_single(client, SingleClient::leave)?;
        } else {
            self.on_client(client, |client, _| client.forget())?;
            self.stop_taking(client, false)?;
        }
        self.machine_of(client).down = true;
        Ok(())
    }

    /// Plans an action after about `mean_us` of true time.
    pub(super) fn single_wakes(&mut self, who: Holder, mean_us: u64, wake: SingleWake) {
        let after = self.rng.random_range(0..=2 * mean_us);
        self.plan_at(self.at + after, Next::SingleWakes(who, wake));
    }

    pub(super) fn on_single_wake(&mut self, who: Holder, wake: SingleWake) -> Result<(), Failure> {
        let Some(place) = place(who.client) else { return Ok(()) };
        let (machine, client) = &self.single_clients[place];
        if client.who() != who || machine.down {
            return Ok(());
        }
        let (is_idle, is_free, holding) = (client.is_idle(), client.is_free(), client.holding());
        match wake {
            SingleWake::Wants if is_idle && !self.quiet => {
                // A client that does not know that it lost its lock may send such a request.
                if self.rng.random_ratio(1, 10) {
                    self.on_single(who.client, SingleClient::reenters_too_late)?;
                }
                let keys = self.plan.keys_of(self.plan.single_clients[place].node);
                let key = keys[usize::from(self.rng.random_ratio(1, 5))];
                let wait_ms = self.plan.single_clients[place].wait_ms;
                let wanted = self.draw_mode(self.plan.single_clients[place].limit);
                self.on_single(who.client, |client, now| client.acquire(key, wanted, wait_ms, now))
            }
            SingleWake::Misses(number) if client.awaits(number) => {
                // A waiting client leaves and opens another connection. The old connection may stay open.
                if self.rng.random_ratio(1, 3) {
                    self.totals.left += u64::from(client.is_acquiring());
                    return self.on_single(who.client, SingleClient::leave);
                }
                self.totals.repeated += 1;
                self.on_single(who.client, SingleClient::repeat)
            }
            // The client doubts its connection, and sends the request again over another one.
            SingleWake::Doubts if client.is_acquiring() && !client.is_free() => {
                self.totals.repeated += 1;
                self.on_single(who.client, SingleClient::repeat)
            }
            SingleWake::Leaves if client.is_acquiring() => {
                self.totals.left += 1;
                self.on_single(who.client, SingleClient::leave)
            }
            SingleWake::Acts => {
                let Some((_, until, token, level)) = holding else { return Ok(()) };
                let (key, mode) = (client.key(), client.mode());
                let ttl_us = u64::from(self.plan.ttl_ms) * 1_000;
                let is_valid = machine.now(self.at).boot < until;
                self.single_wakes(who, ttl_us / ACTS_OF_TTL, SingleWake::Acts);
                if !is_free {
                    return Ok(());
                }
                if is_valid && self.rng.random_ratio(1, 3) {
                    self.single_wakes(who, LOOK_TO_WRITE_US, SingleWake::Sends(key, token, mode));
                }
                self.act(who, (level, mode), is_valid)
            }
            SingleWake::Sends(key, token, mode) => {
                let delay = self.rng.random_range(1..=2 * self.plan.network.delay_us);
                self.plan_at(self.at + delay, Next::Writes { key, who, token, mode });
                Ok(())
            }
            SingleWake::Looks => {
                self.on_single(who.client, SingleClient::look)?;
                self.totals.lost += u64::from(holding.is_some() && self.single_clients[place].1.is_idle());
                Ok(())
            }
            SingleWake::GivesBack if holding.is_some() => self.on_single(who.client, SingleClient::release),
            _ => Ok(()),
        }
    }

    /// Lets a holder do something with its lock.
    fn act(&mut self, who: Holder, (level, mode): (u32, HeldAs), is_valid: bool) -> Result<(), Failure> {
        let limit = place(who.client).map_or(0, |place| self.plan.single_clients[place].limit);
        if is_valid && limit > 0 && self.rng.random_ratio(1, 4) {
            match mode {
                HeldAs::Exclusive => return self.on_single(who.client, SingleClient::share),
                HeldAs::Shared => return self.on_single(who.client, SingleClient::convert_up),
                HeldAs::Permit { .. } => {}
            }
        }
        match self.rng.random_range(0..4) {
            0 if level < LEVEL_MAX => {
                self.totals.reentered += 1;
                let (says_level, extends) = (self.rng.random(), self.rng.random());
                self.on_single(who.client, |client, now| client.reenter(says_level, extends, now))
            }
            1 if level > 1 => self.on_single(who.client, SingleClient::release_one),
            _ => self.on_single(who.client, SingleClient::extend),
        }
    }

    /// Runs `body` on a client, sends its requests, reports its change of status to the referee, and plans its next
    /// action.
    pub(super) fn on_single(
        &mut self,
        number: u32,
        body: impl FnOnce(&mut SingleClient, Now) -> Step,
    ) -> Result<(), Failure> {
        let Some((machine, client)) = place(number).map(|place| &mut self.single_clients[place]) else { return Ok(()) };
        if machine.down {
            return Ok(());
        }
        let (at, before) = (self.at, client.who());
        let step = body(client, machine.now(at));
        let (who, key, mode) = (client.who(), client.key(), client.mode());
        let holding =
            client.holding().map(|(since, until, token, _)| (machine.when(since), machine.when(until), token));
        if let Some(wrong) = client.wrong() {
            return Err(Failure::Answered { client: number, wrong });
        }
        for (after_ms, request) in step.sends {
            if let Payload::Command(Command::Acquire { wait_ms, retry, .. }) = request.says
                && wait_ms > 0
                && !retry
                && !self.quiet
            {
                match self.rng.random_range(0..10) {
                    0 => self.single_wakes(who, u64::from(wait_ms) * 500, SingleWake::Leaves),
                    1 | 2 => self.single_wakes(who, u64::from(wait_ms) * 500, SingleWake::Doubts),
                    _ => {}
                }
            }
            let wait_ms = match request.says {
                Payload::Command(Command::Acquire { wait_ms, .. }) => wait_ms,
                _ => 0,
            };
            let late = u64::from(wait_ms) * 1_000 + LATE_US;
            self.plan_at(at + late, Next::SingleWakes(who, SingleWake::Misses(request.number)));
            self.send(after_ms, request);
        }
        match (step.says, holding) {
            (Some(Status::Held), Some((since, until, _))) => {
                self.totals.single_held += 1;
                self.totals.single_waited += u64::from(at - since > 8 * self.plan.network.delay_us);
                self.single_wakes(who, u64::from(self.plan.ttl_ms) * 1_000 / ACTS_OF_TTL, SingleWake::Acts);
                self.single_wakes(who, self.plan.hold_us, SingleWake::GivesBack);
                self.plan_at(until.max(at) + 1, Next::SingleWakes(who, SingleWake::Looks));
            }
            (Some(Status::Extended), Some((_, until, _))) => {
                self.plan_at(until.max(at) + 1, Next::SingleWakes(who, SingleWake::Looks));
            }
            (Some(Status::Left), _) => self.totals.refused += 1,
            _ => {}
        }
        self.hear_status(step.says, (before, who), (key, mode), holding)?;
        if matches!(step.says, Some(Status::Ended | Status::Left)) {
            self.single_wakes(who, self.plan.rest_us, SingleWake::Wants);
        }
        Ok(())
    }

    /// Ends the connections to a server that has just started.
    pub(super) fn connections_end(&mut self, n: usize) {
        let node = n % self.plan.nodes.len();
        let cut_off = self.plan.single_clients.iter().zip(&mut self.single_clients);
        cut_off.filter(|(plan, _)| plan.node == node).for_each(|(_, (_, client))| client.is_cut_off());
    }

    /// Takes the lock of `key` away, as an operator or any client that may write can.
    pub(super) fn take_away(&mut self, node: usize, key: u32, how: impl FnOnce(&mut Server, Now) -> Option<u64>) {
        let n = self.server_of(node, key);
        if let Some(Some(token)) = self.on_server(n, how) {
            self.referee.is_taken_away(key, self.at, token);
            self.tell(|| format!("key {key}: the lock with token {token} is taken away"));
        }
    }

    /// Breaks one of several grants, as an operator does.
    pub(super) fn take_one_away(&mut self, node: usize, key: u32) {
        let n = self.server_of(node, key);
        if let Some(Some(token)) = self.on_server(n, |server, now| server.break_last(key, now)) {
            self.referee.is_broken(key, token);
            self.tell(|| format!("key {key}: the grants with token {token} are taken away"));
        }
    }

    /// Evicts a key.
    pub(super) fn evict(&mut self, node: usize, key: u32) {
        let n = self.server_of(node, key);
        if self.on_server(n, |server, now| server.evict(key, now)) == Some(true) {
            self.tell(|| format!("key {key}: its lock is evicted"));
            self.write_at_once(n);
        }
    }
}
