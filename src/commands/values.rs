//! What the bytes of an argument are made into.

use palisade_core::limits::GUARD_LIMIT_MS;
use palisade_core::request::{
    self, Behind, Conversion, Level, ListenerName, Note, NoteSequence, Owner, Patience, Ticket, Ttl, floor,
    listed_entries, listed_holders, listed_waiters, members_version,
};
use palisade_core::{Member, Refusal, Token, Wanted, members_from_text, parse_integer};

use crate::config;
use crate::ffi::Shape;

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

impl<'a> Value<'a> for ListenerName<'a> {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        Self::new(bytes)
    }
}

impl Value<'_> for NoteSequence {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        Self::new(parse_integer(bytes))
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
        parse_integer(bytes).and_then(Token::new).ok_or(Refusal::Token { argument: "token" })
    }
}

/// The token of the grant that is known; none: that the lock is free, which a free lock's answer says with 0.
pub struct KnownToken(pub Option<Token>);

impl Value<'_> for KnownToken {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        if parse_integer(bytes) == Some(0) { Ok(Self(None)) } else { Token::parse(bytes).map(Some).map(Self) }
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

impl Value<'_> for Behind {
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

impl Value<'_> for Conversion {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let is = |word: &str| bytes.eq_ignore_ascii_case(word.as_bytes());
        match () {
            () if is("SHARED") => Ok(Self::Shared),
            () if is("EXCLUSIVE") => Ok(Self::Exclusive),
            () => Err(Refusal::Conversion),
        }
    }
}

/// A number that only means something together with another one: how many permits, or which.
pub struct Count(pub u64);

impl Value<'_> for Count {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        // What is no number is none that is taken.
        Ok(Self(parse_integer(bytes).unwrap_or(0)))
    }
}

/// A time whose bounds depend on another one.
pub struct Milliseconds(pub Option<u64>);

impl Value<'_> for Milliseconds {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        Ok(Self(parse_integer(bytes)))
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

/// How many holders are to be listed.
pub struct ListedHolders(pub usize);

impl Value<'_> for ListedHolders {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        listed_holders(parse_integer(bytes)).map(Self)
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

/// How many entries of the log are to be listed.
#[derive(Clone, Copy)]
pub struct ListedEntries(pub usize);

impl Value<'_> for ListedEntries {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        listed_entries(parse_integer(bytes)).map(Self)
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

/// A version of the set of nodes.
pub struct MembersVersion(pub u64);

impl Value<'_> for MembersVersion {
    const SHAPE: Shape = Shape::Integer;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        members_version(parse_integer(bytes)).map(Self)
    }
}

/// Nodes of the set.
pub struct MemberList(pub Vec<Member>);

impl Value<'_> for MemberList {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let list = std::str::from_utf8(bytes).ok().and_then(members_from_text);
        list.map(Self).ok_or(Refusal::Members)
    }
}

/// Which attempt to change the set it is.
pub struct Ballot(pub u128);

impl Value<'_> for Ballot {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let digits = std::str::from_utf8(bytes).ok().filter(|text| text.len() == 32 && !text.starts_with('+'));
        digits.and_then(|text| u128::from_str_radix(text, 16).ok()).map(Self).ok_or(Refusal::Ballot)
    }
}
