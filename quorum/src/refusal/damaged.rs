//! The reasons why the bytes of a record are refused.

use std::fmt;

/// The reason why bytes are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// The record has a version that this module does not know.
    Version {
        /// The version that the record has.
        found: u8,
        /// The latest version that this module reads.
        known: u8,
    },
    /// The length of the record differs from the one that its head names.
    Length,
    /// The named field is outside the bounds that every lock keeps.
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
