//! The world of callers: the state of each caller, and what the shipped machines make it do.

use std::collections::{BTreeMap, VecDeque};

use palisade_core::quorum::agenda::Agenda;
use palisade_core::quorum::{Acquire, Answer, Call, Choice, Conduct, NodeId, Taker, Task, Waiter};
use palisade_core::{BootTime, Token, Wanted};

use crate::chance::Chance;
use crate::simple_node::{Name, SimpleNode};
use crate::watched::Watched;

/// The usual length of leases, and the longest that a caller requests, in milliseconds.
pub const TTL_MS: u32 = 1_000;
pub const TTL_MAX_MS: u32 = 3 * TTL_MS;

/// The time that a node has to answer, and the longest delay of an answer, in microseconds.
pub const GIVEN_US: u64 = 100_000;
pub const LATE_US: u64 = 500_000;

/// The length of a run, in microseconds of simulated time.
pub const LASTS_US: u64 = 8_000_000;

/// The number of callers; the first two are tasks of one process.
pub const CALLERS: usize = 4;

/// The time within which a patient caller must get the lock if nothing goes wrong, in microseconds.
const PATIENT_US: u64 = 6_000_000;

pub enum Stage {
    Idle,
    Lining,
    Asking(Acquire),
    Looking(Choice),
    Queued(Waiter),
    Pausing { for_nodes: Option<BootTime> },
    Holding(Box<Watched>),
}

pub struct Caller {
    pub stage: Stage,
    pub taking: Option<(Taker, Conduct)>,
    /// The number of the caller's present stage. Events that belong to an earlier stage are ignored.
    pub life: u64,
    /// The servers of the set that the caller works with, in the order of the nodes.
    pub set: Vec<usize>,
    pub name: Name,
    pub number: u16,
    pub ticket: u64,
    pub is_patient: bool,
    /// True if an operator broke the grants of this attempt.
    pub is_taken_away: bool,
    /// The time until which the caller's process is stopped; 0 if it runs.
    pub stopped_until: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum Message {
    Ask { call: Call, round: u64 },
    Wait { ms: u32 },
    Look,
    Release,
}

#[derive(Clone, Debug)]
pub enum Received {
    Answer(Answer),
    Told(u16),
    Free(Vec<u16>),
    Nothing,
}

/// A request without an answer so far: its caller, the caller's stage, and the node.
#[derive(Clone, Copy)]
pub struct Open {
    pub caller: usize,
    pub life: u64,
    pub seat: usize,
    pub says: Message,
}

#[derive(Debug)]
pub enum Event {
    Begins(usize),
    Arrives {
        request: u64,
        server: usize,
        name: Name,
        number: u16,
        ticket: u64,
        says: Message,
    },
    Hears {
        request: u64,
        id: Option<NodeId>,
        heard: Received,
        again: bool,
    },
    /// The time limit of a caller's stage is over: the caller, and the number of the stage.
    IsOver(usize, u64),
    Wakes(usize, u64),
    Orders(usize, u64),
    Leaves(usize, u64),
    Passes(usize),
    Hangs(bool),
    GoesWrong,
}

pub struct World<'a> {
    pub agenda: Agenda<Event, Chance<'a>>,
    /// True if nodes hang only for short moments, and nothing else goes wrong.
    pub is_calm: bool,
    pub hangs: bool,
    pub wanted: Wanted,
    pub limit: u16,
    pub nodes: Vec<SimpleNode>,
    /// The servers of the latest version of the set.
    pub set: Vec<usize>,
    pub callers: Vec<Caller>,
    pub line: VecDeque<usize>,
    pub open: BTreeMap<u64, Open>,
    /// For each name and server, the number of the request that waits there.
    pub waits: BTreeMap<(Name, usize), u64>,
}

impl<'a> World<'a> {
    pub fn new(mut agenda: Agenda<Event, Chance<'a>>) -> Self {
        let is_calm = agenda.one_in(2);
        let limit = 1 + agenda.below(3) as u16;
        let wanted = if limit == 1 { Wanted::Exclusive } else { Wanted::Permit { limit, number: None } };
        // A single node chooses the number of a permit itself, without the machines under test. So permits have several
        // nodes.
        let count = if limit == 1 { [1, 3, 5][agenda.below(3) as usize] } else { [3, 5][agenda.below(2) as usize] };
        let nodes = (0..count).map(|n| SimpleNode::new(n as u128, limit, 0)).collect();
        let set: Vec<usize> = (0..count).collect();
        for caller in 0..CALLERS {
            let after = agenda.below(500_000);
            agenda.after(after, Event::Begins(caller));
        }
        agenda.after(2_000_000, Event::Hangs(true));
        if !is_calm {
            agenda.after(500_000, Event::GoesWrong);
        }
        let caller = |_| Caller {
            stage: Stage::Idle,
            taking: None,
            life: 0,
            set: set.clone(),
            name: 0,
            number: 1,
            ticket: 0,
            is_patient: false,
            is_taken_away: false,
            stopped_until: 0,
        };
        let callers = (0..CALLERS).map(caller).collect();
        let (line, open, waits) = (VecDeque::new(), BTreeMap::new(), BTreeMap::new());
        Self { agenda, is_calm, hangs: false, wanted, limit, nodes, set, callers, line, open, waits }
    }

