//! The outcome of a command about a grant that its sender holds.

use crate::lock::grant::GrantId;

/// The outcome, with the answer to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnGrant<T> {
    /// The grant has changed.
    Changed(GrantId, T),
    /// The grant already was as requested: nothing changed.
    Unchanged(T),
    /// The owner does not hold the lock, or not as the command names it: nothing changed.
    NotHeld,
}
