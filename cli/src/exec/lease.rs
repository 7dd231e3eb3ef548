//! The parts of a lease: most of it for the command, the rest for ending the command.

use std::time::Duration;

use crate::show::time;

/// The time before the end of validity at which SIGKILL is sent, because the system takes a moment to end processes.
pub const KILL_MARGIN: Duration = Duration::from_millis(100);

/// The time before the end of validity at which the watchdog sends SIGKILL, if this program has not.
pub const WATCHDOG_MARGIN: Duration = Duration::from_millis(50);

/// The part of a lease, in percent, that is kept for its extension; the rest is for ending the command. The extension
/// is due after a third of the lease, and repeated after another tenth.
const EXTENDING_PERCENT: u32 = 45;

/// The default grace period of a command, if the lease has room for it.
const GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// Returns the grace period: `asked`, or the default for a lease of `ttl`.
///
/// # Errors
///
/// The lease is too short to be extended and to leave this period and the time to kill the command. The text is for the user.
pub fn grace(ttl: Duration, asked: Option<Duration>) -> Result<Duration, String> {
    let left = ttl * (100 - EXTENDING_PERCENT) / 100;
    let most = left.saturating_sub(KILL_MARGIN + Duration::from_millis(1));
    let grace = asked.unwrap_or(GRACE_DEFAULT.min(most));
    if grace + KILL_MARGIN < left {
        return Ok(grace);
    }
    let ms = |time: Duration| time.as_millis() as u64;
    let ttl_least = (grace + KILL_MARGIN) * 100 / (100 - EXTENDING_PERCENT) + Duration::from_millis(1);
    Err(format!(
        "--grace {} does not fit in --ttl {}: a lease is extended in its first half, and what is left must do for ending the \
         command. Say --grace {}ms at most, or --ttl {}ms at least",
        time(ms(grace)),
        time(ms(ttl)),
        ms(most),
        ms(ttl_least),
    ))
}

/// Returns the time until SIGTERM is sent to a command whose lock is valid for `valid_for` and not extended.
pub fn until_term(valid_for: Duration, grace: Duration) -> Duration {
    valid_for.saturating_sub(grace + KILL_MARGIN)
}

/// Returns the time until SIGKILL is sent at the latest.
pub fn until_kill(valid_for: Duration) -> Duration {
    valid_for.saturating_sub(KILL_MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_must_fit_in_the_lease() {
        let ms = Duration::from_millis;
        for (ttl, grace, fits) in [
            (10_000, 5_000, true),
            (10_000, 5_400, false),
            (1_000, 400, true),
            (1_000, 5_000, false),
            (200, 0, true),
            (100, 0, false),
        ] {
            assert_eq!(super::grace(ms(ttl), Some(ms(grace))).is_ok(), fits, "{ttl} {grace}");
        }
        let text = super::grace(ms(10_000), Some(ms(8_000))).unwrap_err();
        assert!(text.contains("--grace 5399ms at most, or --ttl 14728ms at least"), "{text}");
        assert!(super::grace(ms(10_000), Some(ms(5_399))).is_ok());
        assert!(super::grace(ms(14_728), Some(ms(8_000))).is_ok());
    }

    #[test]
    fn the_default_grace_follows_the_ttl() {
        let ms = Duration::from_millis;
        for (ttl, default) in [(60_000, 5_000), (10_000, 5_000), (6_000, 3_199), (1_000, 449), (200, 9)] {
            assert_eq!(grace(ms(ttl), None), Ok(ms(default)), "{ttl}");
        }
        assert!(grace(ms(100), None).unwrap_err().contains("--ttl 182ms at least"), "no command can be ended in time");
    }

    #[test]
    fn term_comes_before_kill_and_kill_before_the_end() {
        let ms = Duration::from_millis;
        assert_eq!(until_term(ms(9_898), ms(5_000)), ms(4_798));
        assert_eq!(until_kill(ms(5_100)), ms(5_000));
        assert_eq!((until_term(ms(10), ms(5_000)), until_kill(ms(10))), (ms(0), ms(0)));
    }
}
