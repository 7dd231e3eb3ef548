//! The endings of grants and waits, for people.

use crate::refusal::Refusal;

/// The ending of a grant, or of a failed wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The owner gave back its last hold.
    Released,
    /// The lease was over.
    Expired,
    /// The lease was over, after it had been kept alive until the connection of its holder ended.
    Unconnected,
    /// An operator broke the lock with LOCK.BREAK.
    Broken,
    /// Another command of the server deleted its key.
    Deleted,
    /// Another command deleted its key, and the lock continues under another name.
    Renamed,
    /// The database was emptied.
    Flushed,
    /// The server evicted the lock to make room.
    Evicted,
    /// The time of the request was over.
    TimedOut,
    /// The owner withdrew its request.
    Withdrawn,
    /// The client of the request has gone, was unblocked, or waited on a node that became a replica.
    Left,
    /// The cluster slot of the key is served elsewhere.
    Redirected,
    /// The request was refused.
    Refused(Refusal),
}

impl Ending {
    /// Returns the ending's word for people.
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

    /// Returns the code of a refusal's error; empty for other endings.
    pub fn code(self) -> String {
        match self {
            Self::Refused(refusal) => refusal.to_string().split(' ').next().unwrap_or_default().to_owned(),
            _ => String::new(),
        }
    }
}
