//! The state that the locks of a session share: the times of their extensions, and the end of the session.

use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::Arc;

use palisade_quorum::BootTime;
use tokio::sync::SetOnce;

use crate::Loss;
use crate::values::clock;
use crate::values::shown_key::ShownKey;

/// The reason why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The session was closed.
    Closed,
    /// A lock of the session was lost.
    Lost {
        /// The key of the lock.
        key: Vec<u8>,
        /// The reason of the loss.
        loss: Loss,
    },
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the session was closed"),
            Self::Lost { key, loss } => write!(f, "the session lost {}: {loss}", ShownKey(key)),
        }
    }
}

/// The state that the locks of one session share.
#[derive(Debug)]
pub struct SessionLife {
    /// The moment from which all locks of the session count their rounds of extension.
    began: BootTime,
    ended: SetOnce<SessionEnd>,
}

// The end is set in one step, so a panic leaves it whole. Without this a session could not be used after a caught panic.
impl RefUnwindSafe for SessionLife {}

impl SessionLife {
    pub fn begin() -> Self {
        Self { began: clock::boot_now(), ended: SetOnce::new() }
    }

    /// Returns the moment from which all locks of the session count their rounds of extension.
    pub fn began(&self) -> BootTime {
        self.began
    }

    /// Ends the session if the lock was lost; a lock that was released is not lost.
    pub fn is_lost(&self, key: &[u8], loss: &Loss) {
        if *loss != Loss::Released {
            self.end(SessionEnd::Lost { key: key.to_vec(), loss: loss.clone() });
        }
    }

    /// Ends the session, unless it was over before.
    pub fn end(&self, end: SessionEnd) {
        let _ = self.ended.set(end);
    }

    pub fn ended(&self) -> Option<SessionEnd> {
        self.ended.get().cloned()
    }

    pub fn is_over(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Waits until the session is over.
    pub async fn done(&self) -> SessionEnd {
        self.ended.wait().await.clone()
    }

    /// Waits until the session is over; never returns if there is no session.
    pub async fn is_done(this: &Option<Arc<Self>>) {
        match this {
            Some(this) => drop(this.done().await),
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::UnwindSafe;

    use super::*;

    /// A program that catches panics may go on with its sessions.
    #[test]
    fn a_session_outlasts_a_caught_panic() {
        fn outlasts<T: UnwindSafe + RefUnwindSafe>() {}
        outlasts::<crate::Session>();
        outlasts::<crate::blocking::Session>();
    }

    #[test]
    fn the_first_loss_ends_it_and_a_release_does_not() {
        let kept = SessionLife::begin();
        kept.is_lost(b"a", &Loss::Released);
        assert!(!kept.is_over());
        kept.is_lost(b"b", &Loss::MaxHold);
        kept.is_lost(b"c", &Loss::Asleep);
        assert_eq!(kept.ended(), Some(SessionEnd::Lost { key: b"b".to_vec(), loss: Loss::MaxHold }));
    }
}
