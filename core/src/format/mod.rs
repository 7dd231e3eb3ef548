//! Bytes on the wire and on the disk.

pub mod digest;
mod fields;
#[cfg(test)]
mod fixture;
pub mod fresh;
pub mod gate;
pub mod joint;
pub mod record;
