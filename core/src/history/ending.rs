//! Why grants and waits ended, as the log and the events show it to people.

use crate::refusal::Refusal;

/// The reason why a grant ended, or why a wait failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The owner gave back its last hold.
    Released,
    /// The lease was over.
    Expired,
    /// The lease was over. Before, the node had kept it alive until the holder's connection ended.
    Unconnected,
    /// An operator broke the lock with LOCK.BREAK.
    Broken,
    /// Another command of the server deleted the key (DEL, SET, ...).
    Deleted,
    /// Another command renamed the key, and the lock continues under the new name.
    Renamed,
    /// A flush emptied the database.
    Flushed,
    /// The server evicted the key to make room.
    Evicted,
    /// The time that the request allowed for waiting was over.
    TimedOut,
    /// The owner withdrew its request.
    Withdrawn,
    /// The waiting client disconnected or was unblocked, or its node became a replica.
    Left,
    /// The cluster slot of the key is served by another node now.
    Redirected,
    /// The waiting request was refused, for this reason.
    Refused(Refusal),
}

impl Ending {
    /// Returns the word by which the log and the events name this ending.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Unconnected => "unconnected",
            Self::Broken => "broken",
            Self::Deleted => "deleted",
            Self::Renamed => "renamed",
            Self::Flushed => "flushed",
            Self::Evicted => "evicted",
            Self::TimedOut => "timeout",
            Self::Withdrawn => "withdrawn",
            Self::Left => "left",
            Self::Redirected => "redirected",
            Self::Refused(_) => "refused",
        }
    }

    /// Returns the code of the refusal's error; empty for endings that are no refusal.
    pub fn code(self) -> String {
        match self {
            Self::Refused(refusal) => refusal.to_string().split(' ').next().unwrap_or_default().to_owned(),
            _ => String::new(),
        }
    }
}
