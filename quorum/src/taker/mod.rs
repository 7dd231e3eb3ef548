//! Taking a lock for as long as it takes: when to ask, to look for another permit, to join the queues, to pause and to give up.
//!
//! ```text
//!   begin ──► Asking ──refused──► Lining up ──its turn──► Asking ──granted──► (done)
//!   (shared modes ask first;          (behind others of        │ ▲
//!    who wants it alone lines up)      the same process)       │ │ told, or the wait is over
//!                                                              ▼ │
//!              Looking ◄──others hold this permit── refused ──► Queued
//!                 │                                   │ ▲
//!                 └──another number is free──► Asking │ │ paused, and too few nodes answered: until a majority does
//!                                                     ▼ │
//!                                                  Backing off
//! ```
//!
//! The machine decides; its caller performs one [`Task`] after the other and says what came of it. An attempt is an [`Acquire`](crate::Acquire),
//! a look a [`Choice`](crate::Choice), a wait a [`Turn`](crate::Turn).

#[cfg(test)]
mod tests;

use crate::choice::first;
use crate::jitter::less_up_to;
use crate::values::limits::WAIT_MAX_MS;
use crate::values::mode::Wanted;
use crate::values::time::BootTime;

/// The last attempt, at the caller's limit, and all that is asked of nodes after it take this long together, in milliseconds: a free lock is
/// taken, and nobody waits for nodes that do not answer.
pub const LAST_TRY_MS: u32 = 100;

/// First and longest pause, in milliseconds, after an attempt that may succeed a moment later.
const BACK_OFF_MS: (u32, u32) = (2, 1_000);

/// How often in a row nodes may grant too late for the lease, for a caller without a limit: then the lease is too short.
const TOO_LATE_TIMES: u32 = 10;

/// How many free-looking permit numbers to try before joining the queues: nodes list no more than so many holders, and others ask too. In
/// bursts four are enough (the test module `burst`).
const LOOKS_MAX: u32 = 8;

/// The longest wait for a majority of nodes to answer, in milliseconds, before they are asked for the lock again.
const AWAIT_NODES_MS: u32 = 10_000;

/// Jitter takes up to this part of a pause away, in thousandths: not all ask again at the same moment.
const JITTER_PERMILLE: u64 = 800;

/// An acquisition by one caller, from its request to a grant or a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taker {
    wanted: Wanted,
    /// How many nodes the set has.
    nodes: usize,
    /// The caller's own limit.
    limit: Option<BootTime>,
    place: Place,
    /// Why the last attempt was refused.
    refused: Option<Refused>,
    /// The next pause, in milliseconds.
    pause_ms: u32,
    /// The last request stood in a queue; it was told that the lock is free, or not to wait.
    waited: bool,
    collided: bool,
    /// How many attempts in a row were granted too late.
    too_late: u32,
    /// How many looks there were since the last wait.
    looks: u32,
    /// When the attempt under way, with its looks, stops waiting for answers.
    by: Option<BootTime>,
}

/// Where the caller stands among those of its process who want the same lock: that is what a refusal leads on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// Nowhere: it does not wait.
    None,
    /// Not in line yet.
    BeforeLine,
    /// In line, or first in it.
    InLine,
}

/// What the caller of a [`Taker`] does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Asks every node for the lock in this mode, by then if there is a limit. A wait before left a name in the queues: `keeps_name` asks
    /// under that name, else under a new one.
    Ask {
        /// The mode, of several permits with a number.
        wanted: Wanted,
        /// When to stop waiting for answers.
        by: Option<BootTime>,
        /// Whether to ask as the one who waited.
        keeps_name: bool,
    },
    /// Asks the only node for the lock; the request may wait there.
    AskAndWait {
        /// For how long, in milliseconds.
        patience_ms: u32,
        /// When to stop waiting for the answer.
        by: Option<BootTime>,
    },
    /// Asks every node who holds which of so many permits, by then if there is a limit.
    Look {
        /// How many permits there are.
        limit: u16,
        /// When to stop waiting for answers.
        by: Option<BootTime>,
    },
    /// Waits for its turn among those of this process who want the same key, until then if there is a limit.
    LineUp {
        /// The caller's limit.
        until: Option<BootTime>,
    },
    /// Joins the queues of the nodes with the caller's ticket, for up to so long.
    Queue {
        /// In milliseconds, at least 1.
        patience_ms: u32,
    },
    /// Waits until then, and if `for_nodes` is later until a majority of nodes answers requests, at most until that moment.
    Pause {
        /// The end of the pause.
        until: BootTime,
        /// How long to wait for a majority after it.
        for_nodes: Option<BootTime>,
    },
    /// Tells its caller that it did not get the lock.
    GiveUp(GaveUp),
}

