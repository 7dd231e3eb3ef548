//! Acquires a lock on a majority of nodes, under one token.

use super::ask::{Answer, Ask, Call, NodeId, Out, granted_after, majority, valid_until};
use super::held::Held;
use super::obstacle::{Obstacle, obstacle};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// An acquisition in progress.
///
/// It asks all nodes at once, with one proposed token. If a majority grants the *same* token, the lock is held under it
/// after one round trip. Otherwise the target is the largest token among the first majority of grants. Every node whose
/// grant has a smaller token is asked to raise it to the target (LOCK.FENCE). The lock is held once a majority has at
/// least the target; grants that arrive later count too. The acquisition is impossible as soon as fewer than a majority
/// of nodes can still grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    ttl_ms: u32,
    start: BootTime,
    proposal: Token,
    seats: Vec<Seat>,
    target: Option<Token>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seat {
    id: Option<NodeId>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The node has not answered.
    Asked,
    /// The node granted or raised the lock to this token.
    Granted(Token),
    /// The node granted the lock with this token, and was asked to raise it to the target.
    Raising(Token),
    Out(Out),
}

/// The state of an acquisition.
#[derive(Clone, Debug)]
pub enum Progress {
    /// More answers are needed. The caller sends these calls, if there are any.
    Goes(Vec<Call>),
    /// A majority holds the lock for its owner. Answers that arrive later go to [`Held::on_answer`], as answers of
    /// round 0.
    Held(Held),
    /// A majority granted the lock, but too late: nothing of the lease is left to rely on. The caller sends RELEASE to
    /// all nodes.
    TooLate,
    /// The lock cannot be acquired. The caller sends RELEASE to all nodes, also to those that did not answer.
    Impossible,
}

impl Acquire {
    /// Begins an acquisition on `nodes` nodes. The caller reads `start` before it sends anything, because validity
    /// counts from there. Returns the calls to send.
    pub fn begin(nodes: usize, ttl_ms: u32, proposal: Token, start: BootTime) -> (Self, Vec<Call>) {
        let seat = Seat { id: None, state: State::Asked };
        let acquire = Self { ttl_ms, start, proposal, seats: vec![seat; nodes], target: None };
        let calls = (0..nodes).map(|node| Call::now(node, acquire.ask(false))).collect();
        (acquire, calls)
    }

    /// Begins from the grants that these nodes already have for the owner. At least `ttl_ms` of their leases are left,
    /// counted from `start`. Other nodes are not asked (see [`resume`](super::resume())).
    pub(super) fn resume(
        nodes: usize,
        ttl_ms: u32,
        start: BootTime,
        proposal: Token,
        has: impl Iterator<Item = (usize, NodeId, Token)>,
        now: BootTime,
    ) -> (Self, Progress) {
        let mut seats = vec![Seat { id: None, state: State::Out(Out::Failed) }; nodes];
        for (node, id, token) in has {
            seats[node] = Seat { id: Some(id), state: State::Granted(token) };
        }
        let mut acquire = Self { ttl_ms, start, proposal, seats, target: None };
        let progress = acquire.proceed(now);
        (acquire, progress)
    }

    fn ask(&self, retry: bool) -> Ask {
        Ask::Acquire { ttl_ms: self.ttl_ms, proposal: self.proposal, retry }
    }

    /// Records that the request waited this long in the queue of the only node, whose answer arrived at `now`. The lease
    /// began when the wait ended, so validity counts from then.
    pub fn on_waited(&mut self, waited_ms: u64, now: BootTime) {
        debug_assert!(self.seats.len() == 1 || waited_ms == 0, "only one node");
        self.start = granted_after(self.start, waited_ms).min(now);
    }

