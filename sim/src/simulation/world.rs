//! The world of a run: nodes and clients on machines of their own, a network between them, and faults. Events happen in
//! the order of true time, so the same plan gives exactly the same run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use palisade_core::Members;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

use super::agenda::{Next, SingleWake, Wake};
use super::caller::Taking;
use super::changer::Changer;
use super::kinds::Break;
use super::machine::Machine;
use super::node::Node;
use super::outcome::{Failure, Totals};
use super::plan::{self, Plan};
use crate::client::Client;
use crate::history::{Event, Occurrence, TimeUs};
use crate::messages::{Hears, Reply};
use crate::referee::Referee;
use crate::rules::Without;
use crate::single_client::{self, SingleClient};

/// The first moment of true time. It is late enough that even clocks that are behind count up from zero.
pub const START_US: TimeUs = 10_000_000;

/// The interval at which a node checks itself, in microseconds.
pub(super) const TICK_US: u64 = 100_000;

/// A run in progress.
pub struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) without: Without,
    pub(super) rng: ChaCha8Rng,
    pub(super) at: TimeUs,
    /// The coming events. Of two events at the same time, the one that was planned first comes first.
    pub(super) moments: BTreeMap<(TimeUs, u64), Next>,
    pub(super) planned: u64,
    /// The nodes. If they are parts of clusters, as many other servers follow, in the same order: each is the neighbour of
    /// one node, and may receive that node's slots.
    pub(super) nodes: Vec<Node>,
    /// The slots that the neighbours have, by node and key.
    pub(super) given_away: BTreeSet<(usize, u32)>,
    pub(super) clients: Vec<(Machine, Client)>,
    /// The clients that lock on one node.
    pub(super) single_clients: Vec<(Machine, SingleClient)>,
    /// The first error that was detected on a node.
    pub(super) wrong: Option<Failure>,
    /// The running programs that change the set, by the number of the fault that started each.
    pub(super) changers: BTreeMap<usize, Changer>,
    /// The versions that programs found to be decided.
    pub(super) decided: BTreeMap<u64, Members>,
    /// True once a program has begun to found the set of nodes.
    pub(super) is_founded: bool,
    /// True if a node has lost its id since the founding of the set began.
    pub(super) is_id_lost: bool,
    /// The faults that have begun and not ended.
    pub(super) under_way: Vec<bool>,
    pub(super) referee: Referee,
    /// The current acquisition of each client.
    pub(super) taking: Vec<Option<Taking>>,
    /// The lines of callers in one process that want a key exclusively, in the order of arrival. The first caller in a
    /// line has its turn.
    pub(super) lines: BTreeMap<(u32, u32), VecDeque<u32>>,
    /// The last time at which an operator broke the lock of each key, on all nodes at once or in turn.
    pub(super) breaks: BTreeMap<u32, Break>,
    /// The random generator for the behaviour of callers that does not depend on nodes and network.
    pub(super) callers: ChaCha8Rng,
    /// The time until which a fault other than bursts and stalls, or its consequences, may last.
    pub(super) wrong_until: TimeUs,
    pub(super) quiet: bool,
    /// The counts of the run.
    pub totals: Totals,
    /// The events, one per line, if they are recorded.
    pub story: Option<Vec<String>>,
}