/// Why a taker gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// The last refusal does not pass by itself.
    Refused,
    /// The caller's limit is reached; the last refusal says what stood in the way.
    TimedOut,
    /// The caller's limit is reached before its turn in this process.
    Behind,
}

/// Why an attempt came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Others hold the lock, or are before this caller.
    Contended,
    /// Nodes may have forgotten grants, and serve in so many milliseconds.
    Guarded {
        /// Until enough of them serve.
        left_ms: u32,
    },
    /// Granted when nothing of the lease was left.
    TooLate,
    /// Too few nodes answered, or could be asked.
    TooFewNodes {
        /// Whether asking again would not help.
        is_lasting: bool,
    },
    /// What asking again does not change: the caller holds it already, or asks for what cannot be.
    Lasting,
}

impl Refused {
    /// Whether those who stand in the queues are served later.
    fn may_queue(self) -> bool {
        matches!(self, Self::Contended | Self::Guarded { .. })
    }
}

impl Taker {
    /// Begins to take a lock in the mode `wanted` from so many nodes, until `limit` if there is one. `random` draws a permit's number.
    pub fn begin(wanted: Wanted, nodes: usize, limit: Option<BootTime>, now: BootTime, random: u64) -> (Self, Task) {
        let mut taker = Self::new(wanted, nodes, limit, Place::BeforeLine);
        // Those who can hold it together need not wait for each other here. Who comes before whom is the nodes' word.
        let task = match wanted {
            Wanted::Exclusive => taker.line_up(),
            _ => taker.ask_anew(random, now),
        };
        (taker, task)
    }

    /// Begins to take a lock if it is free now: one attempt, and of several permits others as long as any looks free.
    pub fn try_once(wanted: Wanted, nodes: usize, random: u64) -> (Self, Task) {
        let mut taker = Self::new(wanted, nodes, None, Place::None);
        let task = taker.ask_anew(random, BootTime::default());
        (taker, task)
    }

    fn new(wanted: Wanted, nodes: usize, limit: Option<BootTime>, place: Place) -> Self {
        Self {
            wanted,
            nodes,
            limit,
            place,
            refused: None,
            pause_ms: BACK_OFF_MS.0,
            waited: false,
            collided: false,
            too_late: 0,
            looks: 0,
            by: None,
        }
    }

    /// Another version of the set, of so many nodes, is asked from now on: under a new name, and its queues are joined anew.
    pub fn move_to(&mut self, nodes: usize) {
        self.nodes = nodes;
        (self.waited, self.collided) = (false, false);
    }

    /// Says that it is this caller's turn in this process; `at_once`: nobody was before it, so what an attempt was told before still counts.
    pub fn on_turn(&mut self, at_once: bool, now: BootTime, random: u64) -> Task {
        self.looks = 0;
        match self.refused.take().filter(|_| at_once) {
            Some(refused) => self.on_refusal(refused, now, random),
            None => self.ask_anew(random, now),
        }
    }

    /// Says that the limit was reached before it was this caller's turn.
    pub fn on_no_turn(&mut self) -> Task {
        Task::GiveUp(GaveUp::Behind)
    }

    /// Says that the attempt was refused. `random` draws pauses and numbers.
    pub fn on_refused(&mut self, refused: Refused, now: BootTime, random: u64) -> Task {
        self.refused = Some(refused);
        let is_over = self.by.is_some_and(|by| by <= now);
        if refused == Refused::Contended
            && let Some(limit) = self.chooses()
            && self.looks < LOOKS_MAX
            && !is_over
        {
            self.looks += 1;
            return Task::Look { limit, by: self.by };
        }
        self.on_refusal(refused, now, random)
    }

    /// Says which number a look showed as free; `None`: none is, or it is not known.
    pub fn on_look(&mut self, number: Option<u16>, now: BootTime, random: u64) -> Task {
        match (number, self.wanted) {
            (Some(_), Wanted::Permit { limit, .. }) => {
                Task::Ask { wanted: Wanted::Permit { limit, number }, by: self.by, keeps_name: false }
            }
            _ => self.on_refusal(Refused::Contended, now, random),
        }
    }

    /// Says that the wait in the queues is over: `told` that the lock is free, with the number of the permit that is kept (1 if none is
    /// wanted); or not.
    pub fn on_queue(&mut self, told: Option<u16>, now: BootTime, random: u64) -> Task {
        // Told that it is free; or the nodes let nobody wait. (If the time is up, the last attempt follows.)
        self.collided = told.is_some() || !self.is_over(now);
        self.looks = 0;
        let wanted = match (self.chooses(), told) {
            (Some(limit), Some(number)) => Wanted::Permit { limit, number: Some(number) },
            _ => self.any(random),
        };
        self.by = self.by(now);
        Task::Ask { wanted, by: self.by, keeps_name: told.is_some() }
    }

