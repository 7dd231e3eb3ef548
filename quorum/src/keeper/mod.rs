//! Keeps a held lock: decides when it is extended, when a failed round is repeated, and when and why it counts as lost.
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
//! The machine only decides. Its caller sends the calls, calls [`Keeper::on_wake`] in time, and passes the news on to
//! the user. [`Held`] defines one round and its outcome.

#[cfg(test)]
mod tests;

use crate::ask::{Answer, Call, NodeId};
use crate::held::Held;
use crate::jitter::less_up_to;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The number of rounds in a lease: the lock is not lost if all but the last one fail.
pub const ROUNDS_A_LEASE: u32 = 3;

/// The pause before a failed round is repeated is the ttl divided by the first number, or what is left of validity
/// divided by the second, if that is shorter. So nodes that hang for a moment are asked again in time.
const AGAIN: u64 = 10;
const AGAIN_OF_LEFT: u64 = 4;

/// The shortest pause before a round is repeated, in microseconds.
const AGAIN_LEAST_US: u64 = 5_000;

/// The first round begins when this part of validity is over: a half. So a lock that was granted late is extended in
/// time.
const FIRST_OF_LEFT: u64 = 2;

/// The largest part of a pause that jitter takes away, in thousandths. So holders do not all ask at the same moment.
const JITTER_PERMILLE: u64 = 150;

/// Rounds begin at moments that are multiples of this on the boot clock, in microseconds. So a process with thousands
/// of locks wakes up for many at once, and sends their calls together. The interval is short enough that other work
/// need not wait for many rounds.
const TOGETHER_US: u64 = 10_000;

/// A round begins earlier by at most this part of its pause, an eighth, in order to begin together with others.
const TOGETHER_OF_PAUSE: u64 = 8;

/// A process that is able to run notices the end of a lease within this time, in microseconds. If it takes longer, the
/// process could not run.
const OVERSLEPT_US: u64 = 100_000;

/// A held lock, and the plan for its extensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keeper {
    held: Held,
    auto: Option<Auto>,
    /// If the lock belongs to a session: the moment from which the session counts periods. All locks of the session are
    /// extended together, at the end of each period.
    session: Option<BootTime>,
    is_session_over: bool,
    /// The time at which the next round begins by itself; `None` if none does.
    next: Option<BootTime>,
    /// True if a caller waits for the outcome of the present round, or of the next.
    is_awaited: bool,
    /// True if a caller waits until a majority has converted the grant to shared.
    is_sharing: bool,
    is_lost: bool,
}

/// The caller's settings for extension in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Auto {
    /// The time after which no round begins by itself.
    pub until: BootTime,
    /// The length of the leases to ask for, in milliseconds.
    pub ttl_ms: u32,
}

/// The next actions for the caller of a [`Keeper`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Calls to send to nodes; they belong to the round [`Held::round`].
    pub calls: Vec<Call>,
    /// True if these calls are a new round of extension.
    pub begins: bool,
    /// Changes of the lock's state, for those who use the lock.
    pub news: Vec<News>,
}

/// A change in a lock's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The round extended the lock's validity.
    Extended,
    /// The round failed: it can no longer extend the lock's validity, which ends as if there had been no round.
    NotExtended,
    /// A majority has converted the grant to shared.
    Shared,
    /// The last news: the lock is lost, and nobody may rely on it any longer.
    Lost {
        /// The reason why the lock is lost.
        why: WhyLost,
        /// True if the caller should release the lock on all nodes, because some may have granted it again. False if
        /// the lease has ended by itself, or if another process of the same owner may rely on those grants.
        gives_back: bool,
    },
}

/// The reason why a lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyLost {
    /// A majority of nodes no longer has it, though its lease had not ended.
    TakenAway,
    /// The lease ended, and there was no extension in the background: the caller had not asked for it, or the lock's
    /// session was over.
    NotExtended,
    /// The lease ended, because the time was over for which the caller wanted extension in the background.
    MaxHold,
    /// The lease ended while the process could not run: it was stopped, or its machine slept.
    Asleep,
    /// The lease ended, since too few nodes extended it in time.
    TooFewNodes,
}

impl Keeper {
    /// Begins to keep a lock that was acquired. With `auto` it is extended in the background. If it belongs to a
    /// session, `session` is the moment from which the session counts periods: it extends all its locks at the end of
    /// each. `random` sets the jitter.
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

    /// Returns the lock as the nodes have acknowledged it.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Returns the time by which [`Keeper::on_wake`] has to be called; `None` if the lock is lost and no call is
    /// needed.
    pub fn wake_at(&self) -> Option<BootTime> {
        let end = self.held.valid_until();
        (!self.is_lost).then(|| self.next.map_or(end, |next| next.min(end)))
    }

    // The functions below are the orders of the caller.

    /// Extends the lock now, to leases of `ttl_ms`. Later news reports the outcome: that of this round, or of the
    /// present one if a round is in progress.
    pub fn extend(&mut self, ttl_ms: u32, now: BootTime, random: u64) -> Work {
        self.is_awaited = true;
        self.begin_round(ttl_ms, now, random)
    }

    /// Turns extension in the background on, changes it, or turns it off (`None`). A round that is planned already is
    /// not put off.
    pub fn keep(&mut self, auto: Option<Auto>, now: BootTime, random: u64) -> Work {
        self.auto = auto;
        let planned = self.next;
        self.plan_first(now, random);
        if let Some(planned) = planned
            && self.next.is_none_or(|next| planned < next)
        {
            self.plan_at(planned);
        }
        self.proceed(vec![], now, random)
    }

