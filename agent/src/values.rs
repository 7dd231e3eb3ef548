//! What the words of a request are made into. Their bounds are those of the nodes, and so are the texts that refuse them.

use std::time::Duration;

use bytes::Bytes;
use palisade_core::limits::MAX_TTL_LIMIT_MS;
use palisade_core::request::{self, Conversion, Level, Note, NoteSequence, Owner, Patience, Ttl};
use palisade_core::{Refusal, Token, Wanted, parse_integer};

use crate::spec::Shape;

/// Bounds that the nodes set.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest lease in milliseconds.
    pub max_ttl_ms: u32,
}

impl Default for Bounds {
    /// Those of any node: what it makes of them it says itself.
    fn default() -> Self {
        Self { max_ttl_ms: MAX_TTL_LIMIT_MS }
    }
}

/// An argument of a request, within its bounds.
pub trait Value: Sized {
    /// What is told of its kind.
    const SHAPE: Shape;

    /// This word, if it is one.
    fn parse(word: Bytes, bounds: &Bounds) -> Result<Self, Refusal>;
}

/// The name of an owner.
#[derive(Clone, Debug)]
pub struct Name(pub Bytes);

impl Value for Name {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        Owner::new(&word)?;
        Ok(Self(word))
    }
}

/// A text for people.
#[derive(Clone, Debug, Default)]
pub struct Text(pub Bytes);

impl Value for Text {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        Note::new(&word)?;
        Ok(Self(word))
    }
}

impl Value for Ttl {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, bounds: &Bounds) -> Result<Self, Refusal> {
        Self::new(parse_integer(&word), bounds.max_ttl_ms)
    }
}

impl Value for Token {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        parse_integer(&word).and_then(Token::new).ok_or(Refusal::Token { argument: "token" })
    }
}

/// The token of the grant that is known; none: that the lock is free, which a free lock's answer says with 0.
pub struct KnownToken(pub Option<Token>);

impl Value for KnownToken {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, bounds: &Bounds) -> Result<Self, Refusal> {
        if parse_integer(&word) == Some(0) { Ok(Self(None)) } else { Token::parse(word, bounds).map(Some).map(Self) }
    }
}

impl Value for NoteSequence {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        Self::new(parse_integer(&word))
    }
}

impl Value for Patience {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        Self::new(parse_integer(&word))
    }
}

impl Value for Level {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        Self::new(parse_integer(&word))
    }
}

impl Value for Conversion {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        match () {
            () if word.eq_ignore_ascii_case(b"SHARED") => Ok(Self::Shared),
            () if word.eq_ignore_ascii_case(b"EXCLUSIVE") => Ok(Self::Exclusive),
            () => Err(Refusal::Conversion),
        }
    }
}

/// A number that only means something together with another one: how many permits, or which.
pub struct Count(u64);

impl Value for Count {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        // What is no number is none that is taken.
        Ok(Self(parse_integer(&word).unwrap_or(0)))
    }
}

/// A time whose bounds depend on another one.
pub struct Milliseconds(pub Option<u64>);

impl Value for Milliseconds {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        Ok(Self(parse_integer(&word)))
    }
}

/// How many holders are to be listed.
pub struct ListedHolders(pub usize);

impl Value for ListedHolders {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        request::ListedHolders::new(parse_integer(&word)).map(|listed| Self(listed.0))
    }
}

/// How many waiters are to be listed.
pub struct ListedWaiters(pub usize);

impl Value for ListedWaiters {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: Bytes, _: &Bounds) -> Result<Self, Refusal> {
        request::ListedWaiters::new(parse_integer(&word)).map(|listed| Self(listed.0))
    }
}

/// The mode that the options of a request name.
pub fn wanted(shared: bool, limit: Option<Count>, permit: Option<Count>) -> Result<Wanted, Refusal> {
    match (shared, limit, permit) {
        (true, Some(_), _) => Err(Refusal::Excludes { options: "SHARED and LIMIT" }),
        (_, None, Some(_)) => Err(Refusal::Needs { option: "PERMIT", needs: "LIMIT" }),
        (_, Some(Count(limit)), permit) => request::permit(limit, permit.map(|Count(number)| number)),
        (true, None, None) => Ok(Wanted::Shared),
        (false, None, None) => Ok(Wanted::Exclusive),
    }
}

/// So many milliseconds.
pub fn ms(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}
