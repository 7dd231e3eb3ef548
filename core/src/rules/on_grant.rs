//! What comes of a command about a grant that its sender holds.

use crate::lock::grant::GrantId;

/// What came of it, with what its sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnGrant<T> {
    /// This grant is another now.
    Changed(GrantId, T),
    /// It was like that already.
    Unchanged(T),
    /// This owner does not hold it, or not as the command says: nothing changed.
    NotHeld,
}
