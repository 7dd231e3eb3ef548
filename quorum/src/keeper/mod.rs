//! Keeping a lock that is held: when it is extended, when a round that failed is begun again, and when and why the lock counts as lost.
//!
//! ```text
//!              it is time, or an order            a majority extended it
//!   begin ──► Resting ────────────────► Extending ────────────────► Resting
//!                ▲                          │
//!                └─ again in a moment ◄─────┘ too few nodes can
//!
//!   Resting, Extending ── validity ends, or no majority has the lock ──► Lost
//! ```
//!
//! The machine decides; its caller sends the calls, wakes it in time and passes its news on. What one round is, and what its answers
//! come to, is [`Held`].

#[cfg(test)]
mod tests;

use crate::ask::{Answer, Call, NodeId};
use crate::held::Held;
use crate::jitter::less_up_to;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// How many rounds a lease has: all but the last can fail.
pub const ROUNDS_A_LEASE: u32 = 3;

/// A round that failed is begun again after this part of the ttl, or of what is left of validity if that is less: nodes that hang for a
/// moment are asked again while there is time.
const AGAIN: u64 = 10;
const AGAIN_OF_LEFT: u64 = 4;

/// The shortest pause before a round is begun again, in microseconds.
const AGAIN_LEAST_US: u64 = 5_000;

/// The first round begins within this part of what is left of validity: a lock that was granted late is extended in time.
const FIRST_OF_LEFT: u64 = 2;

/// Jitter takes up to this part of a pause away, in thousandths: not all holders ask at the same moment.
const JITTER_PERMILLE: u64 = 150;

/// Rounds begin at multiples of this on the boot clock, in microseconds: those of one process that fall together go out together, and a
/// process of thousands does not wake up for each. Short enough that others do not wait behind a crowd of them.
const TOGETHER_US: u64 = 10_000;

/// The largest part of a pause that is given up for going together.
const TOGETHER_OF_PAUSE: u64 = 8;

/// A process that can run notices within this time that a lease has ended, in microseconds.
const OVERSLEPT_US: u64 = 100_000;

/// A held lock, and when it is extended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keeper {
    held: Held,
    auto: Option<Auto>,
    /// From when the rounds that its session shares are counted, if the lock is one of a session.
    session: Option<BootTime>,
    is_session_over: bool,
    /// When the next round begins by itself.
    next: Option<BootTime>,
    /// Somebody waits for the outcome of a round.
    is_awaited: bool,
    /// Somebody waits until a majority has it as a reader's.
    is_sharing: bool,
    is_lost: bool,
}

/// Extension in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Auto {
    /// No round begins by itself from then on.
    pub until: BootTime,
    /// The length of its leases, in milliseconds.
    pub ttl_ms: u32,
}

/// What the caller of a [`Keeper`] does next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Calls to send, in the round [`Held::round`].
    pub calls: Vec<Call>,
    /// A round of extension began, with these calls.
    pub begins: bool,
    /// What to tell those whom it concerns.
    pub news: Vec<News>,
}

/// What became of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The round extended its validity.
    Extended,
    /// The round cannot extend it any more: it stays valid as long as it was.
    NotExtended,
    /// A majority has it as a reader's.
    Shared,
    /// Nobody may rely on it from here on. The last news.
    Lost(WhyLost),
}

/// Why a lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyLost {
    /// Its nodes do not have it any more, though its lease had not ended.
    TakenAway,
    /// Its lease ended, and it was not to be extended in the background.
    NotExtended,
    /// Its lease ended, and the background was to extend it no longer.
    MaxHold,
    /// Its lease ended while the process could not run.
    Asleep,
    /// Its lease ended, since too few nodes extended it in time.
    TooFewNodes,
}

impl Keeper {
    /// Begins to keep a lock that was taken, by extension in the background if there is `auto`. The locks of one session are extended at
    /// the same moments, counted from the one that is named. `random` draws pauses.
    pub fn begin(held: Held, auto: Option<Auto>, session: Option<BootTime>, now: BootTime, random: u64) -> Self {
        let mut keeper = Self {
            held,
            auto,
            session,
            is_session_over: false,
            next: None,
            is_awaited: false,
            is_sharing: false,
            is_lost: false,
        };
        keeper.plan_first(now, random);
        keeper
    }

