//! The ends of a lock: why it was lost, or the result of its release.

use std::fmt;

use crate::NodeError;

/// The reason why a lock is no longer held, from [`Guard::lost`](crate::Guard::lost).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Another guard released the lock.
    Released,
    /// The nodes lost the lock before its lease ended. An operator broke it, somebody deleted it or released it under
    /// its owner's name, or nodes lost their memory. The listed nodes do not have it, and the others are no majority.
    TakenAway(Vec<NodeError>),
    /// The lease ended, because too few nodes extended it in time. The list has the answers of those that did not;
    /// nodes without an entry did not answer.
    TooFewNodes(Vec<NodeError>),
    /// The lease ended, and [`Options::max_hold`](crate::Options::max_hold) forbids extending it further.
    MaxHold,
    /// The lease ended, and [`Options::auto_extend`](crate::Options::auto_extend) is off, or the lock's
    /// [`Session`](crate::Session) was over.
    NotExtended,
    /// The lease ended while this process could not run: it was suspended, or its machine slept.
    Asleep,
    /// The client has ended, and extends no lock any longer.
    Closed,
}

/// The outcome of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lock is free for others: a majority of the nodes had it until now, and has released it. On the other nodes
    /// it is released in the background.
    Released,
    /// One hold was released; this many guards are left.
    StillHeld(u32),
    /// A majority no longer had the lock: it had ended before, or the nodes lost it. The last steps may have been done
    /// without the lock.
    AlreadyExpired,
    /// Too few nodes answered whether the lock was held until now. The listed nodes did not answer: each releases the
    /// lock once it answers, or when the lease ends there.
    PartlyUnreachable(Vec<NodeError>),
}

impl Loss {
    /// Returns the reason, without the nodes' answers.
    #[doc(hidden)]
    pub fn summary(&self) -> &'static str {
        match self {
            Self::Released => "another guard gave it back",
            Self::TakenAway(_) => "somebody took it away, or its nodes forgot it",
            Self::TooFewNodes(_) => "too few nodes extended it in time",
            Self::MaxHold => "it was held for as long as is allowed (max_hold)",
            Self::NotExtended => "its lease ended, and nobody extended it",
            Self::Asleep => "its lease ended while this program could not run",
            Self::Closed => "its client has ended",
        }
    }

    /// Returns the nodes that are the reason, with their answers.
    pub fn nodes(&self) -> &[NodeError] {
        match self {
            Self::TakenAway(nodes) | Self::TooFewNodes(nodes) => nodes,
            _ => &[],
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.summary())?;
        for (n, node) in self.nodes().iter().enumerate() {
            write!(f, "{}{node}", if n == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}
