//! How a lock ends: why it is lost, or what came of giving it back.

use std::fmt;

use crate::NodeError;

/// Why a lock is not held any more, as [`Guard::lost`](crate::Guard::lost) tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Another guard of it gave it back.
    Released,
    /// So many nodes do not have it any more that no majority is left, though its lease had not ended: these. An operator broke it,
    /// somebody deleted it, or released it under its owner's name; or the nodes lost their memory.
    TakenAway(Vec<NodeError>),
    /// Its lease ended, since too few nodes extended it in time. What the others said; those that are not named did not answer.
    TooFewNodes(Vec<NodeError>),
    /// Its lease ended, and it is not extended for longer than [`Options::max_hold`](crate::Options::max_hold).
    MaxHold,
    /// Its lease ended, and nobody extended it ([`Options::auto_extend`](crate::Options::auto_extend) is off).
    NotExtended,
    /// Its lease ended while this process could not run: it was stopped, or its machine slept.
    Asleep,
    /// The client has ended, and extends nothing any more.
    Closed,
}

/// What a release came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lock is free for others: a majority of the nodes had it until now, and has released it. The others are told in the background.
    Released,
    /// One hold was given back; this many guards are left.
    StillHeld(u32),
    /// A majority did not have it any more: it had ended before, or the nodes lost it. What was done last may have been done
    /// without it.
    AlreadyExpired,
    /// Too few nodes tell whether it was held until now. These did not answer: they are told when they do, or it ends there with its
    /// lease.
    PartlyUnreachable(Vec<NodeError>),
}

impl Loss {
    /// Why, without what the nodes said.
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

    /// What the nodes said, if they are why.
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