    /// Handles the answer to `ask` of `node`, which is the server `id`.
    pub fn on_answer(&mut self, node: usize, id: Option<NodeId>, ask: Ask, answer: Answer, now: BootTime) -> Progress {
        let state = match (ask, answer) {
            (_, Answer::NotYet { ms }) if !self.is_late(now) => {
                // An answer to a repeated ACQUIRE may be about the grant of the first one, so each further one is sent
                // with RETRY.
                let ask = if matches!(ask, Ask::Acquire { .. }) { self.ask(true) } else { ask };
                return Progress::Goes(vec![Call { node, ask, after_ms: ms }]);
            }
            (_, Answer::Token(token)) => {
                let others = self.seats.iter().enumerate().filter(|(other, _)| *other != node);
                let twice = others.map(|(_, seat)| seat).any(|seat| seat.id == id && seat.token().is_some());
                if id.is_none() || twice { State::Out(Out::Duplicate) } else { State::Granted(token) }
            }
            (_, Answer::Guarded { ms }) => State::Out(Out::Guarded { ms }),
            (Ask::Acquire { .. }, Answer::No) => State::Out(Out::Contended),
            (_, Answer::No | Answer::NotYet { .. } | Answer::Failed) => State::Out(Out::Failed),
        };
        self.seats[node] = Seat { id, state };
        self.proceed(now)
    }

    /// Returns whether the validity of the lock has already ended at `now`.
    fn is_late(&self, now: BootTime) -> bool {
        now >= valid_until(self.start, self.ttl_ms)
    }

    fn proceed(&mut self, now: BootTime) -> Progress {
        let needed = majority(self.seats.len());
        let tokens = || self.seats.iter().filter_map(Seat::token);
        let has_majority = tokens().count() >= needed;
        if self.outs().filter(Option::is_none).count() < needed {
            return Progress::Impossible;
        }
        if self.is_late(now) {
            // A longer lease helps only if a majority granted the lock. Otherwise another obstacle is in the way, which
            // later answers show.
            return if has_majority { Progress::TooLate } else { Progress::Goes(vec![]) };
        }
        let same = |token: Token| tokens().filter(|&other| other == token).count() >= needed;
        if let Some(token) = tokens().find(|&token| same(token)) {
            return self.finish(token);
        }
        if self.target.is_none() && has_majority {
            self.target = tokens().max();
        }
        let mut calls = Vec::new();
        if let Some(target) = self.target {
            if tokens().filter(|&token| token >= target).count() >= needed {
                return self.finish(target);
            }
            for (node, seat) in self.seats.iter_mut().enumerate() {
                if let State::Granted(token) = seat.state
                    && token < target
                {
                    seat.state = State::Raising(token);
                    calls.push(Call::now(node, Ask::Fence { token: target }));
                }
            }
        }
        Progress::Goes(calls)
    }

    fn finish(&self, token: Token) -> Progress {
        let until = valid_until(self.start, self.ttl_ms);
        // A node that was asked to raise its token has at least its earlier token. `Held` asks it again.
        let raising = |seat: &Seat| matches!(seat.state, State::Raising(_));
        let members = self.seats.iter().map(|seat| (seat.id, seat.token(), raising(seat)));
        Progress::Held(Held::new(members.collect(), token, self.ttl_ms, until))
    }

    /// Returns why the acquisition is impossible; `None` while that depends on nodes that have not answered.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let open = self.seats.iter().filter(|seat| seat.state == State::Asked).count();
        obstacle(&self.outs().collect::<Vec<_>>(), open)
    }

    /// Returns for each node why it does not count for the majority; `None` if it counts or has not answered.
    pub fn outs(&self) -> impl Iterator<Item = Option<Out>> {
        self.seats.iter().map(|seat| match seat.state {
            State::Out(out) => Some(out),
            _ => None,
        })
    }
}

