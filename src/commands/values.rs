//! What the bytes of an argument are made into.

use palisade_core::limits::GUARD_LIMIT_MS;
use palisade_core::request::{Level, Note, Owner, Patience, Ticket, Ttl, floor, listed_waiters};
use palisade_core::{Refusal, Token};

use crate::config;
use crate::ffi::Shape;
use crate::integer::parse_integer;

/// An argument of a request, within its bounds.
pub trait Value<'a>: Sized {
    /// What COMMAND DOCS tells of its kind.
    const SHAPE: Shape;

    /// These bytes, if they are one.
    fn parse(bytes: &'a [u8]) -> Result<Self, Refusal>;
}

impl<'a> Value<'a> for &'a [u8] {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        Ok(bytes)
    }
}

impl<'a> Value<'a> for Owner<'a> {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        Self::new(bytes)
    }
}

impl<'a> Value<'a> for Note<'a> {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        Self::new(bytes)
    }
}

impl Value<'_> for Ttl {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        Self::new(parse_integer(bytes), config::max_ttl_ms())
    }
}

impl Value<'_> for Token {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        parse_integer(bytes).and_then(Token::new).ok_or(Refusal::Token)
    }
}

impl Value<'_> for Patience {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        Self::new(parse_integer(bytes))
    }
}

impl Value<'_> for Ticket {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        Self::new(parse_integer(bytes))
    }
}

impl Value<'_> for Level {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        Self::new(parse_integer(bytes))
    }
}

/// How many waiters are to be listed.
pub struct ListedWaiters(pub usize);

impl Value<'_> for ListedWaiters {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        listed_waiters(parse_integer(bytes)).map(Self)
    }
}

/// Where an operator wants tokens to start.
pub struct Floor(pub Token);

impl Value<'_> for Floor {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        floor(parse_integer(bytes)).map(Self)
    }
}

/// For how many milliseconds an operator arms the guard.
pub struct GuardMs(pub u32);

impl Value<'_> for GuardMs {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let ms = parse_integer(bytes).and_then(|ms| u32::try_from(ms).ok());
        ms.filter(|ms| (1..=GUARD_LIMIT_MS).contains(ms)).map(Self).ok_or(Refusal::GuardLength)
    }
}
