//! The key of a lock.

/// A key of the server: what it is called, and in which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The number of the database.
    pub db: u32,
    /// The name in that database, of any bytes.
    pub name: &'a [u8],
}
