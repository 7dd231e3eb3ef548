//! Messages between callers and nodes: requests, and answers that arrive late, twice or never.

use palisade_core::BootTime;
use palisade_core::quorum::{
    Answer, Auto, Call, ChoiceProgress, Keeper, NodeId, Obstacle, Progress, Refused, WaitTask, Waiter, Work,
};

use crate::crowd::{Event, GIVEN_US, LATE_US, Message, Open, Received, Stage, TTL_MAX_MS, TTL_MS, World};
use crate::simple_node::Name;
use crate::watched::Watched;

impl World<'_> {
    pub fn call(&mut self, number: usize, round: u64, calls: Vec<Call>) {
        calls.into_iter().for_each(|call| self.send(number, call.node, Message::Ask { call, round }, call.after_ms));
    }

    pub fn ask_to_wait(&mut self, number: usize, seat: usize, until: BootTime, after_ms: u32) {
        let ms = Waiter::at_a_time_ms(until, 0, self.now().plus_ms(after_ms), self.agenda.draw());
        self.send(number, seat, Message::Wait { ms }, after_ms);
    }

    pub fn send(&mut self, number: usize, seat: usize, says: Message, after_ms: u32) {
        let caller = &self.callers[number];
        let (server, name, permit, ticket) = (caller.set[seat], caller.name, caller.number, caller.ticket);
        let (life, after_us) = (caller.life, u64::from(after_ms) * 1_000);
        let request = self.agenda.number();
        let given_us = match says {
            Message::Wait { ms } => u64::from(ms) * 1_000 + GIVEN_US,
            _ => GIVEN_US,
        };
        if !matches!(says, Message::Release) {
            self.open.insert(request, Open { caller: number, life, seat, says });
            let missed = Event::Hears { request, id: None, heard: Received::Nothing, again: false };
            self.agenda.after(after_us + given_us, missed);
        }
        if let Some(us) = self.takes() {
            self.agenda.after(after_us + us, Event::Arrives { request, server, name, number: permit, ticket, says });
        }
    }

    /// Draws the delay of a message, in microseconds; `None` if the message is lost.
    pub fn takes(&mut self) -> Option<u64> {
        match self.agenda.below(40) {
            0 if !self.is_calm => None,
            1 if !self.is_calm => Some(self.agenda.below(LATE_US)),
            _ => Some(100 + self.agenda.below(4_000)),
        }
    }

    pub fn arrive(&mut self, request: u64, server: usize, (name, number, ticket): (Name, u16, u64), says: Message) {
        let now = self.agenda.now;
        if !self.set.contains(&server) {
            return;
        }
        if self.hangs {
            // The node is stopped. The message arrives when the node runs again.
            return self.agenda.after(10_000, Event::Arrives { request, server, name, number, ticket, says });
        }
        let node = &mut self.nodes[server];
        let heard = match says {
            Message::Ask { call, .. } => Received::Answer(node.ask(name, number, call.ask, now)),
            Message::Look => Received::Free(node.free(now)),
            Message::Release => {
                node.release(name);
                return self.pass_on(server);
            }
            Message::Wait { ms } => {
                node.wait(name, ticket, now + u64::from(ms) * 1_000);
                self.waits.insert((name, server), request);
                return self.pass_on(server);
            }
        };
        self.agenda.after(u64::from(TTL_MAX_MS) * 1_000, Event::Passes(server));
        self.returns(server, request, heard);
    }

    pub fn pass_on(&mut self, server: usize) {
        for (name, number) in self.nodes[server].pass_on(self.agenda.now) {
            self.agenda.after(60_000, Event::Passes(server));
            if let Some(request) = self.waits.remove(&(name, server)) {
                self.returns(server, request, Received::Told(number));
            }
        }
    }

    pub fn returns(&mut self, server: usize, request: u64, heard: Received) {
        let id = Some(self.nodes[server].server());
        for again in [self.agenda.one_in(20), false].into_iter().skip(usize::from(!self.agenda.one_in(20))) {
            if let Some(us) = self.takes() {
                self.agenda.after(us, Event::Hears { request, id, heard: heard.clone(), again });
            }
        }
    }

    pub fn hear(&mut self, request: u64, id: Option<NodeId>, heard: Received, again: bool) {
        let Some(&Open { caller: number, life, seat, says }) = self.open.get(&request) else { return };
        if !again {
            self.open.remove(&request);
        }
        let (now, random) = (self.now(), self.agenda.draw());
        let caller = &mut self.callers[number];
        if caller.life != life {
            return;
        }
        match (&mut caller.stage, says) {
            (Stage::Asking(machine), Message::Ask { call, .. }) => {
                let answer = if let Received::Answer(answer) = heard { answer } else { Answer::Failed };
                let progress = machine.on_answer(seat, id, call.ask, answer, now);
                let obstacle = machine.obstacle();
                self.proceed(number, progress, obstacle);
            }
            (Stage::Looking(choice), Message::Look) => {
                let view = if let Received::Free(free) = heard { id.map(|id| (id, free)) } else { None };
                let number_shown = match choice.on_view(seat, view) {
                    ChoiceProgress::Goes => return,
                    ChoiceProgress::Free => choice.number(random),
                    ChoiceProgress::Full => None,
                };
                self.decide(number, |taker, conduct, now, random| {
                    conduct.on_shown(number_shown);
                    taker.on_look(number_shown, now, random)
                });
            }
            (Stage::Queued(waiter), Message::Wait { .. }) => {
                let task = match (heard, id) {
                    (Received::Told(kept), Some(id)) => waiter.on_turn(seat, id, kept, random),
                    _ if self.hangs => waiter.on_failure(seat, false, 0, now, random),
                    _ => waiter.on_nothing(seat, now, random),
                };
                self.waited(number, seat, task);
            }
            (Stage::Holding(_), Message::Ask { call, round }) => {
                let answer = if let Received::Answer(answer) = heard { answer } else { Answer::Failed };
                self.keeps(number, |keeper, now, random| keeper.on_answer(round, call, id, answer, now, random));
            }
            _ => {}
        }
    }

    pub fn proceed(&mut self, number: usize, progress: Progress, obstacle: Option<Obstacle>) {
        let refused = match (progress, obstacle) {
            (Progress::Goes(calls), _) => return self.call(number, 0, calls),
            (Progress::Held(held), _) => {
                let auto = Auto { until: self.now().plus_ms(60_000), ttl_ms: TTL_MS };
                let auto = Some(auto).filter(|_| self.is_calm || !self.agenda.one_in(5));
                let session = self.agenda.one_in(3).then(|| BootTime::from_us(self.agenda.now - 300_000));
                let keeper = Keeper::begin(held, auto, session, self.now(), self.agenda.draw());
                self.callers[number].taking = None;
                let mut watched = Watched::new(keeper, self.is_calm);
                watched.is_taken_away = self.callers[number].is_taken_away;
                let before = self.callers[number].life;
                self.enter(number, Stage::Holding(Box::new(watched)), None);
                // Answers that arrive once the lock is held are for the caller's keeper.
                let life = self.callers[number].life;
                self.open.values_mut().filter(|open| open.life == before).for_each(|open| open.life = life);
                self.leave_line(number);
                let holds = self.agenda.below(if self.is_calm { 1_000_000 } else { 3_000_000 });
                self.agenda.after(holds, Event::Leaves(number, life));
                self.agenda.after(holds / 3, Event::Orders(number, life));
                return self.keeps(number, |_, _, _| Work::default());
            }
            (Progress::TooLate, _) => Refused::TooLate,
            // More answers may show the reason for the refusal, so nothing is reported yet.
            (Progress::Impossible, None) => return,
            (Progress::Impossible, Some(obstacle)) => obstacle.refused(),
        };
        // Now and then a caller loses a permission: at all nodes, or at some.
        let refused = match self.agenda.below(if self.is_calm { 1_000_000 } else { 60 }) {
            0 if !self.is_calm => Refused::Lasting,
            1 if !self.is_calm => Refused::TooFewNodes { is_lasting: true },
            _ => refused,
        };
        self.decide(number, |taker, conduct, now, random| {
            conduct.on_refused(refused);
            taker.on_refused(refused, now, random)
        });
    }

    pub fn waited(&mut self, number: usize, seat: usize, task: WaitTask) {
        let told = match (task, &self.callers[number].stage) {
            (WaitTask::Go, _) => return,
            (WaitTask::Ask { after_ms, .. }, Stage::Queued(waiter)) => {
                let until = waiter.until();
                return self.ask_to_wait(number, seat, until, after_ms);
            }
            (WaitTask::Acquire(kept), _) if self.callers[number].set == self.set => Some(kept),
            _ => None,
        };
        self.decide(number, |taker, conduct, now, random| {
            conduct.on_shown(told);
            taker.on_queue(told, now, random)
        });
    }
}
