//! The outcome of a command that changes a grant of its sender.

use crate::lock::grant::GrantId;

/// The outcome of a command that changes a grant of its sender, with the answer `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnGrant<T> {
    /// The grant with this id has changed.
    Changed(GrantId, T),
    /// The grant already was as requested: nothing changed.
    Unchanged(T),
    /// The owner does not hold the lock, or not with the token that the command names. Nothing changed.
    NotHeld,
}
