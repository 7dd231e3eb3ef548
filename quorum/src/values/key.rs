//! The key of a lock.

/// A key of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The database number.
    pub db: u32,
    /// The key's name.
    pub name: &'a [u8],
}
