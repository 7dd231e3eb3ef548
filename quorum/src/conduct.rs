//! Checks the tasks that a [`Taker`](crate::Taker) gives its caller: whatever the nodes answer, the tasks keep the
//! taker's promises.
//!
//! The simulation and the fuzzer run takers in memory. They report here what a taker receives and does.

use std::collections::VecDeque;

use crate::taker::{GaveUp, Refused, Task};
use crate::values::mode::Wanted;
use crate::values::time::BootTime;

/// The largest number of tasks within a second, whatever the nodes answer. A caller that pauses as it should needs
/// about a tenth of it.
const TASKS_A_SECOND: usize = 200;

/// The longest pause before the nodes are asked again, in microseconds.
const PAUSE_MAX_US: u64 = 1_000_000;
/// The longest wait for a majority of nodes after such a pause, in microseconds.
const AWAIT_MAX_US: u64 = 10_000_000;

/// The checker of one caller, which judges the caller by the answers that it receives and the tasks that it performs.
#[derive(Clone, Debug)]
pub struct Conduct {
    wanted: Wanted,
    nodes: usize,
    limit: Option<BootTime>,
    /// The reason why the nodes last refused the caller; `None` if they have not.
    refused: Option<Refused>,
    /// The number of grants in a row that came too late.
    too_late: u32,
    /// True once no other caller of the same process is ahead of this one.
    has_turn: bool,
    /// The permit number that nodes show as free, or reserve for the caller. `None` if the caller may draw any.
    shown: Option<u16>,
    /// The times at which the caller got a task from its taker within the last second.
    tasks: VecDeque<BootTime>,
}

impl Conduct {
    /// Begins to check a caller that was created by [`Taker::begin`](crate::Taker::begin) with these arguments.
    pub fn begin(wanted: Wanted, nodes: usize, limit: Option<BootTime>) -> Self {
        Self { wanted, nodes, limit, refused: None, too_late: 0, has_turn: false, shown: None, tasks: VecDeque::new() }
    }

    /// Notes that the set of nodes changed, and has `nodes` nodes from now on.
    pub fn on_move(&mut self, nodes: usize) {
        self.nodes = nodes;
    }

    /// Notes why the nodes refused the caller.
    pub fn on_refused(&mut self, refused: Refused) {
        self.too_late = if refused == Refused::TooLate { self.too_late + 1 } else { 0 };
        self.refused = Some(refused);
    }

    /// Notes that it is the caller's turn in its process; `at_once` if no other caller was ahead of it.
    pub fn on_turn(&mut self, at_once: bool) {
        self.has_turn = true;
        self.refused = self.refused.filter(|_| at_once);
    }

    /// Notes the permit number that nodes show as free, or reserve for the caller.
    pub fn on_shown(&mut self, number: Option<u16>) {
        self.shown = number;
    }

    /// Returns the rule that the caller breaks by its next task, as a sentence; `None` if it breaks none.
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
                if self.may_choose() && shown.is_some() && number != shown =>
            {
                Some("it asks for another permit than the one that nodes showed")
            }
            _ => None,
        }
    }

    fn judge_end(&self, why: GaveUp, now: BootTime) -> Option<&'static str> {
        let is_over = self.limit.is_some_and(|limit| now >= limit);
        // A caller without a limit may give up when the lease is so short that its grants always come too late.
        let is_too_short = self.limit.is_none() && self.too_late >= 10;
        let may = match why {
            GaveUp::Refused => self.is_barred() || is_too_short,
            GaveUp::TimedOut | GaveUp::Behind => is_over,
        };
        (!may).then_some("it gives up before its limit, and what it was refused for passes")
    }

    /// Returns whether the caller was refused for a reason that does not pass.
    fn is_barred(&self) -> bool {
        matches!(self.refused, Some(Refused::Lasting | Refused::TooFewNodes { is_lasting: true }))
    }

    fn may_choose(&self) -> bool {
        self.nodes > 1 && matches!(self.wanted, Wanted::Permit { number: None, .. })
    }
}
