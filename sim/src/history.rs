//! What holders of locks did, in true time: what every layer records, and the referee judges.

use std::fmt;

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
    /// It learns that it holds the lock.
    Held {
        /// When it began to ask.
        since: TimeUs,
        /// Until when it relies on it, in true time.
        until: TimeUs,
        /// With this fencing token.
        token: u64,
    },
    /// It relies on the lock for longer, or its token rose.
    Extended {
        /// Until when, in true time.
        until: TimeUs,
        /// Its token now.
        token: u64,
    },
    /// Its write reaches the resource that the lock protects.
    Wrote {
        /// With this token.
        token: u64,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} (acquisition {})", self.client, self.acquisition)
    }
}
