//! A keeper in drawn worlds: nodes that hang, restart and forget, orders at any time, a process that stops.

use super::*;
use crate::acquire::tests::id;
use crate::agenda::Agenda;
use crate::ask::{Ask, valid_until};
use crate::fixture::token;

const TTL_MS: u32 = 3_000;
const NODES: usize = 5;

/// What happens to a keeper in a drawn world.
enum Event {
    Wake,
    /// A node's answer to a call of this round, in this version of the set.
    Answer(u64, u64, Call),
    Order,
    /// Nothing answers for a while, or all is well again.
    Hang(bool),
}

struct World {
    agenda: Agenda<Event>,
    keeper: Keeper,
    /// Nodes hang for short moments only, and nothing else is wrong.
    is_calm: bool,
    hangs: bool,
    /// By place: its server, and the token that it has.
    nodes: Vec<(u128, Option<Token>)>,
    version: u64,
    /// The process does not run until then.
    stopped_until: u64,
    awake_at: Option<BootTime>,
    losses: usize,
    extended: usize,
    failed: usize,
}

impl World {
    fn begin(seed: u64, is_calm: bool) -> Self {
        let mut agenda = Agenda::new(seed);
        agenda.now = 10_000_000 + agenda.below(1_000_000);
        let now = BootTime::from_us(agenda.now);
        let until = now.plus_ms(if is_calm { 60_000 } else { agenda.below(60_000) as u32 });
        let auto = Some(Auto { until, ttl_ms: TTL_MS }).filter(|_| is_calm || !agenda.one_in(5));
        let session = agenda.one_in(3).then(|| BootTime::from_us(agenda.below(1_000_000)));
        // It was granted some time ago.
        let granted = agenda.now - agenda.below(u64::from(TTL_MS) * 900);
        let members = (0..NODES).map(|n| (id(n as u128), Some(token(100)), false)).collect();
        let held = Held::new(members, token(100), TTL_MS, valid_until(BootTime::from_us(granted), TTL_MS));
        let keeper = Keeper::begin(held, auto, session, now, agenda.draw());
        let nodes = (0..NODES as u128).map(|server| (server, Some(token(100)))).collect();
        let mut world = Self {
            agenda,
            keeper,
            is_calm,
            hangs: false,
            nodes,
            version: 0,
            stopped_until: 0,
            awake_at: None,
            losses: 0,
            extended: 0,
            failed: 0,
        };
        world.after_a_while(Event::Order);
        world.agenda.at(world.agenda.now + 3_000_000, Event::Hang(true));
        world.plan();
        world
    }

    fn after_a_while(&mut self, event: Event) {
        let after = self.agenda.below(2_000_000);
        self.agenda.at(self.agenda.now + after, event);
    }

    /// The caller wakes the keeper when it says.
    fn plan(&mut self) {
        let wake = self.keeper.wake_at();
        if wake != self.awake_at
            && let Some(at) = wake
        {
            self.agenda.at(at.as_us().max(self.agenda.now), Event::Wake);
        }
        self.awake_at = wake;
    }

    fn run(mut self) -> Self {
        let end = self.agenda.now + 50_000_000;
        while let Some(event) = self.agenda.next(end) {
            self.agenda.now = self.agenda.now.max(self.stopped_until);
            let now = BootTime::from_us(self.agenda.now);
            let before = self.keeper.clone();
            let random = self.agenda.draw();
            let work = match event {
                Event::Wake => {
                    self.awake_at = None;
                    self.keeper.on_wake(now, random)
                }
                Event::Answer(version, round, call) if version == self.version => self.answer(round, call, now, random),
                Event::Answer(..) => Work::default(),
                Event::Order => {
                    self.after_a_while(Event::Order);
                    self.order(now, random)
                }
                Event::Hang(hangs) => {
                    self.hangs = hangs;
                    // A round fails, and the ones after it, while two thirds of a lease are left.
                    let part = if self.is_calm { 400 } else { 1_000 };
                    let for_us = if hangs { self.agenda.below(u64::from(TTL_MS) * part) } else { 6_000_000 };
                    self.agenda.at(self.agenda.now + for_us, Event::Hang(!hangs));
                    Work::default()
                }
            };
            self.check(&before, &work, now);
            for call in work.calls {
                let takes = match self.agenda.below(20) {
                    0 if !self.is_calm => continue,
                    _ => 1 + self.agenda.below(u64::from(TTL_MS) * 1_000 / 50),
                };
                let at = self.agenda.now + u64::from(call.after_ms) * 1_000 + takes;
                self.agenda.at(at, Event::Answer(self.version, self.keeper.held.round(), call));
            }
            self.plan();
        }
        self
    }

    fn answer(&mut self, round: u64, call: Call, now: BootTime, random: u64) -> Work {
        let (server, has) = &mut self.nodes[call.node];
        let answer = match call.ask {
            _ if self.hangs => Answer::Failed,
            Ask::Acquire { proposal, .. } => {
                *has = Some(has.unwrap_or(proposal).max(proposal));
                has.map_or(Answer::No, Answer::Token)
            }
            Ask::Fence { token } => {
                *has = has.map(|has| has.max(token));
                has.map_or(Answer::No, Answer::Token)
            }
            Ask::Extend { token, .. } if *has != Some(token) => Answer::No,
            Ask::Extend { .. } | Ask::Share => has.map_or(Answer::No, Answer::Token),
        };
        let id = Some(NodeId(*server)).filter(|_| answer != Answer::Failed);
        self.keeper.on_answer(round, call, id, answer, now, random)
    }

