//! How the clients of a run take locks: the shipped [`Taker`] decides, and what is here performs it.

use palisade_core::quorum::{Refused, Taker, Task, majority};
use palisade_core::{BootTime, Wanted};
use rand::RngExt;

use super::agenda::{Next, Wake};
use super::caller::{PATIENCE_US, Taking};
use super::outcome::Failure;
use super::world::World;
use crate::client::Client;
use crate::history::{Event, Holder, What};
use crate::rules::Rule;

/// A client that waits for a majority of nodes to answer finds out after so long, in microseconds.
const ANSWER_US: u64 = 50_000;

/// About so long after a step some callers give up for reasons of their own, in microseconds.
const LEAVES_US: u64 = 300_000;

impl World<'_> {
    /// A client sets out to take `key`, until so much later if there is a limit.
    pub(super) fn take(&mut self, number: u32, key: u32, wanted: Wanted, limit_us: Option<u64>) -> Result<(), Failure> {
        let is_free = self.referee.holders(key, self.at).next().is_none();
        let random = self.rng.random();
        let (machine, client) = &mut self.clients[number as usize];
        let now = machine.now(self.at);
        client.set_out(key, wanted, now);
        let limit = limit_us.map(|limit| now.boot.plus_us(limit));
        let (taker, task) = Taker::begin(wanted, client.nodes(), limit, now.boot, random);
        let is_patient = limit_us >= Some(PATIENCE_US);
        let must_get_it = is_patient && is_free;
        let (since, version) = (self.at, client.version());
        self.taking[number as usize] =
            Some(Taking { taker, key, since, version, is_patient, must_get_it, for_nodes: None });
        self.perform(number, task)
    }

    /// Brings an input to the taker of this client, if it takes anything, and performs what that says.
    fn decide(&mut self, number: u32, input: impl FnOnce(&mut Taker, BootTime, u64) -> Task) -> Result<(), Failure> {
        let random = self.rng.random();
        let (machine, client) = &self.clients[number as usize];
        let now = machine.now(self.at).boot;
        let Some(taking) = &mut self.taking[number as usize] else { return self.rest(number) };
        if taking.version != client.version() {
            taking.version = client.version();
            taking.taker.move_to(client.nodes());
        }
        let task = input(&mut taking.taker, now, random);
        self.perform(number, task)
    }

    fn perform(&mut self, number: u32, task: Task) -> Result<(), Failure> {
        let who = self.clients[number as usize].1.who();
        match task {
            // Each client is a process of its own.
            Task::LineUp { .. } => self.decide(number, |taker, now, random| taker.on_turn(true, now, random)),
            Task::Ask { wanted, by, keeps_name } => {
                self.on_client(number, |client, now| client.ask(wanted, keeps_name, now))?;
                self.stop_asking(number, by);
                self.may_leave(number);
                Ok(())
            }
            // A look takes nothing: whatever it shows may be so no more.
            Task::Look { limit, .. } => {
                let shown = self.rng.random_bool(0.7).then(|| self.rng.random_range(1..=limit));
                self.decide(number, |taker, now, random| taker.on_look(shown, now, random))
            }
            Task::Queue { patience_ms } | Task::AskAndWait { patience_ms, .. } => {
                self.on_client(number, |client, now| client.wait_for(patience_ms, now))?;
                self.may_leave(number);
                Ok(())
            }
            Task::Pause { until, for_nodes } => {
                if let Some(taking) = &mut self.taking[number as usize] {
                    taking.for_nodes = for_nodes;
                }
                let at = self.clients[number as usize].0.when(until).max(self.at);
                self.plan_at(at, Next::Wakes(who, Wake::AsksAgain));
                Ok(())
            }
            Task::GiveUp(_) => self.give_up(number),
        }
    }

    /// An attempt does not wait for answers any longer.
    fn stop_asking(&mut self, number: u32, by: Option<BootTime>) {
        let (machine, client) = &self.clients[number as usize];
        let who = client.who();
        if let Some(by) = by {
            let at = machine.when(by).max(self.at);
            self.plan_at(at, Next::Wakes(who, Wake::StopsAsking));
        }
    }

    /// Some callers leave at any moment.
    fn may_leave(&mut self, number: u32) {
        let must = self.taking[number as usize].as_ref().is_some_and(|taking| taking.must_get_it);
        if !must && self.rng.random_ratio(1, 20) {
            let who = self.clients[number as usize].1.who();
            self.wakes(who, LEAVES_US, Wake::Leaves);
        }
    }

    /// A client was refused.
    pub(super) fn is_refused(&mut self, number: u32, refused: Refused) -> Result<(), Failure> {
        if self.without.is(Rule::AsksOn) {
            return self.give_up(number);
        }
        self.decide(number, |taker, now, random| taker.on_refused(refused, now, random))
    }

    /// A client was told that it is its turn, or that there is none.
    pub(super) fn is_told(&mut self, number: u32, told: Option<u16>) -> Result<(), Failure> {
        if self.taking[number as usize].is_none() {
            return self.on_client(number, Client::release);
        }
        self.decide(number, |taker, now, random| taker.on_queue(told, now, random))
    }

    /// A client's pause is over, but for a majority of nodes that is to answer.
    pub(super) fn asks_again(&mut self, who: Holder) -> Result<(), Failure> {
        let number = who.client;
        let now = self.clients[number as usize].0.now(self.at).boot;
        let awaits = self.taking[number as usize].as_ref().and_then(|taking| taking.for_nodes);
        if awaits.is_some_and(|until| now < until) && !self.majority_answers() {
            self.plan_at(self.at + ANSWER_US, Next::Wakes(who, Wake::AsksAgain));
            return Ok(());
        }
        // Of one node the queue is asked, too: only the messages differ.
        self.decide(number, |taker, now, random| taker.on_paused(true, now, random))
    }

    fn majority_answers(&self) -> bool {
        let count = self.plan.nodes.len();
        let answers = |n: &usize| self.nodes[*n].server.is_some() && self.nodes[*n].machine.paused_until <= self.at;
        (0..count).filter(answers).count() >= majority(count)
    }

    /// A client did not get what it wanted.
    fn give_up(&mut self, number: u32) -> Result<(), Failure> {
        let taking = self.taking[number as usize].take();
        if let Some(Taking { must_get_it: true, since, key, .. }) = taking
            && self.is_calm_since(since)
        {
            return Err(Failure::GaveUp { client: number, key });
        }
        self.rest(number)
    }

    /// A client wants something again some time.
    pub(super) fn rest(&mut self, number: u32) -> Result<(), Failure> {
        let who = self.clients[number as usize].1.who();
        self.wakes(who, self.plan.rest_us, Wake::Wants);
        Ok(())
    }

    /// What is asked for until a limit counts as had by somebody.
    pub(super) fn is_had_by_somebody(&mut self, event: &Event) {
        if matches!(event.what, What::Held { .. } | What::Extended { .. } | What::Converted { .. } | What::Ended) {
            let of_key = self.taking.iter_mut().flatten().filter(|taking| taking.key == event.key);
            of_key.for_each(|taking| taking.must_get_it = false);
        }
    }

    /// A client has what it was about to take, or does not want it any more.
    pub(super) fn takes_no_more(&mut self, number: u32, has_it: bool) {
        if let Some(taking) = self.taking[number as usize].take()
            && has_it
            && taking.is_patient
            && self.is_calm_since(taking.since)
        {
            self.totals.had_in_time += 1;
        }
    }
}
