//! Clocks: the boot clock for validity, the wall clock as a hint for tokens. No other module reads a clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use palisade_quorum::{BootTime, Token, limits::TOKEN_HINT_MAX};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Returns the boot clock's time now. It cannot be set, and runs while the machine sleeps.
pub fn boot_now() -> BootTime {
    let time = clock_gettime(ClockId::Boottime);
    BootTime::from_us(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// Returns this moment on the clock of timers, also if a test has stopped the runtime's own clock.
#[expect(clippy::disallowed_methods, reason = "timers count on it, no lease does")]
pub fn now() -> Instant {
    Instant::from_std(std::time::Instant::now())
}

/// Returns the time from now until `then`; zero if that has passed.
pub fn until(then: BootTime) -> Duration {
    Duration::from_micros(then.us_since(boot_now()))
}

/// Returns the moment on the boot clock that is `pause` from now.
pub fn after(pause: Duration) -> BootTime {
    boot_now().plus_us(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX))
}

/// Returns the time on the boot clock since `then`.
pub fn since(then: BootTime) -> Duration {
    Duration::from_micros(boot_now().us_since(then))
}

/// A source of tokens and tickets: the wall clock in microseconds. A token is also larger than every token seen. A
/// ticket is not, because tokens can be far ahead of the clock, and then the tickets of all clients would be equal.
#[derive(Debug, Default)]
pub struct HybridClock {
    seen: AtomicU64,
    last_ticket: AtomicU64,
}

impl HybridClock {
    /// Returns a proposal for the next token.
    pub fn propose(&self) -> Token {
        // Above the end of the token space, the nodes choose the token.
        within(wall_us().max(self.seen.load(Ordering::Relaxed) + 1))
    }

    /// Records a token that a node issued.
    pub fn saw(&self, token: Token) {
        self.seen.fetch_max(token.get(), Ordering::Relaxed);
    }

    /// Returns a ticket: larger than every earlier one of this process, also if the clock is set back.
    pub fn ticket(&self) -> Token {
        let wall = wall_us();
        let next = |last: u64| wall.max(last + 1).min(TOKEN_HINT_MAX);
        let last = self.last_ticket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        within(next(last.unwrap_or_else(|last| last)))
    }
}

#[expect(clippy::disallowed_methods, reason = "a hint for the value of a token or a ticket, never for a lease")]
fn wall_us() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    u64::try_from(wall).unwrap_or(u64::MAX).min(TOKEN_HINT_MAX)
}

fn within(value: u64) -> Token {
    Token::new(value).unwrap_or(Token::new(TOKEN_HINT_MAX).expect("within the token space"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tickets of a process differ, and are near the clock even if a token that it saw is far ahead. They used to
    /// be one above that token, and so equal in all processes.
    #[test]
    fn tickets_are_the_clocks_and_no_two_are_the_same() {
        let clock = HybridClock::default();
        clock.saw(Token::new(wall_us() + 3_600_000_000).unwrap());
        let before = wall_us();
        let tickets: Vec<u64> = (0..1_000).map(|_| clock.ticket().get()).collect();
        assert!(tickets.is_sorted_by(|one, other| one < other));
        assert!(tickets[0] >= before && tickets[0] < before + 3_600_000_000, "{} at {before}", tickets[0]);
    }

    #[test]
    fn a_proposal_is_above_every_token_seen() {
        let clock = HybridClock::default();
        let first = clock.propose();
        let ahead = Token::new(first.get() + 3_600_000_000).unwrap();
        clock.saw(ahead);
        assert_eq!(clock.propose().get(), ahead.get() + 1);
        clock.saw(first);
        assert_eq!(clock.propose().get(), ahead.get() + 1);
    }
}