    /// The lock.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// When to call [`Keeper::on_wake`] at the latest; `None`: it is lost, and nothing is to come.
    pub fn wake_at(&self) -> Option<BootTime> {
        let end = self.held.valid_until();
        (!self.is_lost).then(|| self.next.map_or(end, |next| next.min(end)))
    }

    // Orders.

    /// Extends it now, to leases of this length; one of the next news is what came of that. A round that is under way does instead.
    pub fn extend(&mut self, ttl_ms: u32, now: BootTime, random: u64) -> Work {
        self.is_awaited = true;
        self.begin_round(ttl_ms, now, random)
    }

    /// Extends it in the background from now on, or not any more. A round that was planned is not put off.
    pub fn keep(&mut self, auto: Option<Auto>, now: BootTime, random: u64) -> Work {
        self.auto = auto;
        let planned = self.next;
        self.plan_first(now, random);
        if let Some(planned) = planned
            && self.next.is_none_or(|next| planned < next)
        {
            self.plan_at(planned);
        }
        self.go_on(vec![], now, random)
    }

    /// Makes its owner a reader; [`News::Shared`] follows.
    pub fn share(&mut self, now: BootTime, random: u64) -> Work {
        self.is_sharing = true;
        let calls = self.held.share();
        self.go_on(calls, now, random)
    }

    /// Goes over to another version of the set, of these servers. Nodes that were added are to have it soon, and those who wait for the
    /// round that is over wait for the next: if there are any, or it is extended in the background, a round begins.
    pub fn move_to(&mut self, ids: &[Option<NodeId>], now: BootTime, random: u64) -> Work {
        let shares = self.held.moves_to(ids);
        let extends = self.auto.is_some() && !self.is_session_over;
        let mut work = match extends || self.is_awaited {
            true => self.begin_round(self.ttl_ms(), now, random),
            false => self.go_on(vec![], now, random),
        };
        if !self.is_lost {
            work.calls.extend(shares);
        }
        work
    }

    /// Ends extension in the background: the session of this lock is over.
    pub fn end_session(&mut self) {
        self.is_session_over = true;
        self.next = None;
    }

    // What happens.

    /// Says what the server `id` answered to a call of this round.
    pub fn on_answer(
        &mut self,
        round: u64,
        call: Call,
        id: Option<NodeId>,
        answer: Answer,
        now: BootTime,
        random: u64,
    ) -> Work {
        let before = self.held.outcome();
        let calls = self.held.on_answer(round, call.node, id, call.ask, answer, now);
        self.go_on_from(before, calls, now, random)
    }

    /// Says that the server `id`, at `node`, was asked and does not have `token`.
    pub fn on_missing(&mut self, node: usize, id: Option<NodeId>, token: Token, now: BootTime, random: u64) -> Work {
        let before = self.held.outcome();
        let calls = self.held.on_missing(node, id, token, now);
        self.go_on_from(before, calls, now, random)
    }

    /// Says what time it is.
    pub fn on_wake(&mut self, now: BootTime, random: u64) -> Work {
        match self.next {
            Some(next) if next <= now => self.begin_round(self.ttl_ms(), now, random),
            _ => self.go_on(vec![], now, random),
        }
    }

    // Rounds.

    fn begin_round(&mut self, ttl_ms: u32, now: BootTime, random: u64) -> Work {
        if self.is_over(now) {
            return self.go_on(vec![], now, random);
        }
        if self.is_extending() {
            // That one ends within the time that a node is given: begun anew it might never end.
            self.plan(self.again_us(now), now, random);
            return self.go_on(vec![], now, random);
        }
        let calls = self.held.extend(ttl_ms, now);
        if ttl_ms >= self.ttl_ms() {
            self.plan_round(BootTime::MAX, now, random);
        }
        // Where too few nodes have it to begin with, there is nothing to wait for.
        Work { begins: true, ..self.go_on_from(None, calls, now, random) }
    }

    /// Whether a round is under way.
    fn is_extending(&self) -> bool {
        self.held.outcome().is_none()
    }