impl<'a> World<'a> {
    /// Returns the world at the beginning of a run.
    pub fn new(plan: &'a Plan, without: Without, tells: bool) -> Self {
        let node = |(n, machine): (usize, &plan::Machine)| Node::new(n, machine);
        let client = |(n, machine): (usize, &plan::Machine)| {
            let client = Client::new(n as u32, plan.first_set(), plan.ttl_ms, without);
            (Machine::new(machine), client.in_background(plan.is_in_background(n)))
        };
        let single_client = |(n, client): (usize, &plan::SingleClient)| {
            let number = single_client::FIRST + n as u32;
            (Machine::new(&client.machine), SingleClient::new(number, client.node, plan.ttl_ms, without))
        };
        // Each neighbour has the clocks of another node.
        let neighbours = plan.nodes.iter().cycle().skip(1).take(if plan.has_slots() { plan.nodes.len() } else { 0 });
        let mut world = Self {
            plan,
            without,
            rng: ChaCha8Rng::seed_from_u64(plan.seed ^ 0x5eed),
            at: START_US,
            moments: BTreeMap::new(),
            planned: 0,
            nodes: plan.nodes.iter().chain(neighbours).enumerate().map(node).collect(),
            given_away: BTreeSet::new(),
            clients: plan.clients.iter().enumerate().map(client).collect(),
            single_clients: plan.single_clients.iter().enumerate().map(single_client).collect(),
            wrong: None,
            changers: BTreeMap::new(),
            decided: BTreeMap::new(),
            is_founded: false,
            is_id_lost: false,
            under_way: vec![false; plan.faults.len()],
            referee: Referee::new(plan.laws()),
            taking: plan.clients.iter().map(|_| None).collect(),
            lines: BTreeMap::new(),
            breaks: BTreeMap::new(),
            callers: ChaCha8Rng::seed_from_u64(plan.seed ^ 0xca11),
            wrong_until: START_US,
            quiet: false,
            totals: Totals::default(),
            story: tells.then(Vec::new),
        };
        for n in 0..world.nodes.len() {
            world.start(n);
            // The node is new, so its operator lifts the guard.
            if let Some(server) = &mut world.nodes[n].server {
                server.lift();
            }
            world.plan_at(START_US + TICK_US, Next::Tick(n));
        }
        for n in 0..world.clients.len() {
            let who = world.clients[n].1.who();
            world.plan_wake(who, world.plan.rest_us, Wake::Wants);
        }
        for n in 0..world.single_clients.len() {
            let who = world.single_clients[n].1.who();
            world.single_wakes(who, world.plan.rest_us, SingleWake::Wants);
        }
        for (n, fault) in plan.faults.iter().enumerate() {
            world.plan_at(START_US + fault.at, Next::Begins(n));
        }
        world
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// The run broke a law.
    pub fn run(&mut self) -> Result<(), Failure> {
        let end = START_US + self.plan.until;
        self.run_until(end)?;
        self.heal()?;
        // The time covers the longest guard and every lease. Then each waiter gets a turn.
        let guard_us = u64::from(self.plan.max_ttl_ms.max(self.plan.ttl_ms) + self.plan.skew_ms) * 1_000;
        let calm = self.at + 2 * guard_us + 10_000_000;
        self.run_until(calm)?;
        self.comes_right()
    }

    pub(super) fn run_until(&mut self, end: TimeUs) -> Result<(), Failure> {
        while self.moments.first_key_value().is_some_and(|((at, _), _)| *at <= end)
            && let Some(((at, _), next)) = self.moments.pop_first()
        {
            self.at = at;
            self.totals.moments += 1;
            self.handle(next)?;
            if let Some(wrong) = self.wrong {
                return Err(wrong);
            }
        }
        self.at = end;
        Ok(())
    }

    pub(super) fn plan_at(&mut self, at: TimeUs, next: Next) {
        self.planned += 1;
        self.moments.insert((at, self.planned), next);
    }

    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>10} us  {}", self.at - START_US, line()));
        }
    }

    pub(super) fn handle(&mut self, next: Next) -> Result<(), Failure> {
        // Events of a paused machine happen after the pause.
        let paused_until = match &next {
            Next::Arrives(n, _) | Next::Timer(n) | Next::Tick(n) | Next::Snapshot(n) => {
                self.nodes[*n].machine.paused_until
            }
            Next::Returns(Reply { who, .. }) | Next::Wakes(who, _) | Next::SingleWakes(who, _) => {
                self.machine_of(who.client).paused_until
            }
            Next::ToMember(message) => self.nodes[message.node].machine.paused_until,
            Next::BreaksInTurn(..) | Next::MustHaveLost(_) => 0,
            Next::Learns(client, _) => self.machine_of(*client).paused_until,
            Next::FromMember(..) | Next::ChangerGoesOn(..) | Next::ChangerLooks(..) => 0,
            Next::Written(..) | Next::Writes { .. } | Next::Begins(_) | Next::Again(..) | Next::Ends(_) => 0,
        };
        if paused_until > self.at {
            self.plan_at(paused_until, next);
            return Ok(());
        }
        match next {
            Next::Arrives(n, request) => self.deliver(n, request),
            Next::Returns(reply) => {
                let who = reply.who;
                if who.client >= single_client::FIRST {
                    return self.on_single(who.client, |client, now| client.hear(&reply, now));
                }
                if let Hears::Later(version) = reply.says {
                    self.hear_of(who.client, version, 0);
                }
                return self.on_client(who.client, |client, now| client.hear(&reply, now));
            }
            Next::Timer(n) => {
                self.nodes[n].armed = None;
                self.on_server(n, |server, now| server.run(now));
            }
            Next::Tick(n) => {
                self.on_server(n, |server, now| {
                    server.run(now);
                    server.tick(now);
                });
                self.on_server(n, |server, now| server.pass_times(now));
                self.follow(n);
                self.answer_waiters(n)?;
                self.plan_at(self.at + TICK_US, Next::Tick(n));
            }
            Next::Snapshot(n) => {
                let now = self.nodes[n].machine.now(self.at);
                if let Some(server) = &self.nodes[n].server {
                    self.nodes[n].files.data = Some(server.records(now));
                    self.plan_snapshot(n);
                }
            }
            Next::Written(n, life, number, state) => self.written(n, life, number, *state),
            Next::Wakes(who, wake) => return self.on_wake(who, wake),
            Next::SingleWakes(who, wake) => return self.on_single_wake(who, wake),
            Next::Writes { key, who, token, mode } => {
                let taken = self.judge(Event { at: self.at, key, who, what: Occurrence::Wrote { token, mode } })?;
                *(if taken { &mut self.totals.taken } else { &mut self.totals.fenced_out }) += 1;
            }
            Next::ToMember(message) => self.member_hears(*message),
            Next::FromMember(id, message) => return self.changer_hears(id, *message),
            Next::ChangerGoesOn(of, look) => self.changer_goes_on(of, look),
            Next::ChangerLooks(of, look) => self.changer_looks_again(of, look),
            Next::BreaksInTurn(fault, step, holders) => return self.break_next(fault, step, holders),
            Next::MustHaveLost(who) => return self.must_have_lost(who),
            Next::Learns(client, version) => return self.learn(client, version),
            Next::Begins(fault) => return self.begin_fault(fault),
            Next::Again(fault, turn) => return self.again(fault, turn),
            Next::Ends(fault) => self.end_fault(fault),
        }
        Ok(())
    }

    pub(super) fn judge(&mut self, event: Event) -> Result<bool, Failure> {
        self.is_had_by_somebody(&event);
        self.tell(|| format!("key {}: {} {:?}", event.key, event.who, event.what));
        if self.may_be_broken(&event) {
            return Ok(true);
        }
        self.referee.see(&event).map_err(Failure::Broken)
    }
}
