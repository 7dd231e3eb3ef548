//! Acquires a lock with retries: decides when to ask, to look for another permit, to join the queues, to pause and to give up.
//!
//! ```text
//!   begin ──► Asking ──refused──► Lining up ──first in its process──► Asking ──granted──► (done)
//!   (shared modes ask first;          (behind others of               │ ▲ ▲
//!    who wants it alone lines up)      the same process)      refused │ │ └── its turn, or the wait is over ──┐
//!                                                                     ▼ │ too few nodes answered              │
//!                 Looking ◄──others hold this permit── refused      Backing off ──others hold it, or a guard──► Queued
//!                    └──another number is free──► Asking
//! ```
//!
//! The machine decides. Its caller performs one [`Task`] after the other and reports the outcome. The machines for the
//! tasks: [`Acquire`](crate::Acquire) for an attempt, [`Choice`](crate::Choice) to look for free permit numbers,
//! [`Turn`](crate::Turn) to wait.

#[cfg(test)]
mod tests;

use crate::choice::first;
use crate::jitter::less_up_to;
use crate::values::limits::WAIT_MAX_MS;
use crate::values::mode::Wanted;
use crate::values::time::BootTime;

/// The time for the last attempt, which is made when the caller's limit has passed, in milliseconds. It is enough to
/// take a free lock from nodes that answer, and not more.
pub const LAST_TRY_MS: u32 = 100;

/// The first and the longest pause after an attempt when another one may soon succeed, in milliseconds.
const BACK_OFF_MS: (u32, u32) = (2, 1_000);

/// The number of late grants in a row after which a caller without a limit gives up, because the lease is too short.
const TOO_LATE_TIMES: u32 = 10;

/// The largest number of permits that a caller asks for by number because they look free, before it joins the queues. A
/// number can look free although it is not: nodes list a bounded number of holders, and other clients try too. Four are
/// enough in bursts (the test module `burst`).
const LOOKS_MAX: u32 = 8;

/// The longest wait for a majority of nodes to answer, in milliseconds. After it the nodes are asked for the lock
/// again.
const AWAIT_NODES_MS: u32 = 10_000;

/// The largest part of a pause that jitter takes away, in thousandths. So callers do not all ask again at the same
/// moment.
const JITTER_PERMILLE: u64 = 800;

/// An acquisition by one caller, from its request to a grant or a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taker {
    wanted: Wanted,
    /// The number of nodes in the set.
    nodes: usize,
    /// The time until which the caller is willing to wait; `None` for no limit.
    limit: Option<BootTime>,
    place: Place,
    /// The reason why the last attempt failed; `None` before the first.
    refused: Option<Refused>,
    /// The length of the next pause, in milliseconds.
    pause_ms: u32,
    /// True if the last request waited in a queue.
    waited: bool,
    /// True if the last wait in the queues ended because the lock is free, or because nodes refused to let the request
    /// wait.
    collided: bool,
    /// The number of attempts in a row whose grants came too late.
    too_late: u32,
    /// The number of times that the caller has looked for a free permit since its last wait in the queues.
    looks: u32,
    /// The time at which the present attempt, with its questions about other permits, stops waiting for answers.
    by: Option<BootTime>,
}

/// The caller's place among those of its process that want the same lock. What follows a refusal depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The caller does not wait if the lock is not free.
    None,
    /// The caller is willing to wait, but has not joined the line of its process's callers yet.
    BeforeLine,
    /// The caller stands in that line, or is the first of it, whose turn it is.
    InLine,
}

/// The next action for the caller of a [`Taker`], which then reports the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Ask every node for the lock in this mode.
    Ask {
        /// The mode, with a number if it is a permit.
        wanted: Wanted,
        /// The time at which to stop waiting for answers; `None` for no limit.
        by: Option<BootTime>,
        /// True to ask as the owner that the nodes know from an earlier wait in their queues. False to ask as a new
        /// owner.
        keeps_name: bool,
    },
    /// Ask the node, which is the only one, for the lock. The request may wait in the node's queue.
    AskAndWait {
        /// The longest time to wait, in milliseconds.
        patience_ms: u32,
        /// The time at which to stop waiting for the answer; `None` for no limit.
        by: Option<BootTime>,
    },
    /// Ask every node who holds which permits.
    Look {
        /// The number of permits that there are.
        limit: u16,
        /// The time at which to stop waiting for answers; `None` for no limit.
        by: Option<BootTime>,
    },
    /// Wait for the caller's turn among the callers of this process that want the same key.
    LineUp {
        /// The time at which to stop waiting for the turn; `None` for no limit.
        until: Option<BootTime>,
    },
    /// Join the queues of the nodes with the caller's ticket.
    Queue {
        /// The longest time to wait, in milliseconds, at least 1.
        patience_ms: u32,
    },
    /// Pause until `until`. If `for_nodes` is set, the caller then waits until a majority of nodes answers requests, or
    /// until the time in `for_nodes`.
    Pause {
        /// The end of the pause.
        until: BootTime,
        /// The end of the wait for a majority of nodes; `None` if only the pause is wanted.
        for_nodes: Option<BootTime>,
    },
    /// Report that the caller did not get the lock.
    GiveUp(GaveUp),
}

