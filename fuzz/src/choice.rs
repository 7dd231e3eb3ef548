//! Values near bounds, as a hostile client sends them, and ordinary values, each often enough.

use arbitrary::{Arbitrary, Result, Unstructured};
use palisade_core::limits::{HOLDS_MAX, MAX_TTL_LIMIT_MS, TOKEN_LIMIT};

/// A number from a client: often near a bound, sometimes any number.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub u64);

const EDGES: [u64; 24] = [
    0,
    1,
    2,
    3,
    5,
    10,
    19,
    20,
    21,
    50,
    100,
    1_000,
    60_000,
    60_001,
    HOLDS_MAX as u64,
    HOLDS_MAX as u64 + 1,
    MAX_TTL_LIMIT_MS as u64,
    MAX_TTL_LIMIT_MS as u64 + 1,
    u32::MAX as u64,
    u32::MAX as u64 + 1,
    TOKEN_LIMIT / 2,
    TOKEN_LIMIT - 1,
    TOKEN_LIMIT,
    u64::MAX,
];

impl<'a> Arbitrary<'a> for Number {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let choice = usize::from(u8::arbitrary(bytes)?);
        Ok(Self(match EDGES.get(choice % 32) {
            Some(edge) => *edge,
            None if choice < 128 => u16::arbitrary(bytes)?.into(),
            None => u64::arbitrary(bytes)?,
        }))
    }
}

/// Bytes from a client that name an owner, usually one of a few owners.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub struct Name(u8);

impl Name {
    /// Returns the bytes of the owner.
    pub fn bytes(self) -> &'static [u8] {
        match self.0 % 16 {
            0..5 => b"a",
            5..9 => b"b",
            9..11 => b"c",
            11 => b"a\0",
            12 => b"\xFF\r\n",
            13 => &[b'x'; 256],
            14 => &[b'x'; 257],
            _ => b"",
        }
    }
}

/// The LEVEL of a REENTER, if given, and whether it has ADOPT. Both together use as many bytes of the input as a level
/// alone, so that old seeds keep their meaning.
#[derive(Clone, Copy, Debug)]
pub struct Raised {
    pub level: Option<Number>,
    pub adopts: bool,
}

impl<'a> Arbitrary<'a> for Raised {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let marks = u8::arbitrary(bytes)?;
        let level = if marks & 1 == 1 { Some(Number::arbitrary(bytes)?) } else { None };
        Ok(Self { level, adopts: marks & 2 == 2 })
    }
}

/// A step in time: often exactly to the end of a lease or a reservation.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub enum Passes {
    /// A step of less than a millisecond.
    Microseconds(u8),
    /// A step of up to a minute.
    Milliseconds(u16),
    /// A step of up to four hours and a quarter.
    Minutes(u8),
    /// A step to the next moment at which something is due, or up to three microseconds beyond.
    ToNextDue(u8),
}

/// A byte of the input: a flag of the caller, the server's answers to the node's next questions, and whether the disk
/// completes a write.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub struct Wavering(u8);

impl Wavering {
    /// Returns the caller's flag; its meaning depends on the request.
    pub fn is_set(self) -> bool {
        self.0 & 1 == 1
    }

    /// Returns the server's answers to the engine's next questions (yes, or a refusal): two bits for each.
    pub fn doubts(self) -> u8 {
        self.0 >> 1 & 0x3F
    }

    /// Returns true if the disk completes the write that it was given.
    pub fn disk_gets_done(self) -> bool {
        self.0 >> 7 == 1
    }
}
