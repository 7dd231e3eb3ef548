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
//! The machine decides. Its caller sends the calls, wakes it in time and passes its news on. [`Held`] defines one round
//! and its outcome.

#[cfg(test)]
mod tests;

use crate::ask::{Answer, Call, NodeId};
use crate::held::Held;
use crate::jitter::less_up_to;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The number of rounds in a lease: all but the last may fail without loss of the lock.
pub const ROUNDS_A_LEASE: u32 = 3;

/// The divisors of the ttl and of the remaining validity: the shorter result is the pause before a failed round is
/// repeated. So nodes that hang for a moment are asked again in time.
const AGAIN: u64 = 10;
const AGAIN_OF_LEFT: u64 = 4;

/// The shortest pause before a round is repeated, in microseconds.
const AGAIN_LEAST_US: u64 = 5_000;

/// The divisor of the remaining validity within which the first round begins, so that a lock that was granted late is
/// extended in time.
const FIRST_OF_LEFT: u64 = 2;

/// The largest part of a pause that jitter takes away, in thousandths, so that holders do not all ask at the same
/// moment.
const JITTER_PERMILLE: u64 = 150;

/// The grid on the boot clock at which rounds begin, in microseconds. A process with thousands of locks then does not
/// wake up for each, and sends rounds of the same moment together. The grid is fine enough that other work does not
/// have to wait for many rounds at once.
const TOGETHER_US: u64 = 10_000;

/// The divisor of a pause for how much earlier a round may begin to be on the grid.
const TOGETHER_OF_PAUSE: u64 = 8;

/// The time within which a process that is able to run notices the end of a lease, in microseconds. If it takes longer,
/// the process could not run.
const OVERSLEPT_US: u64 = 100_000;

/// A held lock, and its schedule of extensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keeper {
    held: Held,
    auto: Option<Auto>,
    /// The moment from which the common rounds of its session are counted, if it belongs to a session.
    session: Option<BootTime>,
    is_session_over: bool,
    /// The beginning of the next automatic round.
    next: Option<BootTime>,
    /// True if a caller waits for the outcome of a round.
    is_awaited: bool,
    /// True if a caller waits until a majority has converted the grant to shared.
    is_sharing: bool,
    is_lost: bool,
}

/// Extension in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Auto {
    /// The moment after which no round begins automatically.
    pub until: BootTime,
    /// The length of the leases, in milliseconds.
    pub ttl_ms: u32,
}

/// The work that a [`Keeper`]'s caller has to do next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Calls to send, in the round [`Held::round`].
    pub calls: Vec<Call>,
    /// True if a round of extension began, with these calls.
    pub begins: bool,
    /// News to pass on.
    pub news: Vec<News>,
}

/// A change in a lock's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The round extended validity.
    Extended,
    /// The round can no longer extend validity, which stays as it was.
    NotExtended,
    /// A majority has converted the grant to shared.
    Shared,
    /// The last news: the lock is lost, and nobody may rely on it any longer.
    Lost {
        /// The reason.
        why: WhyLost,
        /// True if the caller should release the lock on all nodes, since some may have granted it again. False if
        /// another process of the same owner may rely on those grants.
        gives_back: bool,
    },
}

/// The reason why a lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyLost {
    /// A majority of nodes no longer has it, though its lease had not ended.
    TakenAway,
    /// The lease ended, and background extension was off.
    NotExtended,
    /// The lease ended, and background extension had reached its end.
    MaxHold,
    /// The lease ended while the process could not run.
    Asleep,
    /// The lease ended, since too few nodes extended it in time.
    TooFewNodes,
}

impl Keeper {
    /// Begins to keep a lock that was acquired, with background extension if `auto` is given. The locks of one session
    /// are extended at the same moments, counted from `session`. `random` sets the jitter.
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

    /// Returns the lock.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Returns the latest moment to call [`Keeper::on_wake`]; `None` if the lock is lost and no call is needed.
    pub fn wake_at(&self) -> Option<BootTime> {
        let end = self.held.valid_until();
        (!self.is_lost).then(|| self.next.map_or(end, |next| next.min(end)))
    }

    // Orders of the caller.