impl Seat {
    fn token(&self) -> Option<Token> {
        match self.state {
            State::Granted(token) | State::Raising(token) => Some(token),
            State::Asked | State::Out(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, id, token};

    const PROPOSAL: u64 = 100;

    fn begin(nodes: usize) -> Acquire {
        let (acquire, calls) = Acquire::begin(nodes, 1_000, token(PROPOSAL), at(0).boot);
        assert_eq!(calls.len(), nodes);
        acquire
    }

    fn answer(acquire: &mut Acquire, node: usize, answer: Answer) -> Progress {
        let ask = acquire.ask(false);
        acquire.on_answer(node, id(node as u128), ask, answer, at(10).boot)
    }

    fn grants(acquire: &mut Acquire, grants: &[(usize, u64)]) -> Progress {
        let mut progress = Progress::Goes(vec![]);
        for &(node, value) in grants {
            progress = answer(acquire, node, Answer::Token(token(value)));
        }
        progress
    }

    fn fenced(acquire: &mut Acquire, node: usize, value: u64, answer: Answer) -> Progress {
        acquire.on_answer(node, id(node as u128), Ask::Fence { token: token(value) }, answer, at(20).boot)
    }

    #[track_caller]
    fn held(progress: Progress) -> Held {
        match progress {
            Progress::Held(held) => held,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn goes(progress: Progress) -> Vec<Call> {
        match progress {
            Progress::Goes(calls) => calls,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_round_where_a_majority_has_the_same_token() {
        let mut acquire = begin(5);
        assert!(goes(grants(&mut acquire, &[(4, 100), (0, 100)])).is_empty());
        let held = held(grants(&mut acquire, &[(2, 100)]));
        assert_eq!((held.token(), held.valid_until()), (token(100), valid_until(at(0).boot, 1_000)));
    }

    /// Without a second round, the largest token of one majority could be 10 ({10, 7}), and that of the next one 8 ({8,
    /// 5}). So node 1, with 7, is asked to raise its token to 10.
    #[test]
    fn without_the_second_round_tokens_would_fall_back() {
        let mut acquire = begin(3);
        let calls = goes(grants(&mut acquire, &[(0, 10), (1, 7)]));
        assert_eq!(calls, [Call::now(1, Ask::Fence { token: token(10) })]);
        assert_eq!(held(fenced(&mut acquire, 1, 10, Answer::Token(token(10)))).token(), token(10));
        // Node 1 has 10 now, so its next grant is above that, and any majority has one of the two nodes.
    }

    #[test]
    fn a_late_grant_at_the_target_completes_it() {
        let mut acquire = begin(5);
        let calls = goes(grants(&mut acquire, &[(0, 9), (1, 10), (2, 10)]));
        assert_eq!(calls, [Call::now(0, Ask::Fence { token: token(10) })]);
        assert_eq!(held(grants(&mut acquire, &[(3, 12)])).token(), token(10));
    }

    #[test]
    fn a_later_grant_below_the_target_is_raised_too_and_a_failed_raise_is_not_final() {
        let mut acquire = begin(5);
        goes(grants(&mut acquire, &[(0, 9), (1, 10), (2, 8)]));
        let calls = goes(grants(&mut acquire, &[(3, 5)]));
        assert_eq!(calls, [Call::now(3, Ask::Fence { token: token(10) })]);
        assert!(goes(fenced(&mut acquire, 0, 10, Answer::Failed)).is_empty());
        assert!(goes(fenced(&mut acquire, 2, 10, Answer::Token(token(10)))).is_empty());
        let held = held(fenced(&mut acquire, 3, 10, Answer::Token(token(11))));
        assert_eq!(held.token(), token(10));
    }

    #[test]
    fn impossible_as_soon_as_no_majority_is_left() {
        let mut acquire = begin(5);
        goes(grants(&mut acquire, &[(0, 100), (1, 100)]));
        goes(answer(&mut acquire, 2, Answer::No));
        goes(answer(&mut acquire, 3, Answer::Guarded { ms: 7 }));
        assert!(matches!(answer(&mut acquire, 4, Answer::Failed), Progress::Impossible));
        let outs: Vec<_> = acquire.outs().collect();
        assert_eq!(outs, [None, None, Some(Out::Contended), Some(Out::Guarded { ms: 7 }), Some(Out::Failed)]);
    }

    /// A split vote: three clients ask five nodes, and none gets more than two grants, so none of them holds the lock.
    #[test]
    fn a_split_vote_is_nobodys() {
        let mut acquire = begin(5);
        goes(grants(&mut acquire, &[(0, 100), (1, 100)]));
        goes(answer(&mut acquire, 2, Answer::No));
        goes(answer(&mut acquire, 3, Answer::No));
        assert!(matches!(answer(&mut acquire, 4, Answer::No), Progress::Impossible));
    }

    /// Two names lead to one server: its grants count as one vote.
    #[test]
    fn one_server_counts_once() {
        let mut acquire = begin(3);
        let ask = acquire.ask(false);
        let grant = Answer::Token(token(100));
        goes(acquire.on_answer(0, id(7), ask, grant, at(1).boot));
        goes(acquire.on_answer(1, id(7), ask, grant, at(1).boot));
        assert!(matches!(acquire.on_answer(2, id(8), ask, Answer::No, at(1).boot), Progress::Impossible));
        assert_eq!(acquire.outs().nth(1), Some(Some(Out::Duplicate)));
    }

    #[test]
    fn a_grant_without_a_known_server_does_not_count() {
        let mut acquire = begin(1);
        let ask = acquire.ask(false);
        let progress = acquire.on_answer(0, None, ask, Answer::Token(token(1)), at(1).boot);
        assert!(matches!(progress, Progress::Impossible));
    }

    #[test]
    fn who_is_not_ready_yet_is_asked_again_as_a_repetition() {
        let mut acquire = begin(3);
        let calls = goes(answer(&mut acquire, 0, Answer::NotYet { ms: 10 }));
        assert_eq!(calls, [Call { node: 0, ask: acquire.ask(true), after_ms: 10 }]);
        goes(grants(&mut acquire, &[(0, 9), (1, 10)]));
        let calls = goes(fenced(&mut acquire, 0, 10, Answer::NotYet { ms: 10 }));
        assert_eq!(calls[0].ask, Ask::Fence { token: token(10) });
    }

    /// The answer of the last node arrives when validity is just about to end, or has just ended: held, or too late.
    #[test]
    fn too_late_is_not_held() {
        let until = valid_until(at(0).boot, 1_000);
        for (now, held) in [(BootTime::from_us(until.as_us() - 1), true), (until, false)] {
            let mut acquire = begin(1);
            let ask = acquire.ask(false);
            let progress = acquire.on_answer(0, id(0), ask, Answer::Token(token(5)), now);
            assert_eq!(matches!(progress, Progress::Held(_)), held);
            assert_eq!(matches!(progress, Progress::TooLate), !held);
        }
    }
    /// One node granted the lock, one is guarded, and one stayed silent until validity was over. A longer lease would
    /// not help, so the guard is reported as the obstacle.
    #[test]
    fn where_no_majority_grants_it_the_lease_is_not_what_is_too_short() {
        let late = |acquire: &mut Acquire, node: usize, answer: Answer| {
            let until = valid_until(at(0).boot, 1_000);
            acquire.on_answer(node, id(node as u128), acquire.ask(false), answer, until)
        };
        for (silent, grants_late) in [(Answer::Failed, false), (Answer::NotYet { ms: 10 }, true)] {
            let mut acquire = begin(3);
            goes(answer(&mut acquire, 1, Answer::Guarded { ms: 7 }));
            let granted = Answer::Token(token(PROPOSAL));
            goes(if grants_late { late(&mut acquire, 0, granted) } else { answer(&mut acquire, 0, granted) });
            assert!(matches!(late(&mut acquire, 2, silent), Progress::Impossible));
            assert_eq!(acquire.obstacle(), Some(Obstacle::Guarded { left_ms: 7 }));
        }
    }
}
