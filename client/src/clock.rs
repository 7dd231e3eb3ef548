//! The clocks: the boot clock for validity, the wall clock as a hint for tokens, and the only place that reads either.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use palisade_core::limits::TOKEN_HINT_MAX;
use palisade_core::{BootTime, Token};
use rustix::time::{ClockId, clock_gettime};

/// The boot clock, now: it cannot be set, and runs while the machine sleeps.
pub fn boot_now() -> BootTime {
    let time = clock_gettime(ClockId::Boottime);
    BootTime::from_us(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// How long it is from now until `then`; zero if that has passed.
pub fn until(then: BootTime) -> Duration {
    Duration::from_micros(then.us_since(boot_now()))
}

/// How long it has been since `then`.
pub fn since(then: BootTime) -> Duration {
    Duration::from_micros(boot_now().us_since(then))
}

/// What tokens and tickets are proposed from: the wall clock in microseconds, or one above the highest token seen.
#[derive(Debug, Default)]
pub struct HybridClock(AtomicU64);

impl HybridClock {
    /// A proposal for the next token.
    #[expect(clippy::disallowed_methods, reason = "a hint for the value of a token, never for a lease")]
    pub fn propose(&self) -> Token {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let wall = u64::try_from(wall).unwrap_or(u64::MAX).min(TOKEN_HINT_MAX);
        let value = wall.max(self.0.load(Ordering::Relaxed) + 1);
        // Beyond the end of the token space the nodes' own numbers decide.
        Token::new(value).unwrap_or(Token::new(TOKEN_HINT_MAX).expect("within the token space"))
    }

    /// A node issued this token.
    pub fn saw(&self, token: Token) {
        self.0.fetch_max(token.get(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