    /// Extends the lock now, to leases of this length; later news reports the outcome. If a round is in progress, its
    /// outcome is reported.
    pub fn extend(&mut self, ttl_ms: u32, now: BootTime, random: u64) -> Work {
        self.is_awaited = true;
        self.begin_round(ttl_ms, now, random)
    }

    /// Turns background extension on, changes it, or turns it off. A planned round is not postponed.
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

    /// Makes the lock's owner a reader; [`News::Shared`] follows.
    pub fn share(&mut self, now: BootTime, random: u64) -> Work {
        self.is_sharing = true;
        let calls = self.held.share();
        self.go_on(calls, now, random)
    }

    /// Moves to another version of the set, of these servers. A round begins if nodes were added, which should get the
    /// lock soon, or if the lock is extended in the background. Callers that waited for the interrupted round wait for
    /// the next one.
    pub fn move_to(&mut self, ids: &[Option<NodeId>], now: BootTime, random: u64) -> Work {
        let shares = self.held.move_to(ids);
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

    /// Ends background extension: the session of this lock is over.
    pub fn end_session(&mut self) {
        self.is_session_over = true;
        self.next = None;
    }

    // Events that the caller reports.

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
        self.go_on_from(before, calls, now, random)
    }

    /// Notes that the server `id`, at `node`, was asked and does not have `token`.
    pub fn on_missing(&mut self, node: usize, id: Option<NodeId>, token: Token, now: BootTime, random: u64) -> Work {
        let before = self.held.outcome();
        let calls = self.held.on_missing(node, id, token, now);
        self.go_on_from(before, calls, now, random)
    }

    /// Handles the passing of time until `now`.
    pub fn on_wake(&mut self, now: BootTime, random: u64) -> Work {
        match self.next {
            Some(next) if next <= now => self.begin_round(self.ttl_ms(), now, random),
            _ => self.go_on(vec![], now, random),
        }
    }

    // How rounds proceed.

    fn begin_round(&mut self, ttl_ms: u32, now: BootTime, random: u64) -> Work {
        if self.is_over(now) {
            return self.go_on(vec![], now, random);
        }
        if self.is_extending() {
            // The current round ends within the time that a node has to answer. Rounds that are restarted might never
            // end.
            self.plan(self.again_us(now), now, random);
            return self.go_on(vec![], now, random);
        }
        let calls = self.held.extend(ttl_ms, now);
        if ttl_ms >= self.ttl_ms() {
            self.plan_round(BootTime::MAX, now, random);
        }
        // If too few nodes have the lock to begin with, the round has failed already.
        Work { begins: true, ..self.go_on_from(None, calls, now, random) }
    }

    /// Returns whether a round is in progress.
    fn is_extending(&self) -> bool {
        self.held.outcome().is_none()
    }

    fn go_on(&mut self, calls: Vec<Call>, now: BootTime, random: u64) -> Work {
        self.go_on_from(self.held.outcome(), calls, now, random)
    }

    /// Returns the work that follows; `before` was the round's outcome until now.
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

    // When rounds begin.

    /// Plans a round when none has just begun: part of validity may be over.
    fn plan_first(&mut self, now: BootTime, random: u64) {
        let left_us = self.held.valid_until().us_since(now);
        self.plan_round(now.plus_us(left_us / FIRST_OF_LEFT), now, random);
    }

    /// Plans the next round of a lease, at `latest` or somewhat earlier.
    fn plan_round(&mut self, latest: BootTime, now: BootTime, random: u64) {
        match self.session {
            Some(began) => self.plan_at(next_common(began, now, self.period_us()).min(latest)),
            None => self.plan(self.period_us().min(latest.us_since(now)), now, random),
        }
    }

    /// Plans a round in about `pause_us`, never later.
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

    /// Returns the pause after a failed round, in microseconds.
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

    // How the lock ends.

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
            Some(auto) if now.plus_us(self.period_us()) >= auto.until => WhyLost::MaxHold,
            Some(_) if now > self.held.valid_until().plus_us(OVERSLEPT_US) => WhyLost::Asleep,
            Some(_) => WhyLost::TooFewNodes,
        }
    }
}

/// Returns the first moment later than `now` on the grid that begins at `began` with steps of `period_us`.
fn next_common(began: BootTime, now: BootTime, period_us: u64) -> BootTime {
    let period_us = period_us.max(1);
    now.plus_us(period_us - now.us_since(began) % period_us)
}
