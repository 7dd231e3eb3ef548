//! Waits in the queues of the nodes. Decides how long each node should let the request wait, when a node is asked
//! again, and when the wait is over.

use super::ask::{NodeId, majority};
use super::jitter::less_up_to;
use super::turn::{Turn, TurnProgress};
use crate::values::time::BootTime;

/// The longest time for which one LOCK.WAIT asks a node to wait, in milliseconds. After it the request is repeated and
/// keeps its place. So the client notices a node that hangs or was replaced.
const RENEWED_MS: u64 = 20_000;

/// The number of waits of one process on one node up to which each is repeated at the normal rate. With n times as
/// many, each is repeated n times less often, and the pause before a failed node is asked again is longer too. So
/// waiting alone does not keep nodes and process busy.
const WAITS_AT_ONCE: usize = 1_000;

/// The first and the longest pause before a failed node is asked again, in milliseconds.
const AGAIN_MS: (u64, u64) = (200, 5_000);

/// A request that waits in the queues of all nodes until a majority says that its turn has come. The caller sends
/// LOCK.WAIT with one ticket to every node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    turn: Turn,
    until: BootTime,
    /// For each node, whether it refuses to let this request wait for a reason that does not pass.
    refuses: Vec<bool>,
}

/// The next action for the caller of a [`Waiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitTask {
    /// Nothing: the waiter expects further answers.
    Go,
    /// Send LOCK.WAIT to this node again.
    Ask {
        /// The index of the node in the client's list of nodes.
        node: usize,
        /// The pause before LOCK.WAIT is sent, in milliseconds.
        after_ms: u32,
    },
    /// Acquire the lock now. A majority says that it is free for this request, and reserves this permit number (1 if no
    /// permit is wanted).
    Acquire(u16),
    /// End the wait: no majority can give this request its turn any longer, or the time is up.
    Leave,
    /// End the wait: a majority will never let this request wait.
    Refused,
}

impl Waiter {
    /// Begins to wait until `until`. The caller sends LOCK.WAIT to every node at once.
    pub fn begin(nodes: usize, until: BootTime) -> Self {
        Self { turn: Turn::begin(nodes), until, refuses: vec![false; nodes] }
    }

    /// Returns the time until which the request waits.
    pub fn until(&self) -> BootTime {
        self.until
    }

    /// Returns for how many milliseconds one LOCK.WAIT asks a node to wait, if the whole wait lasts until `until`.
    /// `waits` requests of this process wait on that node.
    pub fn at_a_time_ms(until: BootTime, waits: usize, now: BootTime, random: u64) -> u32 {
        let renewed_ms = RENEWED_MS * (1 + waits / WAITS_AT_ONCE) as u64;
        let left_ms = until.us_since(now) / 1_000;
        u32::try_from(left_ms.min(less_up_to(renewed_ms, 200, random))).unwrap_or(u32::MAX)
    }

    /// Notes that `node`, which is the server `id`, says that it is the request's turn, and reserves this permit
    /// number.
    pub fn on_turn(&mut self, node: usize, id: NodeId, number: u16, random: u64) -> WaitTask {
        self.after(node, Some((id, number)), random)
    }

    /// Notes that `node` answered that the time of its LOCK.WAIT is up.
    pub fn on_nothing(&mut self, node: usize, now: BootTime, random: u64) -> WaitTask {
        match now < self.until {
            true => WaitTask::Ask { node, after_ms: 0 },
            false => self.after(node, None, random),
        }
    }

    /// Handles that `node` failed, or refuses to let the request wait; `is_lasting` if the reason does not pass by
    /// itself. `waits` is the number of requests of this process that wait on that node.
    pub fn on_failure(&mut self, node: usize, is_lasting: bool, waits: usize, now: BootTime, random: u64) -> WaitTask {
        self.refuses[node] |= is_lasting;
        match self.after(node, None, random) {
            WaitTask::Go if !is_lasting && now < self.until => {
                let pause_ms = AGAIN_MS.0 + AGAIN_MS.0 * 5 * waits as u64 / WAITS_AT_ONCE as u64;
                let after_ms = less_up_to(pause_ms.min(AGAIN_MS.1), 500, random);
                WaitTask::Ask { node, after_ms: u32::try_from(after_ms).unwrap_or(u32::MAX) }
            }
            task => task,
        }
    }

