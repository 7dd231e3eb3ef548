//! How grants and waits end, for people.

use crate::refusal::Refusal;

/// How a grant ended, or a wait that came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The owner gave the last hold back.
    Released,
    /// The lease was over.
    Expired,
    /// The same, and the lease had been kept alive until the connection of its holder ended.
    Unconnected,
    /// An operator took it away with LOCK.BREAK.
    Broken,
    /// Another command of the server took its key.
    Deleted,
    /// The same, and the lock goes on under another name.
    Renamed,
    /// The database was emptied.
    Flushed,
    /// The server made room.
    Evicted,
    /// The time of the request was up.
    TimedOut,
    /// Its owner took the request back.
    Withdrawn,
    /// The client of the request has gone, was unblocked, or waited on a node that became a replica.
    Left,
    /// The cluster slot of the key is served elsewhere.
    Redirected,
    /// The request was refused.
    Refused(Refusal),
}

impl Ending {
    /// For people.
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

    /// Of a refusal the code of its error.
    pub fn code(self) -> String {
        match self {
            Self::Refused(refusal) => refusal.to_string().split(' ').next().unwrap_or_default().to_owned(),
            _ => String::new(),
        }
    }
}
