//! The reasons for which a record is refused.

use std::fmt;

/// The reason why bytes are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// An unknown version.
    Version {
        /// The record's version.
        found: u8,
        /// The latest version that this module reads.
        known: u8,
    },
    /// A length that differs from the one in the record's head.
    Length,
    /// A field outside the bounds of every lock.
    Field(&'static str),
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found, known } => {
                write!(f, "version {found} where this module reads versions up to {known}: load a module that knows it")
            }
            Self::Length => f.write_str("its length is not what its head says"),
            Self::Field(name) => write!(f, "its {name} is out of bounds"),
        }
    }
}