/// The reason why a taker gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// The last refusal is for a reason that does not pass.
    Refused,
    /// The caller's limit has passed. The last refusal names the obstacle.
    TimedOut,
    /// The caller's limit has passed while it still waited behind other callers of its process.
    Behind,
}

/// The reason why an attempt to get the lock failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Others hold the lock, or come before this caller.
    Contended,
    /// Too many nodes may have forgotten grants, so they refuse new ones.
    Guarded {
        /// The time until enough nodes are no longer guarded, in milliseconds.
        left_ms: u32,
    },
    /// The grants arrived when nothing was left of their leases.
    TooLate,
    /// Too few nodes answered or could be asked.
    TooFewNodes {
        /// True if the cause does not pass, so that asking again would not help.
        is_lasting: bool,
    },
    /// A cause that does not pass: the caller holds the lock already, or asks for something impossible.
    Lasting,
}

impl Refused {
    /// Returns whether it helps to wait in the queues after this refusal.
    fn may_queue(self) -> bool {
        matches!(self, Self::Contended | Self::Guarded { .. })
    }
}

impl Taker {
    /// Begins to acquire a lock in the mode `wanted` from `nodes` nodes, until `limit` if there is one. `random` draws
    /// the number of a permit. Returns the first task.
    pub fn begin(wanted: Wanted, nodes: usize, limit: Option<BootTime>, now: BootTime, random: u64) -> (Self, Task) {
        let mut taker = Self::new(wanted, nodes, limit, Place::BeforeLine);
        // Callers that can hold the lock together need not wait for each other in this process; the nodes decide on
        // their order.
        let task = match wanted {
            Wanted::Exclusive => taker.line_up(),
            _ => taker.ask_anew(random, now),
        };
        (taker, task)
    }

    /// Begins to acquire a lock without waiting: one attempt and, for a permit, further ones as long as any number
    /// looks free.
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

    /// Moves to another version of the set, with `nodes` nodes. The caller has left the queues, so its next request is
    /// that of a new owner.
    pub fn move_to(&mut self, nodes: usize) {
        self.nodes = nodes;
        (self.waited, self.collided) = (false, false);
    }

    /// Handles that the turn of this caller has come among the callers of its process. If `at_once`, no other caller
    /// was ahead of it, so the refusal of its earlier attempt still counts.
    pub fn on_turn(&mut self, at_once: bool, now: BootTime, random: u64) -> Task {
        self.looks = 0;
        match self.refused.take().filter(|_| at_once) {
            Some(refused) => self.on_refusal(refused, now, random),
            None => self.ask_anew(random, now),
        }
    }

    /// Handles that the caller's time to wait is over while it still waits behind other callers of its process.
    pub fn on_no_turn(&mut self) -> Task {
        Task::GiveUp(GaveUp::Behind)
    }

    /// Handles that an attempt failed, because of `refused`. `random` sets pauses and draws numbers.
    pub fn on_refused(&mut self, refused: Refused, now: BootTime, random: u64) -> Task {
        self.refused = Some(refused);
        let is_over = self.by.is_some_and(|by| by <= now);
        if refused == Refused::Contended
            && let Some(limit) = self.limit_to_choose()
            && self.looks < LOOKS_MAX
            && !is_over
        {
            self.looks += 1;
            return Task::Look { limit, by: self.by };
        }
        self.on_refusal(refused, now, random)
    }