    fn go_on(&mut self, calls: Vec<Call>, now: BootTime, random: u64) -> Work {
        self.go_on_from(self.held.outcome(), calls, now, random)
    }

    /// Returns what to do, with what is news; `before` was the outcome of the round until now.
    fn go_on_from(&mut self, before: Option<bool>, calls: Vec<Call>, now: BootTime, random: u64) -> Work {
        if self.is_lost {
            return Work::default();
        }
        if self.is_over(now) {
            return self.lose(now);
        }
        let mut news = vec![];
        let outcome = self.held.outcome();
        if let Some(is_extended) = outcome.filter(|_| outcome != before) {
            self.is_awaited = false;
            if is_extended {
                news.push(News::Extended);
            } else {
                news.push(News::NotExtended);
                self.plan(self.again_us(now), now, random);
            }
        }
        if self.is_sharing && self.held.is_shared() {
            self.is_sharing = false;
            news.push(News::Shared);
        }
        Work { calls, begins: false, news }
    }

    // Plans.

    /// Plans a round where none has begun just now: validity may be partly over.
    fn plan_first(&mut self, now: BootTime, random: u64) {
        let left_us = self.held.valid_until().us_since(now);
        self.plan_round(now.plus_us(left_us / FIRST_OF_LEFT), now, random);
    }

    /// Plans the next round of a lease, at `latest`.
    fn plan_round(&mut self, latest: BootTime, now: BootTime, random: u64) {
        match self.session {
            Some(began) => self.plan_at(next_common(began, now, self.period_us()).min(latest)),
            None => self.plan(self.period_us().min(latest.us_since(now)), now, random),
        }
    }

    /// Plans a round after about `pause_us`, never later.
    fn plan(&mut self, pause_us: u64, now: BootTime, random: u64) {
        let pause_us = less_up_to(pause_us, JITTER_PERMILLE, random);
        let together_us = TOGETHER_US.min(pause_us / TOGETHER_OF_PAUSE).max(1);
        let at_us = now.plus_us(pause_us).as_us();
        self.plan_at(BootTime::from_us(at_us - at_us % together_us));
    }

    fn plan_at(&mut self, at: BootTime) {
        let auto = self.auto.filter(|auto| at < auto.until && !self.is_session_over);
        self.next = auto.map(|_| at);
    }

    /// Returns how long to wait after a round that failed.
    fn again_us(&self, now: BootTime) -> u64 {
        let left_us = self.held.valid_until().us_since(now);
        (self.ttl_us() / AGAIN).min(left_us / AGAIN_OF_LEFT).max(AGAIN_LEAST_US)
    }

    fn period_us(&self) -> u64 {
        self.ttl_us() / u64::from(ROUNDS_A_LEASE)
    }

    fn ttl_us(&self) -> u64 {
        u64::from(self.ttl_ms()) * 1_000
    }

    fn ttl_ms(&self) -> u32 {
        self.auto.map_or(self.held.ttl_ms(), |auto| auto.ttl_ms)
    }

    // Its end.

    fn is_over(&self, now: BootTime) -> bool {
        self.is_lost || self.held.is_lost() || now >= self.held.valid_until()
    }

    fn lose(&mut self, now: BootTime) -> Work {
        (self.is_lost, self.next) = (true, None);
        Work { news: vec![News::Lost(self.why_lost(now))], ..Work::default() }
    }

    fn why_lost(&self, now: BootTime) -> WhyLost {
        if self.held.is_lost() || self.held.was_taken_away() {
            return WhyLost::TakenAway;
        }
        match self.auto {
            None => WhyLost::NotExtended,
            Some(auto) if now.plus_us(self.period_us()) >= auto.until => WhyLost::MaxHold,
            Some(_) if now > self.held.valid_until().plus_us(OVERSLEPT_US) => WhyLost::Asleep,
            Some(_) => WhyLost::TooFewNodes,
        }
    }
}

/// Returns the next of the moments that lie `period_us` apart, the first of them at `began`; later than `now`.
fn next_common(began: BootTime, now: BootTime, period_us: u64) -> BootTime {
    let period_us = period_us.max(1);
    now.plus_us(period_us - now.us_since(began) % period_us)
}