    pub fn now(&self) -> BootTime {
        BootTime::from_us(self.agenda.now)
    }

    pub fn handle(&mut self, event: Event) {
        let whose = match &event {
            Event::Begins(caller) | Event::IsOver(caller, _) | Event::Wakes(caller, _) => Some(*caller),
            Event::Orders(caller, _) | Event::Leaves(caller, _) => Some(*caller),
            Event::Hears { request, .. } => self.open.get(request).map(|open| open.caller),
            _ => None,
        };
        // While a process is stopped it handles nothing. It receives the events when it runs again.
        if let Some(stopped) = whose.map(|caller| self.callers[caller].stopped_until).filter(|at| *at > self.agenda.now)
        {
            return self.agenda.after(stopped - self.agenda.now, event);
        }
        match event {
            Event::Begins(caller) => self.begin(caller),
            Event::Arrives { request, server, name, number, ticket, says } => {
                self.arrive(request, server, (name, number, ticket), says);
            }
            Event::Hears { request, id, heard, again } => self.hear(request, id, heard, again),
            Event::IsOver(caller, life) if self.callers[caller].life == life => self.is_over(caller),
            Event::Wakes(caller, life) if self.callers[caller].life == life => {
                self.keeps(caller, |keeper, now, random| keeper.on_wake(now, random));
                self.check_whether_it_is_lost(caller);
            }
            Event::Orders(caller, life) if self.callers[caller].life == life => self.order(caller, life),
            Event::Leaves(caller, life) if self.callers[caller].life == life => self.leave(caller),
            Event::Passes(server) => self.pass_on(server),
            Event::Hangs(hangs) => {
                self.hangs = hangs;
                let part = if self.is_calm { 300 } else { 1_500 };
                let us = if hangs { self.agenda.below(u64::from(TTL_MS) * part) } else { 2_000_000 };
                self.agenda.after(us, Event::Hangs(!hangs));
            }
            Event::GoesWrong => self.go_wrong(),
            _ => {}
        }
    }

    // The functions below are what a caller does.

    pub fn begin(&mut self, number: usize) {
        let limit_us = match self.agenda.below(4) {
            0 => None,
            1 => Some(self.agenda.below(300_000)),
            2 => Some(self.agenda.below(PATIENT_US)),
            _ => Some(PATIENT_US),
        };
        let (now, random) = (self.now(), self.agenda.draw());
        self.follow(number);
        let nodes = self.callers[number].set.len();
        let limit = limit_us.map(|us| now.plus_us(us));
        let (taker, task) = Taker::begin(self.wanted, nodes, limit, now, random);
        let caller = &mut self.callers[number];
        caller.taking = Some((taker, Conduct::begin(self.wanted, nodes, limit)));
        (caller.ticket, caller.is_patient) = (self.agenda.now, limit_us.is_none_or(|us| us >= PATIENT_US));
        self.perform(number, task);
    }

    /// Moves the caller to the latest version of the set. Returns true if that is new to the caller.
    pub fn follow(&mut self, number: usize) -> bool {
        let caller = &mut self.callers[number];
        let is_new = caller.set != self.set;
        if is_new {
            caller.set.clone_from(&self.set);
            if let Some((taker, conduct)) = &mut caller.taking {
                taker.move_to(self.set.len());
                conduct.on_move(self.set.len());
            }
        }
        is_new
    }

    pub fn decide(&mut self, number: usize, input: impl FnOnce(&mut Taker, &mut Conduct, BootTime, u64) -> Task) {
        self.follow(number);
        let (now, random) = (self.now(), self.agenda.draw());
        let Some((taker, conduct)) = &mut self.callers[number].taking else { return };
        let task = input(taker, conduct, now, random);
        self.perform(number, task);
    }

    pub fn enter(&mut self, number: usize, stage: Stage, ends: Option<BootTime>) {
        let life = self.agenda.number();
        (self.callers[number].life, self.callers[number].stage) = (life, stage);
        if let Some(ends) = ends {
            self.agenda.after(ends.us_since(self.now()), Event::IsOver(number, life));
        }
        if !self.is_calm && self.agenda.one_in(30) {
            let after = self.agenda.below(300_000);
            self.agenda.after(after, Event::Leaves(number, life));
        }
    }

