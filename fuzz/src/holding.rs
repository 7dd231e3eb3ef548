//! Callers that hold the lock: the demands of their programs on the keeper (to extend, to convert, to move to another
//! set), and the faults meanwhile.

use std::collections::BTreeMap;

use palisade_core::BootTime;
use palisade_core::quorum::{Auto, Keeper, Work};

use crate::crowd::{CALLERS, Event, Stage, TTL_MAX_MS, TTL_MS, World};
use crate::simple_node::SimpleNode;

impl World<'_> {
    pub fn keeps(&mut self, number: usize, input: impl FnOnce(&mut Keeper, BootTime, u64) -> Work) {
        let (now, random) = (self.now(), self.agenda.draw());
        let life = self.callers[number].life;
        let Stage::Holding(watched) = &mut self.callers[number].stage else { return };
        let work = watched.keep(now, |keeper| input(keeper, now, random));
        let (wake, round) = (watched.new_wake(), watched.keeper().held().round());
        self.call(number, round, work.calls);
        if let Some(wake) = wake {
            self.agenda.after(wake.us_since(now), Event::Wakes(number, life));
        }
    }

    /// Checks that a keeper has reported the loss of its lock by the time when it asked to be woken.
    pub fn check_whether_it_is_lost(&self, number: usize) {
        if let Stage::Holding(watched) = &self.callers[number].stage {
            let is_over = watched.keeper().held().valid_until() <= self.now();
            assert!(watched.is_lost() || !is_over, "lost, and not told");
        }
    }

    pub fn order(&mut self, number: usize, life: u64) {
        let after = 100_000 + self.agenda.below(1_000_000);
        self.agenda.after(after, Event::Orders(number, life));
        let ttl_ms = if self.is_calm { TTL_MS } else { TTL_MS / 4 + self.agenda.below(u64::from(2 * TTL_MS)) as u32 };
        let until = self.now().plus_ms(if self.is_calm { 60_000 } else { self.agenda.below(9_000) as u32 });
        match self.agenda.below(if self.is_calm { 3 } else { 7 }) {
            0 => self.keeps(number, |keeper, now, random| keeper.extend(ttl_ms, now, random)),
            1 => self.keeps(number, |keeper, now, random| keeper.keep(Some(Auto { until, ttl_ms }), now, random)),
            2 => self.keeps(number, |keeper, now, random| keeper.share(now, random)),
            3 => self.keeps(number, |keeper, now, random| keeper.keep(None, now, random)),
            4 => self.keeps(number, |keeper, _, _| {
                keeper.end_session();
                Work::default()
            }),
            5 => {
                let seat = self.agenda.below(self.callers[number].set.len() as u64) as usize;
                let node = &self.nodes[self.callers[number].set[seat]];
                let (id, has) = (node.server(), node.token_of(self.callers[number].name));
                self.keeps(number, |keeper, now, random| match keeper.held().token_at(seat) {
                    Some(token) if has != Some(token.get()) => keeper.on_missing(seat, Some(id), token, now, random),
                    _ => Work::default(),
                });
            }
            _ => {
                if self.follow(number) {
                    let ids: Vec<_> = self.set.iter().map(|server| Some(self.nodes[*server].server())).collect();
                    self.open.retain(|_, open| open.caller != number);
                    self.keeps(number, |keeper, now, random| keeper.move_to(&ids, now, random));
                }
            }
        }
    }

    // The functions below make things go wrong.

    pub fn go_wrong(&mut self) {
        let after = self.agenda.below(3_000_000);
        self.agenda.after(after, Event::GoesWrong);
        let guarded_until = self.agenda.now + u64::from(TTL_MAX_MS) * 1_020;
        let seat = self.agenda.below(self.set.len() as u64) as usize;
        match self.agenda.below(6) {
            0 | 1 => {
                let caller = self.agenda.below(CALLERS as u64) as usize;
                self.callers[caller].stopped_until = self.agenda.now + self.agenda.below(4_000_000);
            }
            2 => self.nodes[self.set[seat]].forget(guarded_until),
            3 if self.set.len() > 1 => {
                // Another server takes a node's place, or two nodes swap places.
                self.nodes.push(SimpleNode::new(self.nodes.len() as u128, self.limit, guarded_until));
                self.set[seat] = self.nodes.len() - 1;
                self.set.rotate_left(1);
            }
            4 => {
                // An operator breaks the lock on all nodes. Its holder may not notice at once.
                self.nodes.iter_mut().for_each(SimpleNode::take_away);
                for caller in &mut self.callers {
                    caller.is_taken_away = true;
                    if let Stage::Holding(watched) = &mut caller.stage {
                        watched.is_taken_away = true;
                    }
                }
            }
            _ => self.set.rotate_left(1),
        }
    }

    pub fn nobody_relies_beside_another(&self) {
        let mut relies: BTreeMap<u16, usize> = BTreeMap::new();
        for (number, caller) in self.callers.iter().enumerate() {
            if let Stage::Holding(watched) = &caller.stage
                && watched.relies(self.now())
                && let Some(other) = relies.insert(caller.number, number)
            {
                panic!("{number} and {other} rely on number {}", caller.number);
            }
        }
    }
}
