//! Reads the words of a call one by one, as values within their bounds.

use super::spec::Shape;
use crate::refusal::Refusal;

/// The bounds of arguments that a node's operator can set.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest lease, in milliseconds.
    pub max_ttl_ms: u32,
}

/// The type of an argument: it parses a word, and refuses what is not within its bounds.
pub trait Value<'a>: Sized {
    /// The kind of value that COMMAND DOCS shows.
    const SHAPE: Shape;

    /// Parses a word. Refuses it if it is not such a value, or out of bounds.
    fn parse(word: &'a [u8], bounds: Bounds) -> Result<Self, Refusal>;
}

impl<'a> Value<'a> for &'a [u8] {
    const SHAPE: Shape = Shape::Bytes;

    fn parse(word: &'a [u8], _: Bounds) -> Result<Self, Refusal> {
        Ok(word)
    }
}

/// The words of a call after its key that have not been read yet.
pub struct Words<I> {
    words: I,
    bounds: Bounds,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Words<I> {
    /// Creates the reader of `words`, which keeps values within `bounds`.
    #[inline(always)]
    pub fn new(words: I, bounds: Bounds) -> Self {
        Self { words, bounds }
    }

    /// Takes the next word, if there is one.
    #[inline(always)]
    pub fn next(&mut self) -> Option<&'a [u8]> {
        self.words.next()
    }

    /// Takes the next word as a required argument. The caller has checked that there are enough words.
    // Inlining saves every command up to 40 instructions (`make instructions`).
    #[inline(always)]
    pub fn required<'v, T: Value<'v>>(&mut self) -> Result<T, Refusal>
    where
        'a: 'v,
    {
        T::parse(self.next().unwrap_or_default(), self.bounds)
    }

    /// Takes the next word as the value of option `name`.
    pub fn value<'v, T: Value<'v>>(&mut self, name: &'static str) -> Result<T, Refusal>
    where
        'a: 'v,
    {
        let value = T::parse(self.next().ok_or(Refusal::MissingValue { name })?, self.bounds);
        value.map_err(|refusal| refusal.of_option(name))
    }
}

/// Stores `value` as that of the option `name`. Refuses if the option was given before.
pub fn once<T>(name: &'static str, kept: &mut Option<T>, value: T) -> Result<(), Refusal> {
    match kept.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::RepeatedOption { name }),
    }
}
