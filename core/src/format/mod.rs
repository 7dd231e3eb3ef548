//! Bytes on the wire and on the disk.

pub mod digest;
mod fields;
pub mod fresh;
pub mod joint;
pub mod record;
