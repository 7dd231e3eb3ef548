//! Resources that check tokens themselves, and the writes to them.

use serde::{Deserialize, Serialize};

use crate::history::Holder;

/// The number of resources with a gate.
pub const GATES: u32 = 2;

/// The number of the resource in PostgreSQL. Those with a gate have the numbers below it.
pub const IN_POSTGRESQL: u32 = GATES;

/// The servers that have a resource.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Place {
    /// The URLs of servers with the module. One of them has the gate and the list now.
    Servers(Vec<String>),
    /// The address of a PostgreSQL database.
    PostgreSql(String),
}

/// A resource, and the lock that protects it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// The number of the resource.
    pub number: u32,
    /// The key whose name is the hash tag of the resource's lock, gate and list: all are in its slot, and move with it.
    pub key: String,
    /// The servers that have the resource.
    pub place: Place,
}

impl Resource {
    /// Returns the name of the lock. In PostgreSQL the fence has this name too.
    pub fn lock(&self) -> String {
        name(&self.key, "lock")
    }

    /// Returns the name of the gate.
    pub fn gate(&self) -> String {
        name(&self.key, "gate")
    }

    /// Returns the name of the list of entries.
    pub fn list(&self) -> String {
        name(&self.key, "landed")
    }
}

/// Returns a name that contains `of`, and is in the same cluster slot as this key.
pub fn name(key: &str, of: &str) -> String {
    format!("{{{key}}}:{of}")
}

/// A write to a resource, as the resource stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// The token with which the holder writes.
    pub token: u64,
    /// The holder that writes.
    pub who: Holder,
    /// The number of this write among the writes of its holder.
    pub number: u32,
}

/// The answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The entry is in the resource.
    Landed,
    /// The write was refused, because a newer holder had written.
    Fenced,
    /// Nothing was written: the server is away, or refuses for another reason.
    NotDone,
    /// No answer arrived, so the entry may still be written later.
    Unknown,
}
