//! The adaptive timeout of a node, from its recent answers.
//!
//! TCP's estimate (RFC 6298), a moving average and its variation, assumes one sample per round trip. Here one round
//! trip brings hundreds of answers, after which such an average no longer shows that the node hung a moment ago. So the
//! slowest answer of the last seconds counts; as in TCP, silence doubles the timeout.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum time for which an answer is remembered; the maximum is twice as long.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The timeout as a multiple of the slowest recent answer.
const TIMES: u32 = 2;

/// Maximum number of doublings of the timeout. It doubles each time a request is not answered.
const DOUBLINGS: u32 = 4;

/// The time that a node has to answer, from when a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Exactly this time, connecting included.
    Exactly(Duration),
    /// The adaptive timeout, within these bounds.
    Within {
        /// The lower bound of the adaptive timeout.
        least: Duration,
        /// The upper bound of the adaptive timeout.
        most: Duration,
    },
}

impl Given {
    /// Returns the shortest time to answer: that of a node that is fast, or of whose speed nothing is known.
    pub fn least(self) -> Duration {
        match self {
            Self::Exactly(time) | Self::Within { least: time, .. } => time,
        }
    }

    /// Returns the longest time that any node has, however slow or busy.
    pub fn most(self) -> Duration {
        match self {
            Self::Exactly(time) | Self::Within { most: time, .. } => time,
        }
    }
}

/// The slowest of a node's recent response times, from which its timeout follows.
#[derive(Debug, Default)]
pub struct Pace {
    /// The start of the present period. Answers are remembered for this period and the next.
    since: Option<Instant>,
    /// The slowest response times of the present and the previous period.
    slowest: (Duration, Duration),
    doublings: u32,
}

impl Pace {
    /// Records that the node answered now, after `took`.
    pub fn on_answer(&mut self, took: Duration, now: Instant) {
        self.doublings = 0;
        match self.since {
            Some(since) if now < since + REMEMBERED => {}
            _ => (self.since, self.slowest) = (Some(now), (Duration::ZERO, self.slowest.0)),
        }
        self.slowest.0 = self.slowest.0.max(took);
    }

    /// Records that the node did not answer in time.
    pub fn was_silent(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS);
    }

    /// Returns the time that the node has to answer.
    pub fn allowance(&self, given: Given) -> Duration {
        let slowest = self.slowest.0.max(self.slowest.1);
        let needs = (slowest * TIMES).max(given.least()) * (1 << self.doublings);
        needs.min(given.most())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const GIVEN: Given = Given::Within { least: ms(50), most: ms(1_000) };

    #[test]
    fn a_node_is_given_what_it_needs() {
        let start = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(pace.allowance(GIVEN), ms(50), "nothing is known of it");
        pace.on_answer(ms(1), start);
        assert_eq!(pace.allowance(GIVEN), ms(50), "never less than the least");
        pace.on_answer(ms(200), start);
        (0..10_000).for_each(|_| pace.on_answer(ms(1), start + ms(100)));
        assert_eq!(pace.allowance(GIVEN), ms(400), "a burst of answers does not make it forget");
        pace.on_answer(ms(1), start + ms(5_100));
        assert_eq!(pace.allowance(GIVEN), ms(400));
        pace.on_answer(ms(1), start + ms(10_200));
        assert_eq!(pace.allowance(GIVEN), ms(50), "but time does");
        pace.on_answer(ms(5_000), start + ms(10_300));
        assert_eq!(pace.allowance(GIVEN), ms(1_000), "never more than the most");
    }

    #[test]
    fn silence_doubles_it_and_an_answer_ends_that() {
        let mut pace = Pace::default();
        pace.on_answer(ms(1), Instant::now());
        let mut seen = vec![];
        for _ in 0..6 {
            seen.push(pace.allowance(GIVEN));
            pace.was_silent();
        }
        assert_eq!(seen, [50, 100, 200, 400, 800, 800].map(ms));
        pace.on_answer(ms(1), Instant::now());
        assert_eq!(pace.allowance(GIVEN), ms(50));
    }

    #[test]
    fn what_the_caller_says_is_what_it_is_given() {
        let mut pace = Pace::default();
        pace.on_answer(ms(700), Instant::now());
        pace.was_silent();
        for time in [ms(1), ms(20_000)] {
            assert_eq!(pace.allowance(Given::Exactly(time)), time);
        }
    }
}
