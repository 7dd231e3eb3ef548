//! What the locks of a session share: when they are extended, and whether the session is over.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::SessionEnd;
use crate::Loss;

/// Of one session.
#[derive(Debug)]
pub struct Kept {
    /// When its first round could have been.
    began: Instant,
    /// Why it is over; `None`: it is not.
    ended: watch::Sender<Option<SessionEnd>>,
}

impl Kept {
    pub fn begin() -> Self {
        Self { began: Instant::now(), ended: watch::Sender::new(None) }
    }

    /// The next of its rounds, which begin so long after each other: the same moment for all of its locks.
    pub fn round_after(&self, now: Instant, period: Duration) -> Instant {
        let period_ns = period.as_nanos().max(1);
        let into = now.saturating_duration_since(self.began).as_nanos() % period_ns;
        now + Duration::from_nanos((period_ns - into) as u64)
    }

    /// One of its locks is not held any more. One that was given back is not lost.
    pub fn is_lost(&self, key: &[u8], loss: &Loss) {
        if *loss != Loss::Released {
            self.end(SessionEnd::Lost { key: key.to_vec(), loss: loss.clone() });
        }
    }

    /// It is over, unless it was before.
    pub fn end(&self, end: SessionEnd) {
        self.ended.send_if_modified(|ended| ended.is_none() && ended.replace(end).is_none());
    }

    pub fn ended(&self) -> Option<SessionEnd> {
        self.ended.borrow().clone()
    }

    pub fn is_over(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Returns when it is over.
    pub async fn done(&self) -> SessionEnd {
        let mut ended = self.ended.subscribe();
        // The sender is here, so it cannot fail.
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        end.unwrap_or(SessionEnd::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(300);

    /// Locks that were taken at different times are extended at the same moment, and never later than a period from now.
    #[test]
    fn all_have_the_same_rounds() {
        let kept = Kept::begin();
        let first = kept.began + PERIOD;
        for ms in [0, 1, 150, 299] {
            assert_eq!(kept.round_after(kept.began + Duration::from_millis(ms), PERIOD), first, "{ms} ms");
        }
        assert_eq!(kept.round_after(first, PERIOD), first + PERIOD, "a round is not followed by itself");
        assert_eq!(kept.round_after(first + Duration::from_nanos(1), PERIOD), first + PERIOD);
    }

    #[test]
    fn the_first_loss_ends_it_and_a_release_does_not() {
        let kept = Kept::begin();
        kept.is_lost(b"a", &Loss::Released);
        assert!(!kept.is_over());
        kept.is_lost(b"b", &Loss::MaxHold);
        kept.is_lost(b"c", &Loss::Asleep);
        assert_eq!(kept.ended(), Some(SessionEnd::Lost { key: b"b".to_vec(), loss: Loss::MaxHold }));
    }
}