    pub fn perform(&mut self, number: usize, task: Task) {
        let now = self.now();
        let caller = &mut self.callers[number];
        crate::tell(&(number, &task));
        if let Some((_, conduct)) = &mut caller.taking {
            let wrong = conduct.judge(&task, now);
            assert!(wrong.is_none(), "caller {number}: {wrong:?}: {task:?}");
        }
        let nodes = caller.set.len();
        match task {
            Task::LineUp { until } => self.line_up(number, until),
            Task::Ask { wanted, by, keeps_name } => {
                if !keeps_name {
                    self.new_name(number);
                }
                self.callers[number].number =
                    if let Wanted::Permit { number: Some(number), .. } = wanted { number } else { 1 };
                let proposal = Token::new(self.agenda.now).expect("a token of this time");
                let (machine, calls) = Acquire::begin(nodes, TTL_MS, proposal, now);
                self.enter(number, Stage::Asking(machine), by);
                self.call(number, 0, calls);
            }
            Task::Look { by, .. } => {
                self.enter(number, Stage::Looking(Choice::begin(nodes)), by);
                (0..nodes).for_each(|seat| self.send(number, seat, Message::Look, 0));
            }
            Task::Queue { patience_ms } | Task::AskAndWait { patience_ms, .. } => {
                self.new_name(number);
                let until = now.plus_ms(patience_ms);
                self.enter(number, Stage::Queued(Waiter::begin(nodes, until)), Some(until));
                (0..nodes).for_each(|seat| self.ask_to_wait(number, seat, until, 0));
            }
            Task::Pause { until, for_nodes } => self.enter(number, Stage::Pausing { for_nodes }, Some(until)),
            Task::GiveUp(_) => {
                assert!(
                    !self.is_calm || !caller.is_patient || self.limit > 1,
                    "nothing was wrong, and it was asked for all the time"
                );
                self.leave(number);
            }
        }
    }

    /// Ends what caller `number` does now (a wait, a request or a pause), because its time limit has passed.
    pub fn is_over(&mut self, number: usize) {
        let now = self.now();
        match &self.callers[number].stage {
            Stage::Lining if !self.has_turn(number) => self.decide(number, |taker, _, _, _| taker.on_no_turn()),
            Stage::Asking(_) | Stage::Looking(_) => {
                let life = self.callers[number].life;
                let open = self.open.iter().filter(|(_, open)| open.life == life);
                let open: Vec<u64> = open.map(|(request, _)| *request).collect();
                open.into_iter().for_each(|request| self.hear(request, None, Received::Nothing, false));
            }
            Stage::Queued(waiter) => {
                let task = waiter.leave();
                self.waited(number, 0, task);
            }
            Stage::Pausing { for_nodes } if self.hangs && for_nodes.is_some_and(|until| now < until) => {
                self.agenda.after(20_000, Event::IsOver(number, self.callers[number].life));
            }
            Stage::Pausing { .. } => self.decide(number, |taker, _, now, random| taker.on_paused(true, now, random)),
            _ => {}
        }
    }

    /// Makes the caller leave, whatever its stage is, and release the grants that it may have.
    pub fn leave(&mut self, number: usize) {
        self.new_name(number);
        self.callers[number].taking = None;
        self.enter(number, Stage::Idle, None);
        self.leave_line(number);
        let after = self.agenda.below(500_000);
        self.agenda.after(after, Event::Begins(number));
    }

    pub fn new_name(&mut self, number: usize) {
        for server in 0..self.nodes.len() {
            self.waits.remove(&(self.callers[number].name, server));
        }
        if self.callers[number].name > 0 {
            (0..self.callers[number].set.len()).for_each(|seat| self.send(number, seat, Message::Release, 0));
        }
        self.callers[number].name = self.agenda.number();
        self.callers[number].is_taken_away = false;
    }

    // The functions below are about the line in which the callers of one process wait.

    pub fn line_up(&mut self, number: usize, until: Option<BootTime>) {
        self.enter(number, Stage::Lining, until);
        if number > 1 {
            return self.turn(number, true);
        }
        self.line.push_back(number);
        if self.line.len() == 1 {
            self.turn(number, true);
        }
    }

    pub fn has_turn(&self, number: usize) -> bool {
        number > 1 || self.line.front() == Some(&number)
    }

    pub fn turn(&mut self, number: usize, at_once: bool) {
        self.decide(number, |taker, conduct, now, random| {
            conduct.on_turn(at_once);
            taker.on_turn(at_once, now, random)
        });
    }

    pub fn leave_line(&mut self, number: usize) {
        let was_first = self.line.front() == Some(&number);
        self.line.retain(|other| *other != number);
        if was_first && let Some(&next) = self.line.front() {
            self.turn(next, false);
        }
    }
}