    fn after(&mut self, node: usize, told: Option<(NodeId, u16)>, random: u64) -> WaitTask {
        match self.turn.on_answer(node, told) {
            TurnProgress::Goes => WaitTask::Go,
            TurnProgress::Free => WaitTask::Acquire(self.turn.number(random).unwrap_or(1)),
            TurnProgress::Impossible => self.leave(),
        }
    }

    /// Ends the wait, because the time is up or the set has another version.
    pub fn leave(&self) -> WaitTask {
        let refusing = self.refuses.iter().filter(|refuses| **refuses).count();
        if refusing > self.refuses.len() - majority(self.refuses.len()) { WaitTask::Refused } else { WaitTask::Leave }
    }
}

#[cfg(test)]
mod tests {
    use super::WaitTask::*;
    use super::*;
    use crate::fixture::ms;

    fn told(waiter: &mut Waiter, node: usize, number: u16) -> WaitTask {
        waiter.on_turn(node, NodeId(node as u128), number, 0)
    }

    #[test]
    fn a_majority_tells_its_turn_and_the_number_that_most_keep() {
        let mut waiter = Waiter::begin(5, ms(60_000));
        assert_eq!((told(&mut waiter, 0, 2), told(&mut waiter, 4, 3), told(&mut waiter, 2, 3)), (Go, Go, Acquire(3)));
    }

    #[test]
    fn a_wait_is_renewed_until_the_time_is_up() {
        let mut waiter = Waiter::begin(3, ms(60_000));
        for (waits, at, random, expected) in [
            (0, 0, 0, 20_000),
            (0, 0, 200, 16_000),
            (999, 0, 0, 20_000),
            (2_500, 0, 0, 60_000),
            (0, 55_000, 0, 5_000),
            (0, 61_000, 0, 0),
        ] {
            assert_eq!(Waiter::at_a_time_ms(ms(60_000), waits, ms(at), random), expected, "{waits} at {at}");
        }
        assert_eq!(waiter.on_nothing(1, ms(59_999), 0), Ask { node: 1, after_ms: 0 });
        assert_eq!((waiter.on_nothing(1, ms(60_000), 0), waiter.on_nothing(2, ms(60_000), 0)), (Go, Leave));
    }

    #[test]
    fn a_node_that_fails_is_asked_again_later_where_many_wait() {
        for (waits, random, after_ms) in [(0, 0, 200), (0, 500, 100), (1_000, 0, 1_200), (100_000, 0, 5_000)] {
            let mut waiter = Waiter::begin(3, ms(60_000));
            assert_eq!(waiter.on_failure(0, false, waits, ms(1), random), Ask { node: 0, after_ms });
            assert_eq!(waiter.on_failure(1, false, waits, ms(1), random), Leave, "no majority is left");
        }
        let mut waiter = Waiter::begin(3, ms(60_000));
        waiter.on_failure(0, false, 0, ms(1), 0);
        assert_eq!((told(&mut waiter, 1, 1), told(&mut waiter, 0, 1)), (Go, Acquire(1)), "it came back");
    }

    #[test]
    fn a_majority_that_refuses_for_good_is_not_waited_for() {
        let mut waiter = Waiter::begin(3, ms(60_000));
        assert_eq!((waiter.on_failure(0, true, 0, ms(1), 0), waiter.on_failure(1, true, 0, ms(1), 0)), (Go, Refused));
        let mut waiter = Waiter::begin(3, ms(60_000));
        assert_eq!((waiter.on_failure(0, true, 0, ms(1), 0), waiter.on_failure(1, false, 0, ms(1), 0)), (Go, Leave));
    }
}
