//! Clients of a run: when they want a lock, keep it, write under it and release it.

use palisade_core::{Now, Wanted};
use rand::RngExt;

use super::agenda::{Next, Wake};
use super::caller::PATIENCE_US;
use super::outcome::Failure;
use super::world::World;
use crate::client::{Client, Status, Step};
use crate::history::{Event, HeldAs, Holder, Occurrence, TimeUs};
use crate::messages::Payload;

/// The time, in microseconds, after which a client checks its lock again, while an answer may still extend it.
const HOPES_US: u64 = 1_000;

/// The divisor of a lease that gives the time after which a client sometimes begins another round of extension, even
/// before the present one is over.
const AGAIN: u64 = 10;

/// The time between a client's last check of its lock and its write, in microseconds.
const LOOK_TO_WRITE_US: u64 = 20_000;

impl World<'_> {
    /// Plans a client's action after about `mean_us` of true time.
    pub(super) fn plan_wake(&mut self, who: Holder, mean_us: u64, wake: Wake) {
        let after = self.rng.random_range(0..=2 * mean_us);
        self.plan_at(self.at + after, Next::Wakes(who, wake));
    }

    /// Draws the mode of a request. If `limit` is above zero, the client may want any mode, with permits of about that
    /// limit.
    pub(super) fn draw_mode(&mut self, limit: u16) -> Wanted {
        if limit == 0 {
            return Wanted::Exclusive;
        }
        match self.rng.random_range(0..10) {
            0..3 => Wanted::Exclusive,
            3..6 => Wanted::Shared,
            _ => {
                let limit = self.rng.random_range(limit.saturating_sub(1)..=limit + 1);
                let number = self.rng.random_ratio(1, 5).then(|| self.rng.random_range(1..=limit.max(1)));
                // With a limit of one, `permit` returns the exclusive mode. With zero, it fails, and the mode is
                // exclusive too.
                palisade_core::request::permit(limit.into(), number.map(u64::from)).unwrap_or_default()
            }
        }
    }

    /// Draws a client's limit on waiting: zero, some time, or none.
    fn draw_limit(&mut self) -> Option<u64> {
        match self.rng.random_range(0..10) {
            0..2 => Some(0),
            2..5 => Some(self.rng.random_range(0..2_000_000)),
            5..9 => Some(self.rng.random_range(0..PATIENCE_US)),
            _ => None,
        }
    }

    pub(super) fn on_wake(&mut self, who: Holder, wake: Wake) -> Result<(), Failure> {
        let (machine, client) = &self.clients[who.client as usize];
        if client.who() != who || machine.down {
            return Ok(());
        }
        let holds = client.holding().is_some();
        let key = self.rng.random_range(0..self.plan.keys);
        match wake {
            Wake::Wants if client.is_idle() && self.taking[who.client as usize].is_none() && !self.quiet => {
                let wanted = self.draw_mode(self.plan.limit);
                let limit_us = self.draw_limit();
                self.take(who.client, key, wanted, limit_us)
            }
            Wake::Shares if holds => self.on_client(who.client, Client::share),
            Wake::Misses(number) => self.on_client(who.client, |client, now| client.miss(number, now)),
            Wake::Extends if holds => {
                let again = self.on_client(who.client, |client, now| client.extend(now));
                let ttl_us = u64::from(self.plan.ttl_ms) * 1_000;
                // Sometimes the client begins another round before the previous one is over.
                let soon = self.rng.random_ratio(1, 5);
                let after = if soon { ttl_us / AGAIN } else { ttl_us * self.plan.extended_after_permille / 1_000 };
                self.plan_at(self.at + after, Next::Wakes(who, Wake::Extends));
                again
            }
            Wake::Keeps(wake) if client.wake_at() == Some(wake) => {
                if machine.now(self.at).boot >= wake {
                    return self.on_client(who.client, Client::wake);
                }
                self.plan_at(self.at + 1, Next::Wakes(who, Wake::Keeps(wake)));
                Ok(())
            }
            Wake::AsksAgain if client.is_idle() => self.ask_again(who),
            Wake::StopsLining => self.stop_lining(who.client),
            Wake::StopsAsking => self.on_client(who.client, Client::stop_asking),
            Wake::Looks => {
                let held = client.holding().map(|(_, since, _)| (client.key(), machine.when(since)));
                self.on_client(who.client, |client, now| client.look(now).unwrap_or_default())?;
                if let Some((key, since)) = held.filter(|_| self.clients[who.client as usize].1.is_idle()) {
                    self.totals.lost += 1;
                    self.end_holding(who, key, since, true)?;
                }
                Ok(())
            }
            Wake::GivesBack if holds => {
                if let Some((_, since, _)) = client.holding() {
                    self.end_holding(who, client.key(), machine.when(since), false)?;
                }
                self.on_client(who.client, |client, now| client.release(now))
            }
            Wake::Leaves if !holds && self.taking[who.client as usize].is_some() => {
                self.stop_taking(who.client, false)?;
                self.on_client(who.client, Client::release)
            }
            Wake::Checks if holds => {
                let now = machine.now(self.at);
                if let Some((held, _, until)) = client.holding()
                    && now.boot < until
                {
                    let token = held.token().get();
                    let mode = client.mode();
                    self.plan_wake(who, LOOK_TO_WRITE_US, Wake::Sends(client.key(), token, mode));
                }
                self.plan_wake(who, self.plan.hold_us / 4, Wake::Checks);
                Ok(())
            }
            Wake::Sends(key, token, mode) => {
                let delay = self.rng.random_range(1..=2 * self.plan.network.delay_us);
                self.plan_at(self.at + delay, Next::Writes { key, who, token, mode });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Runs `body` on a client, sends its requests, reports its change of status to the referee, and plans its next
    /// action.
    pub(super) fn on_client(
        &mut self,
        number: u32,
        body: impl FnOnce(&mut Client, Now) -> Step,
    ) -> Result<(), Failure> {
        let (machine, client) = &mut self.clients[number as usize];
        if machine.down {
            return Ok(());
        }
        let now = machine.now(self.at);
        let (before, woke_at) = (client.who(), client.wake_at());
        let step = body(client, now);
        let (who, key, mode) = (client.who(), client.key(), client.mode());
        let wake = client.wake_at().filter(|wake| woke_at != Some(*wake)).map(|wake| (machine.when(wake), wake));
        let is_taken_away = client.is_taken_away();
        let holding =
            client.holding().map(|(held, since, until)| (machine.when(since), machine.when(until), held.token().get()));
        let timeout_us = u64::from(self.plan.node_timeout_ms) * 1_000;
        for (after_ms, request) in step.sends {
            if matches!(request.says, Payload::Ask(_) | Payload::Look) {
                // The timeout counts from the moment at which the request is really sent.
                self.plan_at(
                    self.at + u64::from(after_ms) * 1_000 + timeout_us,
                    Next::Wakes(who, Wake::Misses(request.number)),
                );
            }
            if let Payload::Wait { ms, ticket } = request.says {
                if self.taking[number as usize].as_ref().is_some_and(|taking| taking.ticket != ticket) {
                    let wrong = "it joins the queues with another ticket than before";
                    return Err(Failure::Conduct { client: number, wrong });
                }
                let late = u64::from(ms) * 1_000 + 1_000_000;
                self.plan_at(self.at + late, Next::Wakes(who, Wake::Misses(request.number)));
            }
            self.send(after_ms, request);
        }
        let at = self.at;
        if let Some((wakes_at, wake)) = wake {
            self.plan_at(wakes_at.max(at), Next::Wakes(who, Wake::Keeps(wake)));
        }
        if let (Some(Status::Held), Some((_, until, _))) = (step.says, holding) {
            self.totals.held += 1;
            self.stop_taking(number, true)?;
            let ttl_us = u64::from(self.plan.ttl_ms) * 1_000;
            let after = ttl_us * self.plan.extended_after_permille / 1_000;
            // Locks that are extended in the background are sometimes extended by hand as well.
            if !self.plan.is_in_background(number as usize) || self.rng.random_ratio(1, 5) {
                self.plan_at(at + after, Next::Wakes(who, Wake::Extends));
            }
            self.plan_wake(who, self.plan.hold_us, Wake::GivesBack);
            self.plan_wake(who, self.plan.hold_us / 4, Wake::Checks);
            self.plan_at(until.max(at) + 1, Next::Wakes(who, Wake::Looks));
        }
        self.hear_status(step.says, (before, who), (key, mode), holding)?;
        match (step.says, holding) {
            (Some(Status::Held), _)
                if mode == HeldAs::Exclusive && self.plan.limit > 0 && self.rng.random_ratio(1, 4) =>
            {
                self.plan_wake(who, self.plan.hold_us / 2, Wake::Shares);
            }
            (Some(Status::Extended), Some((_, until, _))) => {
                self.totals.extended += 1;
                self.plan_at(until.max(at) + 1, Next::Wakes(who, Wake::Looks));
            }
            (Some(Status::Refused(refused)), _) => {
                self.totals.refused += 1;
                return self.is_refused(number, refused);
            }
            (Some(Status::Told(told)), _) => return self.is_told(number, told),
            (Some(Status::Shown(shown)), _) => return self.is_shown(number, shown),
            (Some(Status::Ended | Status::Left), _) => self.rest(number)?,
            _ => {}
        }
        // After any answer, the client checks its clock.
        if (is_taken_away || holding.is_some_and(|(_, until, _)| until <= at)) && step.says != Some(Status::Ended) {
            self.plan_at(at + HOPES_US, Next::Wakes(who, Wake::Looks));
        }
        Ok(())
    }

    /// Reports to the referee a change of a client's status.
    pub(super) fn hear_status(
        &mut self,
        says: Option<Status>,
        (before, who): (Holder, Holder),
        (key, mode): (u32, HeldAs),
        holding: Option<(TimeUs, TimeUs, u64)>,
    ) -> Result<(), Failure> {
        let (who, what) = match (says, holding) {
            (Some(Status::Held), Some((since, until, token))) => {
                self.totals.counts(mode);
                (who, Occurrence::Held { since, until, token, mode })
            }
            (Some(Status::Converted), Some((_, _, token))) => {
                self.totals.converted += 1;
                (who, Occurrence::Converted { token, mode })
            }
            // A token may still rise after an operator broke the lock, before the holder knows of it. Such an event is
            // not judged.
            (Some(Status::Extended), Some((since, ..))) if self.is_broken_since(key, since) => return Ok(()),
            (Some(Status::Extended), Some((_, until, token))) => (who, Occurrence::Extended { until, token }),
            (Some(Status::Ended), _) => (before, Occurrence::Ended),
            _ => return Ok(()),
        };
        self.judge(Event { at: self.at, key, who, what }).map(drop)
    }
}
