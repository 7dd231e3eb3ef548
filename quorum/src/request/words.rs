//! Parses the values of requests from words.

use super::values::{
    Behind, Conversion, GuardMs, Level, ListedEntries, ListedHolders, ListedWaiters, ListenerName, MembersVersion,
    Note, NoteSequence, Owner, Patience, Ticket, TokenFloor, Ttl, permit,
};
use crate::grammar::words::Value;
use crate::grammar::{Bounds, Shape};
use crate::members::{Ballot, Member, members_from_text};
use crate::refusal::Refusal;
use crate::values::integer::parse_integer;
use crate::values::mode::Wanted;
use crate::values::token::Token;

/// Implements parsing for values that consist of any bytes.
macro_rules! bytes {
    ($($value:ident)*) => {$(
        impl<'a> Value<'a> for $value<'a> {
            const SHAPE: Shape = Shape::Bytes;

            fn parse(word: &'a [u8], _: Bounds) -> Result<Self, Refusal> {
                Self::new(word)
            }
        }
    )*};
}

/// Implements parsing for values that consist of an integer; `None` stands for a word that is not one.
macro_rules! integers {
    ($($value:ident)*) => {$(
        impl Value<'_> for $value {
            const SHAPE: Shape = Shape::Integer;

            fn parse(word: &[u8], _: Bounds) -> Result<Self, Refusal> {
                Self::new(parse_integer(word))
            }
        }
    )*};
}

bytes! { Owner Note ListenerName }

integers! {
    Behind GuardMs Level ListedEntries ListedHolders ListedWaiters MembersVersion NoteSequence Patience Ticket TokenFloor
}

impl Value<'_> for Ttl {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: &[u8], bounds: Bounds) -> Result<Self, Refusal> {
        Self::new(parse_integer(word), bounds.max_ttl_ms)
    }
}

impl Value<'_> for Token {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: &[u8], _: Bounds) -> Result<Self, Refusal> {
        parse_integer(word).and_then(Token::new).ok_or(Refusal::Token { argument: "token" })
    }
}

/// The token that a watcher knows, or `None` if it knows the lock as free, written as 0.
pub(super) struct KnownToken(pub(super) Option<Token>);

impl Value<'_> for KnownToken {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: &[u8], _: Bounds) -> Result<Self, Refusal> {
        match parse_integer(word).ok_or(Refusal::KnownToken)? {
            0 => Ok(Self(None)),
            number => Token::new(number).map(Some).map(Self).ok_or(Refusal::KnownToken),
        }
    }
}

impl Value<'_> for Conversion {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(word: &[u8], _: Bounds) -> Result<Self, Refusal> {
        let is = |mode: &str| word.eq_ignore_ascii_case(mode.as_bytes());
        match () {
            () if is("SHARED") => Ok(Self::Shared),
            () if is("EXCLUSIVE") => Ok(Self::Exclusive),
            () => Err(Refusal::Conversion),
        }
    }
}

/// The number of LIMIT or PERMIT, which is checked later, together with the other options. A word that is not an
/// integer becomes 0, which is invalid there too.
pub(super) struct Count(pub(super) u64);

impl Value<'_> for Count {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: &[u8], _: Bounds) -> Result<Self, Refusal> {
        Ok(Self(parse_integer(word).unwrap_or(0)))
    }
}

/// A time whose bounds depend on another value, and which is checked later. `None` if the word is not an integer.
#[derive(Clone, Copy, Debug)]
pub struct Milliseconds(pub Option<u64>);

impl Value<'_> for Milliseconds {
    const SHAPE: Shape = Shape::Integer;

    fn parse(word: &[u8], _: Bounds) -> Result<Self, Refusal> {
        Ok(Self(parse_integer(word)))
    }
}

impl Value<'_> for Vec<Member> {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(word: &[u8], _: Bounds) -> Result<Self, Refusal> {
        std::str::from_utf8(word).ok().and_then(members_from_text).ok_or(Refusal::Members)
    }
}

impl Value<'_> for Ballot {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(word: &[u8], _: Bounds) -> Result<Self, Refusal> {
        let digits = std::str::from_utf8(word).ok().filter(|text| text.len() == 32 && !text.starts_with('+'));
        digits.and_then(|text| Ballot::from_str_radix(text, 16).ok()).ok_or(Refusal::Ballot)
    }
}

/// Returns the mode that the options of a request name: SHARED, LIMIT and PERMIT, or none of them.
pub(super) fn wanted(shared: bool, limit: Option<Count>, number: Option<Count>) -> Result<Wanted, Refusal> {
    match (shared, limit, number) {
        (true, Some(_), _) => Err(Refusal::Excludes { options: "SHARED and LIMIT" }),
        (_, None, Some(_)) => Err(Refusal::Needs { option: "PERMIT", needs: "LIMIT" }),
        (_, Some(Count(limit)), number) => permit(limit, number.map(|Count(number)| number)),
        (true, None, None) => Ok(Wanted::Shared),
        (false, None, None) => Ok(Wanted::Exclusive),
    }
}
