//! Locks and gates as bytes: on the wire, on the disk, in digests.

pub mod digest;
mod fields;
#[cfg(test)]
mod fixture;
pub mod fresh;
pub mod gate;
pub mod joint;
pub mod record;
