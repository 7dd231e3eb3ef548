//! Bytes on the wire and on the disk.

pub mod digest;
pub mod record;
