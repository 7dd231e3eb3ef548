//! The events of lock holders in true time. Every layer of checks records them, and the referee judges them.

use std::fmt;

use palisade_core::{Mode, Permit, Wanted};
use serde::{Deserialize, Serialize};

/// Microseconds of true time, a single clock that no client or node can read.
pub type TimeUs = u64;

/// An acquisition by a client. No two acquisitions are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The client's number.
    pub client: u32,
    /// The acquisition's number within the client.
    pub acquisition: u32,
}

/// The mode in which a client relies on a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HeldAs {
    /// Alone, as a writer.
    #[default]
    Exclusive,
    /// Together with other readers.
    Shared,
    /// As permit `number`, with at most `limit` holders.
    Permit { number: u16, limit: u16 },
}

impl HeldAs {
    /// Returns true if two clients may rely on one lock in these modes at once.
    pub fn goes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => true,
            (Self::Permit { number, limit }, Self::Permit { number: others, limit: theirs }) => {
                number != others && number <= theirs && others <= limit
            }
            _ => false,
        }
    }

    /// Returns the grant's mode.
    pub fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::Permit { number, limit } => Permit::new(number, limit).map_or(Mode::Exclusive, Mode::Permit),
        }
    }

    /// Returns the request that produces this mode.
    pub fn wanted(self) -> Wanted {
        match self {
            Self::Exclusive => Wanted::Exclusive,
            Self::Shared => Wanted::Shared,
            Self::Permit { number, limit } => Wanted::Permit { limit, number: Some(number) },
        }
    }

    /// Returns the mode of a client that asked for `wanted` and was granted permit `number`.
    pub fn of(wanted: Wanted, number: u16) -> Self {
        match wanted {
            Wanted::Exclusive => Self::Exclusive,
            Wanted::Shared => Self::Shared,
            Wanted::Permit { limit, .. } => Self::Permit { number, limit },
        }
    }
}

/// An event: a holder did something with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Event {
    /// The moment, in true time.
    pub at: TimeUs,
    /// The key of the lock.
    pub key: u32,
    /// The holder that did something.
    pub who: Holder,
    /// The holder's action, or its end.
    pub what: Occurrence,
}

/// A holder's action.
///
/// The order of the variants is that of events with the same time: ends come before beginnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Occurrence {
    /// The holder no longer relies on the lock: it begins to release it, or learns that it is lost.
    Ended,
    /// The holder learns that it has the lock. It began to ask at `since`, and relies on the lock until `until`, in
    /// true time.
    Held { since: TimeUs, until: TimeUs, token: u64, mode: HeldAs },
    /// The holder relies on the lock until a later time, in true time, or its token rose.
    Extended { until: TimeUs, token: u64 },
    /// The holder relies on the lock in another mode, with `token` from now on.
    Converted { token: u64, mode: HeldAs },
    /// A write, a read or the use of a permit under the lock reaches the resource that the lock protects.
    Wrote { token: u64, mode: HeldAs },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} (acquisition {})", self.client, self.acquisition)
    }
}
