//! The answers that a client receives, and missing answers.

use palisade_core::quorum::{
    Answer, Ask, Call, ChoiceProgress, Held, NodeId, Progress, Refused, WaitTask, Waiter, margin_us,
};
use palisade_core::{BootTime, Now};

use super::keeping::Keeping;
use super::{Client, Open, Stage, Status, Step};
use crate::messages::{Hears, Payload, Reply};
use crate::rules::{Rule, Without};

impl Client {
    /// Processes `reply`; ignores an unexpected one.
    pub fn hear(&mut self, reply: &Reply, now: Now) -> Step {
        if reply.who.client != self.number {
            return Step::default();
        }
        let Some(open) = self.open.remove(&reply.number) else { return Step::default() };
        let id = if self.without.is(Rule::ServersNotNames) { NodeId(open.seat as u128) } else { reply.id };
        self.ids.insert(open.seat, id);
        match reply.says {
            Hears::Answer(answer) => {
                if let Answer::Token(token) = answer {
                    self.seen = self.seen.max(token.get());
                }
                self.on_answer(open, Some(id), answer, now)
            }
            Hears::Free(numbers) => {
                self.on_view(&open, Some((id, (1..64).filter(|number| numbers >> number & 1 == 1).collect())))
            }
            Hears::Told(0) => self.after_wait(now, |waiter, random| waiter.on_nothing(open.seat, now.boot, random)),
            Hears::Told(number) => self.after_wait(now, |waiter, random| waiter.on_turn(open.seat, id, number, random)),
            Hears::Another | Hears::Later(_) => self.is_not_answered(open, now),
            Hears::Replied(_) => Step::default(),
        }
    }

    /// Records that request `number` got no answer in time.
    pub fn miss(&mut self, number: u32, now: Now) -> Step {
        let Some(open) = self.open.remove(&number) else { return Step::default() };
        self.is_not_answered(open, now)
    }

    fn is_not_answered(&mut self, open: Open, now: Now) -> Step {
        match open.says {
            Payload::Ask(_) => self.on_answer(open, None, Answer::Failed, now),
            Payload::Look => self.on_view(&open, None),
            _ => self.after_wait(now, |waiter, random| waiter.on_failure(open.seat, false, 0, now.boot, random)),
        }
    }

    /// Stops waiting for answers to the requests of the current attempt.
    pub fn stop_asking(&mut self, now: Now) -> Step {
        let mut all = Step::default();
        while let Stage::Acquiring { .. } | Stage::Looking(_) = self.stage
            && let Some((&number, _)) = self.open.first_key_value()
        {
            let step = self.miss(number, now);
            all.sends.extend(step.sends);
            all.says = all.says.or(step.says);
        }
        all
    }

    /// Records that all requests sent before now got no answer in time.
    pub fn miss_overdue(&mut self, now: Now) -> Step {
        let mut all = Step::default();
        let overdue: Vec<u32> = self.open().filter(|(_, sent)| *sent < now.boot).map(|(number, _)| number).collect();
        for number in overdue {
            let step = self.miss(number, now);
            all.sends.extend(step.sends);
            all.says = all.says.or(step.says);
        }
        all
    }

    fn on_view(&mut self, open: &Open, view: Option<(NodeId, Vec<u16>)>) -> Step {
        let random = self.random();
        let Stage::Looking(choice) = &mut self.stage else { return Step::default() };
        let shown = match choice.on_view(open.seat, view) {
            ChoiceProgress::Goes => return Step::default(),
            ChoiceProgress::Free => choice.number(random),
            ChoiceProgress::Full => None,
        };
        self.stage = Stage::Idle;
        self.open.clear();
        Step { sends: vec![], says: Some(Status::Shown(shown)) }
    }

