//! Checks the behaviour of a lock's caller, whatever the nodes answer: the promises of a [`Taker`](crate::Taker),
//! checked at each of its tasks.
//!
//! A driver that runs a taker in memory, as the simulation and the fuzzer do, reports here what the taker receives and
//! does.

use std::collections::VecDeque;

use crate::taker::{GaveUp, Refused, Task};
use crate::values::mode::Wanted;
use crate::values::time::BootTime;

/// The largest number of tasks within a second, whatever the nodes do. A caller that pauses correctly needs about a
/// tenth of it.
const TASKS_A_SECOND: usize = 200;

/// The longest pause, and the longest wait for a majority after it, in microseconds.
const PAUSE_MAX_US: u64 = 1_000_000;
const AWAIT_MAX_US: u64 = 10_000_000;

/// A caller, as an observer sees it.
#[derive(Clone, Debug)]
pub struct Conduct {
    wanted: Wanted,
    nodes: usize,
    limit: Option<BootTime>,
    /// The reason of the last refusal.
    refused: Option<Refused>,
    /// The number of consecutive grants that came too late.
    too_late: u32,
    /// True if the caller has had its turn in its process.
    has_turn: bool,
    /// The number that nodes show as free, or reserve for the caller; `None` if the caller may draw one.
    shown: Option<u16>,
    /// The times of the caller's latest tasks.
    tasks: VecDeque<BootTime>,
}

impl Conduct {
    /// Begins to check a caller that was created by [`Taker::begin`](crate::Taker::begin) with these arguments.
    pub fn begin(wanted: Wanted, nodes: usize, limit: Option<BootTime>) -> Self {
        Self { wanted, nodes, limit, refused: None, too_late: 0, has_turn: false, shown: None, tasks: VecDeque::new() }
    }

    /// Notes that the set changed: this is the number of nodes asked from now on.
    pub fn on_move(&mut self, nodes: usize) {
        self.nodes = nodes;
    }

    /// Notes why the caller was refused.
    pub fn on_refused(&mut self, refused: Refused) {
        self.too_late = if refused == Refused::TooLate { self.too_late + 1 } else { 0 };
        self.refused = Some(refused);
    }

    /// Notes the caller's turn in its process; `at_once` if no other caller was ahead.
    pub fn on_turn(&mut self, at_once: bool) {
        self.has_turn = true;
        self.refused = self.refused.filter(|_| at_once);
    }

    /// Notes the number that nodes show as free, or reserve for the caller.
    pub fn on_shown(&mut self, number: Option<u16>) {
        self.shown = number;
    }

    /// Returns the rule that the next task breaks, if it breaks one.
    pub fn judge(&mut self, task: &Task, now: BootTime) -> Option<&'static str> {
        let shown = self.shown.take();
        match *task {
            Task::GiveUp(why) => return self.judge_end(why, now),
            Task::LineUp { .. } => return None,
            _ if self.is_barred() => return Some("it goes on though what it was refused for does not pass"),
            _ => {}
        }
        self.tasks.push_back(now);
        while self.tasks.front().is_some_and(|at| now.us_since(*at) >= 1_000_000) {
            self.tasks.pop_front();
        }
        match *task {
            _ if self.tasks.len() > TASKS_A_SECOND => Some("it asks again and again without a pause"),
            Task::Pause { until, .. } if until.us_since(now) > PAUSE_MAX_US => {
                Some("it pauses for longer than a second")
            }
            Task::Pause { until, for_nodes: Some(end) } if end.us_since(until) > AWAIT_MAX_US => {
                Some("it waits for nodes for longer than ten seconds")
            }
            Task::Ask { .. } | Task::Queue { .. } | Task::AskAndWait { .. }
                if self.wanted == Wanted::Exclusive && !self.has_turn =>
            {
                Some("it asks before its turn in its process")
            }
            Task::Ask { wanted: Wanted::Permit { number, .. }, .. }
                if self.chooses() && shown.is_some() && number != shown =>
            {
                Some("it asks for another permit than the one that nodes showed")
            }
            _ => None,
        }
    }

    fn judge_end(&self, why: GaveUp, now: BootTime) -> Option<&'static str> {
        let is_over = self.limit.is_some_and(|limit| now >= limit);
        // If a lease always arrives too late, a caller without a limit reports that it is too short.
        let is_too_short = self.limit.is_none() && self.too_late >= 10;
        let may = match why {
            GaveUp::Refused => self.is_barred() || is_too_short,
            GaveUp::TimedOut | GaveUp::Behind => is_over,
        };
        (!may).then_some("it gives up before its limit, and what it was refused for passes")
    }

    /// Returns whether the refusal is permanent.
    fn is_barred(&self) -> bool {
        matches!(self.refused, Some(Refused::Lasting | Refused::TooFewNodes { is_lasting: true }))
    }

    fn chooses(&self) -> bool {
        self.nodes > 1 && matches!(self.wanted, Wanted::Permit { number: None, .. })
    }
}