    /// Handles the result of looking for a free permit number. `None` if no number is free, or too few nodes answered.
    pub fn on_look(&mut self, number: Option<u16>, now: BootTime, random: u64) -> Task {
        match (number, self.wanted) {
            (Some(_), Wanted::Permit { limit, .. }) => {
                Task::Ask { wanted: Wanted::Permit { limit, number }, by: self.by, keeps_name: false }
            }
            _ => self.on_refusal(Refused::Contended, now, random),
        }
    }

    /// Handles the end of the wait in the queues. If the lock is free, `told` is the reserved permit number (1 if no
    /// permit is wanted), otherwise `None`.
    pub fn on_queue(&mut self, told: Option<u16>, now: BootTime, random: u64) -> Task {
        // Either the lock is free, or nodes refused to let the request wait. (If the time is up, the last attempt
        // follows.)
        self.collided = told.is_some() || !self.is_over(now);
        self.looks = 0;
        let wanted = match (self.limit_to_choose(), told) {
            (Some(limit), Some(number)) => Wanted::Permit { limit, number: Some(number) },
            _ => self.any(random),
        };
        self.by = self.by(now);
        Task::Ask { wanted, by: self.by, keeps_name: told.is_some() }
    }

    /// Handles the end of a pause. If there is only one node, the ACQUIRE itself can wait there, which saves a message
    /// but blocks a connection. If many requests already block connections (`many_wait`), the caller joins the queue by
    /// LOCK.WAIT instead.
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

    // The functions below lead from one stage to the next.

    fn line_up(&mut self) -> Task {
        self.place = Place::InLine;
        Task::LineUp { until: self.limit }
    }

    fn ask_anew(&mut self, random: u64, now: BootTime) -> Task {
        self.by = self.by(now);
        Task::Ask { wanted: self.any(random), by: self.by, keeps_name: false }
    }

    /// Handles that an attempt failed, and no further permit number looks free.
    fn on_refusal(&mut self, refused: Refused, now: BootTime, random: u64) -> Task {
        match self.place {
            Place::None => return Task::GiveUp(GaveUp::Refused),
            Place::BeforeLine => return self.line_up(),
            Place::InLine => {}
        }
        self.too_late = if refused == Refused::TooLate { self.too_late + 1 } else { 0 };
        let passes = match refused {
            // A caller with a limit may ask again as long as its limit lasts.
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
        // Nothing is asked meanwhile. As soon as the nodes answer, all callers that wait for them go on.
        let for_nodes = awaits.then(|| until.plus_ms(self.patience_ms(until).min(AWAIT_NODES_MS)));
        Task::Pause { until, for_nodes }
    }

    /// Returns the pause in microseconds; 0 if the caller waits in the queues, which say when to go on. Each pause is
    /// longer than the last in four cases: another client was faster although the lock was free, nodes refused to let
    /// the request wait, nodes grant nothing for a while, or too few nodes can be asked.
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

    // The functions below tell facts about the request.

    /// Returns the limit of permits if this caller has to choose the number itself. It need not if there is only one
    /// node, which chooses, or if a number was asked for.
    fn limit_to_choose(&self) -> Option<u16> {
        match self.wanted {
            Wanted::Permit { limit, number: None } if self.nodes > 1 => Some(limit),
            _ => None,
        }
    }

    /// Returns the mode to ask for. If this caller has to choose a permit's number, it is a random one.
    fn any(&self, random: u64) -> Wanted {
        match self.limit_to_choose() {
            Some(limit) => Wanted::Permit { limit, number: Some(first(limit, random)) },
            None => self.wanted,
        }
    }

    /// Returns when an attempt that begins now stops waiting for answers.
    fn by(&self, now: BootTime) -> Option<BootTime> {
        self.limit.map(|limit| limit.max(now.plus_ms(LAST_TRY_MS)))
    }

    /// Returns when the last attempt ends; `None` for no limit.
    pub fn over(&self) -> Option<BootTime> {
        self.limit.map(|limit| limit.plus_ms(LAST_TRY_MS))
    }

    fn is_over(&self, now: BootTime) -> bool {
        self.limit.is_some_and(|limit| now >= limit)
    }

    /// Returns how long the caller may wait from now on, in milliseconds: until its limit, and no longer than nodes let
    /// a request wait.
    fn patience_ms(&self, now: BootTime) -> u32 {
        let most = WAIT_MAX_MS;
        self.limit.map_or(most, |limit| u32::try_from(limit.us_since(now) / 1_000).unwrap_or(most).min(most))
    }
}