    fn order(&mut self, now: BootTime, random: u64) -> Work {
        let place = self.agenda.below(self.nodes.len() as u64) as usize;
        let ttl_ms = TTL_MS / 4 + self.agenda.below(u64::from(2 * TTL_MS)) as u32;
        match self.agenda.below(if self.is_calm { 5 } else { 11 }) {
            0 => self.keeper.extend(ttl_ms, now, random),
            1 => {
                let until = now.plus_ms(if self.is_calm { 60_000 } else { self.agenda.below(20_000) as u32 });
                let ttl_ms = if self.is_calm { TTL_MS } else { ttl_ms };
                self.keeper.keep(Some(Auto { until, ttl_ms }), now, random)
            }
            2 => self.keeper.share(now, random),
            3 => {
                // The same servers in other places; or one that is new.
                self.version += 1;
                self.nodes.rotate_left(1);
                if !self.is_calm && self.agenda.one_in(2) {
                    self.nodes[0] = (u128::from(self.agenda.draw()), None);
                }
                let ids: Vec<_> = self.nodes.iter().map(|(server, _)| Some(NodeId(*server))).collect();
                self.keeper.move_to(&ids, now, random)
            }
            4 => {
                // A node restarts without its data.
                if !self.is_calm || self.nodes.iter().all(|(_, has)| has.is_some()) {
                    self.nodes[place].1 = None;
                }
                Work::default()
            }
            5 => self.keeper.keep(None, now, random),
            6 => {
                let (server, has) = self.nodes[place];
                let token = self.keeper.held.token_at(place).filter(|token| has != Some(*token));
                token.map_or_else(Work::default, |token| {
                    self.keeper.on_missing(place, Some(NodeId(server)), token, now, random)
                })
            }
            7 => {
                self.keeper.end_session();
                Work::default()
            }
            8 => {
                self.stopped_until = self.agenda.now + self.agenda.below(4_000_000);
                Work::default()
            }
            9 if self.agenda.one_in(3) => {
                self.nodes.iter_mut().for_each(|(_, has)| *has = None);
                Work::default()
            }
            _ => Work::default(),
        }
    }

    fn check(&mut self, before: &Keeper, work: &Work, now: BootTime) {
        let keeper = &self.keeper;
        assert!(keeper.held.valid_until() >= before.held.valid_until(), "validity moved back");
        assert!(keeper.held.token() >= before.held.token(), "the token fell");
        self.extended += work.news.iter().filter(|news| **news == News::Extended).count();
        self.failed += work.news.iter().filter(|news| **news == News::NotExtended).count();
        self.losses += work.news.iter().filter(|news| matches!(news, News::Lost(_))).count();
        assert!(self.losses <= 1, "told twice that it is lost");
        assert_eq!(self.losses == 1, keeper.is_lost, "lost, and not told");
        if before.is_lost {
            assert_eq!((work, keeper.wake_at()), (&Work::default(), None), "there is nothing to come");
            return;
        }
        if keeper.is_lost {
            assert_eq!((work.calls.len(), work.begins, work.news.len()), (0, false, 1), "{work:?}");
            assert!(!self.is_calm || now >= keeper.auto.unwrap().until, "lost though nodes answer");
            return;
        }
        let is_begun = keeper.held.round() > before.held.round() && work.begins;
        assert_eq!(is_begun, work.begins);
        // Those who move to another version leave the round behind.
        let moved = keeper.held.round() > before.held.round() + 1;
        assert!(!is_begun || moved || !before.is_extending(), "begun while one was under way");
        let is_by_itself = is_begun && !keeper.is_awaited && !moved && work.news.is_empty();
        if is_by_itself {
            let auto = keeper.auto.expect("nothing is in the background");
            assert!(now < auto.until.plus_ms(4_100) && before.next <= Some(now), "begun too early or too late");
            assert!(before.next < Some(auto.until) && !keeper.is_session_over, "begun after its end");
        }
        assert!(!keeper.is_awaited || keeper.is_extending(), "somebody waits, and no round is under way");
        let wake = keeper.wake_at().expect("nothing wakes it");
        assert!(wake <= keeper.held.valid_until(), "it sleeps through its end");
        let runs = |auto: &Auto| !keeper.is_session_over && now.plus_us(keeper.period_us()) < auto.until;
        if keeper.auto.as_ref().is_some_and(runs) {
            let next = keeper.next.expect("it is to be extended, and nothing is planned");
            assert!(next <= now.plus_us(keeper.period_us()).max(before.next.unwrap_or_default()), "too late");
            if work.news.contains(&News::NotExtended) {
                let left_us = keeper.held.valid_until().us_since(now);
                assert!(left_us <= AGAIN_LEAST_US || next < keeper.held.valid_until(), "not begun again in time");
            }
        }
    }
}

/// Nodes answer, but for moments of up to two fifths of a lease; orders come at any time. It is never lost.
#[test]
fn it_is_kept_as_long_as_nodes_answer() {
    let (mut extended, mut failed) = (0, 0);
    for seed in 0..300 {
        let world = World::begin(seed, true).run();
        assert_eq!(world.losses, 0, "seed {seed}");
        (extended, failed) = (extended + world.extended, failed + world.failed);
    }
    assert!(extended > 10_000 && failed > 1_000, "{extended} {failed}");
}

/// Whatever happens: rounds do not overlap or begin after their end, validity does not move back, and its loss is told once.
#[test]
fn whatever_happens_its_rules_hold() {
    let (mut extended, mut losses) = (0, 0);
    for seed in 0..1_000 {
        let world = World::begin(seed, false).run();
        (extended, losses) = (extended + world.extended, losses + world.losses);
    }
    assert!(extended > 2_000 && losses > 900, "{extended} {losses}");
}
