//! Resources that check tokens themselves, and the writes to them.

use serde::{Deserialize, Serialize};

use crate::history::Holder;

/// The number of resources with a gate.
pub const GATES: u32 = 2;

/// The number of the resource in PostgreSQL. Those with a gate have the numbers below it.
pub const IN_POSTGRESQL: u32 = GATES;

/// The place of resources.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Place {
    /// Servers with the module, of which one has the gate and the list now.
    Servers(Vec<String>),
    /// A database of PostgreSQL.
    PostgreSql(String),
}

/// A resource, and the lock that protects it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// The number.
    pub number: u32,
    /// The shared key in whose slot it is: when that slot moves, all of the resource does.
    pub key: String,
    /// The place.
    pub place: Place,
}

impl Resource {
    /// Returns the name of the lock, which a fence has too.
    pub fn lock(&self) -> String {
        name(&self.key, "lock")
    }

    /// Returns the name of the gate.
    pub fn gate(&self) -> String {
        name(&self.key, "gate")
    }

    /// Returns the name of the list.
    pub fn list(&self) -> String {
        name(&self.key, "landed")
    }
}

/// Returns a name in the slot of this key.
pub fn name(key: &str, of: &str) -> String {
    format!("{{{key}}}:{of}")
}

/// A write. It lands as a whole, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// The token that it was made with.
    pub token: u64,
    /// The holder.
    pub who: Holder,
    /// The number of the write, of this holder's.
    pub number: u32,
}

/// The answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The write landed.
    Landed,
    /// A newer holder was there.
    Fenced,
    /// Nothing was done: the server is away, or refuses for another reason.
    NotDone,
    /// No answer came, so it may land later.
    Unknown,
}
