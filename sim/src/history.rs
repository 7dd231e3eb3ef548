//! What holders of locks did, in true time: what every layer records, and the referee judges.

use std::fmt;

use palisade_core::{Mode, Permit, Wanted};
use serde::{Deserialize, Serialize};

/// Microseconds of true time: one clock for all, which nobody who takes part can read.
pub type TimeUs = u64;

/// One acquisition of one holder, told from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// Which client.
    pub client: u32,
    /// Which of its acquisitions.
    pub acquisition: u32,
}

/// In which mode somebody relies on a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HeldAs {
    /// Alone, to write.
    #[default]
    Exclusive,
    /// Together with others who read.
    Shared,
    /// As the one of this number, of as many as its holder lets there be.
    Permit { number: u16, limit: u16 },
}

impl HeldAs {
    /// Whether two may rely on one lock in these modes at one moment.
    pub fn goes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => true,
            (Self::Permit { number, limit }, Self::Permit { number: others, limit: theirs }) => {
                number != others && number <= theirs && others <= limit
            }
            _ => false,
        }
    }

    /// The mode of such a grant.
    pub fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::Permit { number, limit } => Permit::new(number, limit).map_or(Mode::Exclusive, Mode::Permit),
        }
    }

    /// What has to be asked for.
    pub fn wanted(self) -> Wanted {
        match self {
            Self::Exclusive => Wanted::Exclusive,
            Self::Shared => Wanted::Shared,
            Self::Permit { number, limit } => Wanted::Permit { limit, number: Some(number) },
        }
    }

    /// What one has who asked for `wanted` and was granted the permit `number`.
    pub fn of(wanted: Wanted, number: u16) -> Self {
        match wanted {
            Wanted::Exclusive => Self::Exclusive,
            Wanted::Shared => Self::Shared,
            Wanted::Permit { limit, .. } => Self::Permit { number, limit },
        }
    }
}

/// Something that a holder did with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: TimeUs,
    /// Which lock.
    pub key: u32,
    /// Who.
    pub who: Holder,
    /// What.
    pub what: What,
}

/// What a holder did.
///
/// The order is that of events of one moment: who ends, ends before another begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum What {
    /// It relies on the lock no longer: it begins to give it back, or learns that it is lost.
    Ended,
    /// It learns that it holds the lock, for which it began to ask at that time, and on which it relies until then, in true time.
    Held { since: TimeUs, until: TimeUs, token: u64, mode: HeldAs },
    /// It relies on the lock for longer, in true time, or its token rose.
    Extended { until: TimeUs, token: u64 },
    /// It relies on the lock in another mode, with its token now.
    Converted { token: u64, mode: HeldAs },
    /// What it does under the lock reaches the resource that the lock protects: it writes, reads, or uses its permit.
    Wrote { token: u64, mode: HeldAs },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} (acquisition {})", self.client, self.acquisition)
    }
}
