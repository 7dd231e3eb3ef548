//! Reads, writes and edits records, for the tests of each version of the record.

use crate::format::record::{Arrival, Here, decode, encode};
use crate::lock::Lock;
use crate::refusal::Damaged;
use crate::values::time::{BootId, BootTime};

pub const HERE: BootId = BootId([1; 16]);
pub const ELSEWHERE: BootId = BootId([2; 16]);
pub const ARRIVALS: [Arrival; 3] = [Arrival::Stream, Arrival::Storage, Arrival::Payload];

/// Reads a record at `now` milliseconds after boot.
pub fn read(bytes: &[u8], arrival: Arrival, now: u64, boot: BootId) -> Result<Lock, Damaged> {
    decode(bytes, Here { arrival, now: BootTime::from_us(now * 1_000), boot })
}

/// Returns the record of `lock` as it is written at `now`.
pub fn written(lock: &Lock, now: BootTime) -> Vec<u8> {
    let mut bytes = vec![];
    encode(lock, now, HERE, &mut bytes);
    bytes
}

/// Returns a copy of the record `bytes` in which `with` replaces the bytes from the index `at` on.
pub fn edited(bytes: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    [&bytes[..at], with, &bytes[at + with.len()..]].concat()
}