    /// Makes the owner a reader. [`News::Shared`] follows when a majority has converted the grant. An added node that does
    /// not have the lock yet is asked to grant it, because a majority may need that node.
    pub fn share(&mut self, now: BootTime, random: u64) -> Work {
        self.is_sharing = true;
        let mut calls = self.held.share();
        calls.extend(self.held.ask_added_nodes());
        self.proceed(calls, now, random)
    }

    /// Moves to another version of the set, with the servers `ids`. A round begins at once if the lock is extended in
    /// the background, so that added nodes get the lock soon. It also begins at once if callers wait for the
    /// interrupted round: they then wait for the new one.
    pub fn move_to(&mut self, ids: &[Option<NodeId>], now: BootTime, random: u64) -> Work {
        let shares = self.held.move_to(ids);
        let extends = self.auto.is_some() && !self.is_session_over;
        let mut work = match extends || self.is_awaited {
            true => self.begin_round(self.ttl_ms(), now, random),
            false if self.is_sharing => self.proceed(self.held.ask_added_nodes(), now, random),
            false => self.proceed(vec![], now, random),
        };
        if !self.is_lost {
            work.calls.extend(shares);
        }
        work
    }

    /// Ends extension in the background, because the session of this lock is over.
    pub fn end_session(&mut self) {
        self.is_session_over = true;
        self.next = None;
    }

    // The functions below handle the events that the caller reports.

    /// Handles the answer of the server `id` to a call of this round.
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
        self.proceed_from(before, calls, now, random)
    }

    /// Notes that a check of `node`, which is the server `id`, showed that it does not have `token`.
    pub fn on_missing(&mut self, node: usize, id: Option<NodeId>, token: Token, now: BootTime, random: u64) -> Work {
        let before = self.held.outcome();
        let calls = self.held.on_missing(node, id, token, now);
        self.proceed_from(before, calls, now, random)
    }

    /// Handles the time `now`: begins a round if one is due, and notices the end of the lease.
    pub fn on_wake(&mut self, now: BootTime, random: u64) -> Work {
        match self.next {
            Some(next) if next <= now => self.begin_round(self.ttl_ms(), now, random),
            _ => self.proceed(vec![], now, random),
        }
    }

    // The functions below carry out a round.

    fn begin_round(&mut self, ttl_ms: u32, now: BootTime, random: u64) -> Work {
        if self.is_over(now) {
            return self.proceed(vec![], now, random);
        }
        if self.is_extending() {
            // A round is in progress, and ends within the time that a node has to answer. If each planned round
            // replaced it, none might ever end.
            self.plan(self.again_us(now), now, random);
            return self.proceed(vec![], now, random);
        }
        let calls = self.held.extend(ttl_ms, now);
        if ttl_ms >= self.ttl_ms() {
            self.plan_round(BootTime::MAX, now, random);
        }
        // If too few nodes have the lock to begin with, the round has failed already, and the result says so.
        Work { begins: true, ..self.proceed_from(None, calls, now, random) }
    }

    /// Returns whether a round is in progress.
    fn is_extending(&self) -> bool {
        self.held.outcome().is_none()
    }

    fn proceed(&mut self, calls: Vec<Call>, now: BootTime, random: u64) -> Work {
        self.proceed_from(self.held.outcome(), calls, now, random)
    }

    /// Returns the work that follows from what has just happened. If the outcome of the round is no longer `before`,
    /// the work contains news of it.
    fn proceed_from(&mut self, before: Option<bool>, calls: Vec<Call>, now: BootTime, random: u64) -> Work {
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

    // The functions below plan when rounds begin.

    /// Plans a round when none has just begun: at the latest when half of the remaining validity is over.
    fn plan_first(&mut self, now: BootTime, random: u64) {
        let left_us = self.held.valid_until().us_since(now);
        self.plan_round(now.plus_us(left_us / FIRST_OF_LEFT), now, random);
    }

    /// Plans the next regular round, at `latest` or earlier.
    fn plan_round(&mut self, latest: BootTime, now: BootTime, random: u64) {
        match self.session {
            Some(began) => self.plan_at(next_common(began, now, self.period_us()).min(latest)),
            None => self.plan(self.period_us().min(latest.us_since(now)), now, random),
        }
    }

    /// Plans a round in `pause_us` microseconds or slightly less, never later.
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

    /// Returns the pause before a failed round is repeated, in microseconds.
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

    // The functions below are about the end of the lock.

    fn is_over(&self, now: BootTime) -> bool {
        self.is_lost || self.held.is_lost() || now >= self.held.valid_until()
    }

    fn lose(&mut self, now: BootTime) -> Work {
        (self.is_lost, self.next) = (true, None);
        let why = self.why_lost(now);
        let gives_back = why == WhyLost::TakenAway && !self.held.may_go_on_elsewhere();
        Work { news: vec![News::Lost { why, gives_back }], ..Work::default() }
    }

    fn why_lost(&self, now: BootTime) -> WhyLost {
        if self.held.is_lost() {
            return WhyLost::TakenAway;
        }
        match self.auto {
            None => WhyLost::NotExtended,
            Some(_) if self.is_session_over => WhyLost::NotExtended,
            Some(auto) if now.plus_us(self.period_us()) >= auto.until => WhyLost::MaxHold,
            Some(_) if now > self.held.valid_until().plus_us(OVERSLEPT_US) => WhyLost::Asleep,
            Some(_) => WhyLost::TooFewNodes,
        }
    }
}

/// Returns the first moment after `now` that is `began` plus a multiple of `period_us`.
fn next_common(began: BootTime, now: BootTime, period_us: u64) -> BootTime {
    let period_us = period_us.max(1);
    now.plus_us(period_us - now.us_since(began) % period_us)
}
