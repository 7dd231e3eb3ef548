//! Which key of a server a lock has.

/// A key of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The number of its database.
    pub db: u32,
    /// Its name.
    pub name: &'a [u8],
}
