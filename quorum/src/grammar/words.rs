//! The words of a call, one after the other, and the values that they become.

use super::spec::Shape;
use crate::refusal::Refusal;

/// Bounds that a node sets itself.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest lease in milliseconds.
    pub max_ttl_ms: u32,
}

/// An argument of a request, within its bounds.
pub trait Value<'a>: Sized {
    /// The kind that COMMAND DOCS tells.
    const SHAPE: Shape;

    /// Makes a value of this word.
    fn parse(word: &'a [u8], bounds: Bounds) -> Result<Self, Refusal>;
}

impl<'a> Value<'a> for &'a [u8] {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(word: &'a [u8], _: Bounds) -> Result<Self, Refusal> {
        Ok(word)
    }
}

/// The words of a call after its key.
pub struct Words<I> {
    words: I,
    bounds: Bounds,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Words<I> {
    /// Reads `words` within `bounds`.
    #[inline(always)]
    pub fn new(words: I, bounds: Bounds) -> Self {
        Self { words, bounds }
    }

    /// Takes the next one.
    #[inline(always)]
    pub fn next(&mut self) -> Option<&'a [u8]> {
        self.words.next()
    }

    /// Takes the next one as an argument that must be there: the caller has counted the words.
    // Inlined it saves every command up to 40 instructions (`make instructions`).
    #[inline(always)]
    pub fn required<'v, T: Value<'v>>(&mut self) -> Result<T, Refusal>
    where
        'a: 'v,
    {
        T::parse(self.next().unwrap_or_default(), self.bounds)
    }

    /// Takes the next one as the value of option `name`.
    pub fn value<'v, T: Value<'v>>(&mut self, name: &'static str) -> Result<T, Refusal>
    where
        'a: 'v,
    {
        let value = T::parse(self.next().ok_or(Refusal::MissingValue { name })?, self.bounds);
        value.map_err(|refusal| refusal.of_option(name))
    }
}

/// Keeps the value of option `name`, which may be given once.
pub fn once<T>(name: &'static str, kept: &mut Option<T>, value: T) -> Result<(), Refusal> {
    match kept.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::RepeatedOption { name }),
    }
}
