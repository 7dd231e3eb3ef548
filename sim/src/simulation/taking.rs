//! Acquisitions of a run's clients: the shipped [`Taker`] decides, and this module performs its decisions.

use palisade_core::quorum::{Conduct, GaveUp, Refused, Taker, Task, majority};
use palisade_core::{BootTime, Wanted};
use rand::RngExt;

use super::agenda::{Next, Wake};
use super::caller::{PATIENCE_US, Taking};
use super::outcome::Failure;
use super::world::World;
use crate::client::Client;
use crate::history::{Event, Holder, Occurrence};
use crate::rules::Rule;

/// One in `BARRED_OF` callers, on average, is refused for good after a few attempts.
const BARRED_OF: u32 = 40;

/// The delay, in microseconds, after which a client notices that a majority of nodes answers.
const ANSWER_US: u64 = 50_000;

/// The average time, in microseconds, after which a caller that gives up for reasons of its own does so.
const LEAVES_US: u64 = 300_000;

impl World<'_> {
    /// Begins to take `key` for a client. The time limit is `limit_us` from now, if given.
    pub(super) fn take(&mut self, number: u32, key: u32, wanted: Wanted, limit_us: Option<u64>) -> Result<(), Failure> {
        let is_free = self.referee.holders(key, self.at).next().is_none();
        let random = self.rng.random();
        let (machine, client) = &mut self.clients[number as usize];
        let now = machine.now(self.at);
        client.set_out(key, wanted, now);
        let limit = limit_us.map(|limit| now.boot.plus_us(limit));
        let (taker, task) = Taker::begin(wanted, client.nodes(), limit, now.boot, random);
        let ticket = client.ticket();
        let conduct = Conduct::begin(wanted, client.nodes(), limit);
        let may_be_barred = self.plan.is_calm() && self.callers.random_ratio(1, BARRED_OF);
        let barred_after = may_be_barred.then(|| self.callers.random_range(0..4));
        let is_patient = limit_us >= Some(PATIENCE_US);
        let must_get_it = is_patient && is_free && barred_after.is_none();
        let (since, version) = (self.at, client.version());
        self.taking[number as usize] = Some(Taking {
            taker,
            key,
            since,
            version,
            is_patient,
            must_get_it,
            conduct,
            ticket,
            barred_after,
            pauses: false,
            lines_until: None,
            for_nodes: None,
        });
        self.perform(number, task)
    }

    /// Passes an input to this client's taker, if the client is taking a lock, and performs the resulting task.
    fn decide(&mut self, number: u32, input: impl FnOnce(&mut Taker, BootTime, u64) -> Task) -> Result<(), Failure> {
        let random = self.rng.random();
        let (machine, client) = &self.clients[number as usize];
        let now = machine.now(self.at).boot;
        let Some(taking) = &mut self.taking[number as usize] else { return self.rest(number) };
        if taking.version != client.version() {
            taking.version = client.version();
            taking.taker.move_to(client.nodes());
            taking.conduct.on_move(client.nodes());
        }
        (taking.pauses, taking.lines_until) = (false, None);
        let task = input(&mut taking.taker, now, random);
        self.perform(number, task)
    }

    fn perform(&mut self, number: u32, task: Task) -> Result<(), Failure> {
        let (machine, client) = &self.clients[number as usize];
        let (who, now) = (client.who(), machine.now(self.at).boot);
        let task = self.without_rules(task, now);
        if let Some(taking) = &mut self.taking[number as usize]
            && let Some(wrong) = taking.conduct.judge(&task, now)
        {
            return Err(Failure::Conduct { client: number, wrong });
        }
        match task {
            Task::LineUp { until } => self.line_up(number, until),
            Task::Ask { wanted, by, keeps_name } => {
                self.on_client(number, |client, now| client.ask(wanted, keeps_name, now))?;
                self.stop_asking(number, by);
                self.may_leave(number);
                Ok(())
            }
            Task::Look { by, .. } => {
                self.on_client(number, Client::look_for_permit)?;
                self.stop_asking(number, by);
                Ok(())
            }
            Task::Queue { patience_ms } | Task::AskAndWait { patience_ms, .. } => {
                self.on_client(number, |client, now| client.wait_for(patience_ms, now))?;
                self.may_leave(number);
                Ok(())
            }
            Task::Pause { until, for_nodes } => {
                if let Some(taking) = &mut self.taking[number as usize] {
                    (taking.pauses, taking.for_nodes) = (true, for_nodes);
                }
                let at = self.clients[number as usize].0.when(until).max(self.at);
                self.plan_at(at, Next::Wakes(who, Wake::AsksAgain));
                Ok(())
            }
            Task::GiveUp(_) => self.give_up(number),
        }
    }

    /// Plans the moment at which an attempt stops waiting for answers.
    fn stop_asking(&mut self, number: u32, by: Option<BootTime>) {
        let (machine, client) = &self.clients[number as usize];
        let who = client.who();
        if let Some(by) = by {
            let at = machine.when(by).max(self.at);
            self.plan_at(at, Next::Wakes(who, Wake::StopsAsking));
        }
    }

    /// Makes some callers give up at a random moment.
    fn may_leave(&mut self, number: u32) {
        let must = self.taking[number as usize].as_ref().is_some_and(|taking| taking.must_get_it);
        if !must && self.rng.random_ratio(1, 20) {
            let who = self.clients[number as usize].1.who();
            self.plan_wake(who, LEAVES_US, Wake::Leaves);
        }
    }

    /// Returns the task that replaces `task` while a rule is switched off.
    fn without_rules(&mut self, task: Task, now: BootTime) -> Task {
        match (self.without.0, task) {
            (Some(Rule::BacksOff), Task::Pause { .. }) => Task::Pause { until: now, for_nodes: None },
            (Some(Rule::ShownIsAskedFor), Task::Ask { wanted: Wanted::Permit { limit, .. }, by, keeps_name }) => {
                let number = Some(self.callers.random_range(1..=limit));
                Task::Ask { wanted: Wanted::Permit { limit, number }, by, keeps_name }
            }
            (_, task) => task,
        }
    }

    fn on_conduct(&mut self, number: u32, note: impl FnOnce(&mut Conduct)) {
        if let Some(taking) = &mut self.taking[number as usize] {
            note(&mut taking.conduct);
        }
    }

    // The callers of a process that wait in a line.

    /// Returns the line (of waiting callers) of a client's process. If only bursts and stalls occur, every two clients
    /// are tasks of one process. Otherwise, each client is a process of its own; few of them would compete at the nodes
    /// if they shared processes.
    fn line_of(&self, number: u32) -> (u32, u32) {
        let key = self.taking[number as usize].as_ref().map_or(0, |taking| taking.key);
        (if self.plan.is_calm() { number / 2 } else { number }, key)
    }

    fn line_up(&mut self, number: u32, until: Option<BootTime>) -> Result<(), Failure> {
        let (of, who) = (self.line_of(number), self.clients[number as usize].1.who());
        let line = self.lines.entry(of).or_default();
        line.push_back(number);
        if line.len() == 1 || self.without.is(Rule::OneOfAProcessAsks) {
            return self.has_turn(number, true);
        }
        if let Some(until) = until {
            if let Some(taking) = &mut self.taking[number as usize] {
                taking.lines_until = Some(until);
            }
            let at = self.clients[number as usize].0.when(until).max(self.at);
            self.plan_at(at + 1, Next::Wakes(who, Wake::StopsLining));
        }
        Ok(())
    }

    fn has_turn(&mut self, number: u32, at_once: bool) -> Result<(), Failure> {
        let line = self.line_of(number);
        let is_first = self.lines.get(&line).is_some_and(|line| line.front() == Some(&number));
        // A client that asks before its turn is noticed when its next task is performed.
        self.on_conduct(number, |conduct| {
            if is_first {
                conduct.on_turn(at_once)
            }
        });
        self.decide(number, |taker, now, random| taker.on_turn(at_once, now, random))
    }

    /// Removes a client from the line of callers in its process if it is still there and its time is over.
    pub(super) fn stop_lining(&mut self, number: u32) -> Result<(), Failure> {
        let now = self.clients[number as usize].0.now(self.at).boot;
        let until = self.taking[number as usize].as_ref().and_then(|taking| taking.lines_until);
        match until {
            Some(until) if until <= now => self.decide(number, |taker, _, _| taker.on_no_turn()),
            _ => Ok(()),
        }
    }

    /// Removes a client from the line of its process. The next one in the line gets its turn.
    fn leave_line(&mut self, number: u32, of: (u32, u32)) -> Result<(), Failure> {
        let Some(line) = self.lines.get_mut(&of) else { return Ok(()) };
        let was_first = line.front() == Some(&number);
        line.retain(|other| *other != number);
        match line.front() {
            None => drop(self.lines.remove(&of)),
            Some(&next) if was_first && !self.without.is(Rule::OneOfAProcessAsks) => return self.has_turn(next, false),
            Some(_) => {}
        }
        Ok(())
    }

    /// Handles a refusal of a client's attempt.
    pub(super) fn is_refused(&mut self, number: u32, refused: Refused) -> Result<(), Failure> {
        if self.without.is(Rule::AsksOn) {
            return self.perform(number, Task::GiveUp(GaveUp::Refused));
        }
        let mut refused = refused;
        if let Some(taking) = &mut self.taking[number as usize] {
            if taking.barred_after == Some(0) {
                refused = Refused::Lasting;
            }
            taking.barred_after = taking.barred_after.and_then(|left| left.checked_sub(1)).or(taking.barred_after);
            taking.conduct.on_refused(refused);
        }
        if refused == Refused::Lasting && self.without.is(Rule::LastingEnds) {
            refused = Refused::TooFewNodes { is_lasting: false };
        }
        self.decide(number, |taker, now, random| taker.on_refused(refused, now, random))
    }

    /// Handles the result of a client's query for a free permit.
    pub(super) fn is_shown(&mut self, number: u32, shown: Option<u16>) -> Result<(), Failure> {
        self.on_conduct(number, |conduct| conduct.on_shown(shown));
        self.decide(number, |taker, now, random| taker.on_look(shown, now, random))
    }

    /// Handles a client's turn, or the end of its wait without a turn.
    pub(super) fn is_told(&mut self, number: u32, told: Option<u16>) -> Result<(), Failure> {
        if self.taking[number as usize].is_none() {
            return self.on_client(number, Client::release);
        }
        self.on_conduct(number, |conduct| conduct.on_shown(told));
        self.decide(number, |taker, now, random| taker.on_queue(told, now, random))
    }

    /// Ends a client's pause, unless the client still waits for a majority of nodes to answer.
    pub(super) fn ask_again(&mut self, who: Holder) -> Result<(), Failure> {
        let number = who.client;
        let now = self.clients[number as usize].0.now(self.at).boot;
        let Some(taking) = self.taking[number as usize].as_ref().filter(|taking| taking.pauses) else { return Ok(()) };
        let awaits = taking.for_nodes;
        if awaits.is_some_and(|until| now < until) && !self.majority_answers() {
            self.plan_at(self.at + ANSWER_US, Next::Wakes(who, Wake::AsksAgain));
            return Ok(());
        }
        // With `true`, the taker joins the queue by LOCK.WAIT even if there is only one node, as it does with several.
        self.decide(number, |taker, now, random| taker.on_paused(true, now, random))
    }

    fn majority_answers(&self) -> bool {
        let count = self.plan.nodes.len();
        let answers = |n: &usize| self.nodes[*n].server.is_some() && self.nodes[*n].machine.paused_until <= self.at;
        (0..count).filter(answers).count() >= majority(count)
    }

    /// Handles a client that did not get the lock.
    fn give_up(&mut self, number: u32) -> Result<(), Failure> {
        let line = self.line_of(number);
        let taking = self.taking[number as usize].take();
        if let Some(Taking { must_get_it: true, since, key, .. }) = taking
            && self.is_calm_since(since)
        {
            return Err(Failure::GaveUp { client: number, key });
        }
        self.leave_line(number, line)?;
        self.rest(number)
    }

    /// Plans when a client wants its next lock.
    pub(super) fn rest(&mut self, number: u32) -> Result<(), Failure> {
        let who = self.clients[number as usize].1.who();
        self.plan_wake(who, self.plan.rest_us, Wake::Wants);
        Ok(())
    }

    /// Records, for all callers of the event's key, that a client held the lock.
    pub(super) fn is_had_by_somebody(&mut self, event: &Event) {
        if matches!(
            event.what,
            Occurrence::Held { .. } | Occurrence::Extended { .. } | Occurrence::Converted { .. } | Occurrence::Ended
        ) {
            let of_key = self.taking.iter_mut().flatten().filter(|taking| taking.key == event.key);
            of_key.for_each(|taking| taking.must_get_it = false);
        }
    }

    /// Ends a client's acquisition: the client has the lock, or no longer wants it.
    pub(super) fn stop_taking(&mut self, number: u32, has_it: bool) -> Result<(), Failure> {
        let line = self.line_of(number);
        if let Some(taking) = self.taking[number as usize].take()
            && has_it
            && taking.is_patient
            && self.is_calm_since(taking.since)
        {
            self.totals.had_in_time += 1;
        }
        self.leave_line(number, line)
    }
}