    /// Says that the pause is over. Of one node a request for the lock itself can wait: one message less. But each blocks a connection, so
    /// where `many_wait` over one they queue.
    pub fn on_paused(&mut self, many_wait: bool, now: BootTime, random: u64) -> Task {
        let may_queue = self.refused.take().is_some_and(Refused::may_queue);
        (self.waited, self.collided) = (may_queue, false);
        if may_queue && (self.nodes > 1 || many_wait) {
            return Task::Queue { patience_ms: self.patience_ms(now).max(1) };
        }
        match may_queue && !self.is_over(now) {
            true => Task::AskAndWait { patience_ms: self.patience_ms(now), by: self.over() },
            false => self.ask_anew(random, now),
        }
    }

    // The stages.

    fn line_up(&mut self) -> Task {
        self.place = Place::InLine;
        Task::LineUp { until: self.limit }
    }

    fn ask_anew(&mut self, random: u64, now: BootTime) -> Task {
        self.by = self.by(now);
        Task::Ask { wanted: self.any(random), by: self.by, keeps_name: false }
    }

    /// An attempt, with its looks, came to nothing.
    fn on_refusal(&mut self, refused: Refused, now: BootTime, random: u64) -> Task {
        match self.place {
            Place::None => return Task::GiveUp(GaveUp::Refused),
            Place::BeforeLine => return self.line_up(),
            Place::InLine => {}
        }
        self.too_late = if refused == Refused::TooLate { self.too_late + 1 } else { 0 };
        let passes = match refused {
            // The caller's own limit ends that too.
            Refused::TooLate => self.limit.is_some() || self.too_late < TOO_LATE_TIMES,
            Refused::TooFewNodes { is_lasting } => !is_lasting,
            Refused::Contended | Refused::Guarded { .. } => true,
            Refused::Lasting => false,
        };
        if !passes {
            return Task::GiveUp(GaveUp::Refused);
        }
        if self.is_over(now) {
            return Task::GiveUp(GaveUp::TimedOut);
        }
        self.refused = Some(refused);
        let until = now.plus_us(self.pause_us(refused, now, random));
        let awaits = matches!(refused, Refused::TooFewNodes { .. });
        // Not again and again meanwhile: as soon as they answer, those who wait go on, as many at a time as can.
        let for_nodes = awaits.then(|| until.plus_ms(self.patience_ms(until).min(AWAIT_NODES_MS)));
        Task::Pause { until, for_nodes }
    }

    /// How long to pause, in microseconds: not at all where the queues say when to go on. But where the lock was said to be free and
    /// somebody else was faster, where nodes let nobody wait or grant nothing for a while, and where too few can be asked, longer each time.
    fn pause_us(&mut self, refused: Refused, now: BootTime, random: u64) -> u64 {
        let is_guarded = matches!(refused, Refused::Guarded { .. });
        let pauses = !refused.may_queue() || self.collided || (is_guarded && (self.waited || self.nodes > 1));
        if !pauses {
            return 0;
        }
        let longest_ms = match refused {
            Refused::Guarded { left_ms } => left_ms,
            _ => self.pause_ms,
        };
        let longest_ms = longest_ms.min(self.patience_ms(now)).min(BACK_OFF_MS.1);
        self.pause_ms = (self.pause_ms * 2).min(BACK_OFF_MS.1);
        less_up_to(u64::from(longest_ms) * 1_000, JITTER_PERMILLE, random)
    }

    // What it knows.

    /// Of how many permits one is wanted, where this caller has to choose: a single node chooses itself, and some callers have chosen.
    fn chooses(&self) -> Option<u16> {
        match self.wanted {
            Wanted::Permit { limit, number: None } if self.nodes > 1 => Some(limit),
            _ => None,
        }
    }

    /// What is wanted, with a number where this caller has to choose one and knows nothing.
    fn any(&self, random: u64) -> Wanted {
        match self.chooses() {
            Some(limit) => Wanted::Permit { limit, number: Some(first(limit, random)) },
            None => self.wanted,
        }
    }

    /// Until when an attempt that begins now waits for answers.
    fn by(&self, now: BootTime) -> Option<BootTime> {
        self.limit.map(|limit| limit.max(now.plus_ms(LAST_TRY_MS)))
    }

    /// Returns when all is over, with the last attempt, if there is a limit.
    pub fn over(&self) -> Option<BootTime> {
        self.limit.map(|limit| limit.plus_ms(LAST_TRY_MS))
    }

    fn is_over(&self, now: BootTime) -> bool {
        self.limit.is_some_and(|limit| now >= limit)
    }

    /// How long it may wait from now on, in milliseconds: as long as nodes let one wait, at most.
    fn patience_ms(&self, now: BootTime) -> u32 {
        let most = WAIT_MAX_MS;
        self.limit.map_or(most, |limit| u32::try_from(limit.us_since(now) / 1_000).unwrap_or(most).min(most))
    }
}