    fn after_wait(&mut self, now: Now, hears: impl FnOnce(&mut Waiter, u64) -> WaitTask) -> Step {
        let random = self.random();
        let Stage::Waiting(waiter) = &mut self.stage else { return Step::default() };
        match hears(waiter, random) {
            WaitTask::Go => Step::default(),
            WaitTask::Ask { node, after_ms } => {
                let ms = Waiter::at_a_time_ms(waiter.until(), 0, now.boot.plus_ms(after_ms), random);
                let says = Payload::Wait { ms, ticket: self.ticket };
                Step { sends: vec![(after_ms, self.request(node, 0, says, now))], says: None }
            }
            WaitTask::Acquire(number) => Step { sends: vec![], says: Some(Status::Told(Some(number))) },
            WaitTask::Leave | WaitTask::Refused => self.give_back(Status::Told(None), now),
        }
    }

    fn on_answer(&mut self, open: Open, id: Option<NodeId>, answer: Answer, now: Now) -> Step {
        let Payload::Ask(ask) = open.says else { return Step::default() };
        let (node, random) = (open.seat, self.random());
        // With `AnswersInTime` switched off, an answer counts as if it had come at once.
        let heard = if self.without.is(Rule::AnswersInTime) { open.sent } else { now.boot };
        match &mut self.stage {
            Stage::Acquiring { machine, since } => {
                let since = *since;
                match machine.on_answer(node, id, ask, answer, heard) {
                    Progress::Goes(calls) => self.go_on(calls, now),
                    Progress::Held(held) => self.hold(held, since, now),
                    Progress::TooLate => self.give_back(Status::Refused(Refused::TooLate), now),
                    // The reason may change with the answers of other nodes.
                    Progress::Impossible => match machine.obstacle() {
                        None => Step::default(),
                        Some(obstacle) => self.give_back(Status::Refused(obstacle.refused()), now),
                    },
                }
            }
            Stage::Holding { keeping, until, .. } => {
                let held = keeping.held();
                let round = if self.without.is(Rule::AnswersOfTheirRound) { held.round() } else { open.round };
                let before = (held.valid_until(), held.token());
                let calls = keeping.on_answer(round, Call { node, ask, after_ms: 0 }, id, answer, heard, random);
                let held = keeping.held();
                let after = (held.valid_until(), held.token());
                if after.0 > before.0 {
                    *until = belief(after.0, held.ttl_ms(), open.sent, self.without, now);
                }
                let round = held.round();
                let mut step = self.send(round, calls, now);
                step.says = (after != before).then_some(Status::Extended);
                step
            }
            Stage::Idle | Stage::Looking(_) | Stage::Waiting(_) => Step::default(),
        }
    }

    /// Sends the calls that the machine asks for next. With `SecondRound` switched off, they count as done.
    fn go_on(&mut self, calls: Vec<Call>, now: Now) -> Step {
        if self.without.is(Rule::SecondRound) {
            for call in &calls {
                if let Ask::Fence { token } = call.ask {
                    let seat = call.node;
                    let open = Open { seat, round: 0, says: Payload::Ask(call.ask), sent: now.boot };
                    let id = self.ids.get(&seat).copied();
                    let step = self.on_answer(open, id, Answer::Token(token), now);
                    if step.says.is_some() {
                        return step;
                    }
                }
            }
            return Step::default();
        }
        self.send(0, calls, now)
    }

    fn hold(&mut self, held: Held, since: BootTime, now: Now) -> Step {
        let until = belief(held.valid_until(), self.ttl_ms, since, self.without, now);
        let keeping = match self.in_background {
            true => Keeping::in_background(held, now.boot, self.random()),
            false => Keeping::ByHand(held),
        };
        self.stage = Stage::Holding { keeping, since, until };
        Step { sends: vec![], says: Some(Status::Held) }
    }
}

/// Returns until when a client relies on a lock that is valid until `until`. With some rules switched off, this is
/// later than `until`.
fn belief(until: BootTime, ttl_ms: u32, asked: BootTime, without: Without, now: Now) -> BootTime {
    match without.0 {
        Some(Rule::FromTheSend) => until.plus_us(now.boot.us_since(asked)),
        Some(Rule::DriftMargin) => until.plus_us(margin_us(ttl_ms)),
        _ => until,
    }
}
