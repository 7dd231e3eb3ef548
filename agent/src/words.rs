//! A command's arguments, each declared once: what is told of them, how they are read, and what is refused come from there.

use bytes::Bytes;
use palisade_core::Refusal;

use crate::values::{Bounds, Value};

/// Declares what follows the key of a command, and how that is read: as a node declares it.
///
/// ```text
/// arguments! {
///     struct Asked {
///         owner: Name,                    // an argument that must be there
///         [WAIT ms] wait: Patience,       // an option with a value: becomes Option<Patience>
///         [RETRY] retry,                  // an option without one: becomes bool
///         [LEVEL n as level] level: Level,
///     }
/// }
/// ```
///
/// An option is written as errors show it; `as` gives its value another name elsewhere. Options come in any order and case, each at
/// most once. It gets `ARGUMENTS`, what is told of them, and `read`, which makes one of words.
macro_rules! arguments {
    (
        $(#[$about:meta])*
        struct $name:ident {
            $($field:ident: $type:ty,)*
            $([$word:ident $($shown:ident $(as $documented:ident)?)?] $option:ident $(: $value:ty)?,)*
        }
    ) => {
        $(#[$about])*
        struct $name {
            $($field: $type,)*
            $($option: $crate::words::arguments!(@kept $($value)?),)*
        }

        impl $name {
            const ARGUMENTS: &'static [$crate::spec::Argument] = &[
                $($crate::spec::Argument {
                    name: stringify!($field),
                    option: None,
                    shape: <$type as $crate::values::Value>::SHAPE,
                },)*
                $($crate::words::arguments!(@argument ($($value)?) $word $($shown $(as $documented)?)?),)*
            ];

            #[allow(unused_mut)]
            fn read(mut words: $crate::words::Words) -> Result<Self, palisade_core::Refusal> {
                $(let $field = words.required::<$type>()?;)*
                $(let mut $option = None;)*
                $crate::words::arguments!(@options words, $($option ($($value)?) [$word $($shown)?])*);
                Ok(Self {
                    $($field,)*
                    $($option: $crate::words::arguments!(@keep $option $($value)?),)*
                })
            }
        }
    };

    // The type of an option's field, and how it gets its value.
    (@kept) => { bool };
    (@kept $value:ty) => { Option<$value> };
    (@keep $option:ident) => { $option.is_some() };
    (@keep $option:ident $value:ty) => { $option };

    // What is told of an option.
    (@argument () $word:ident) => {
        $crate::spec::Argument {
            name: stringify!($word),
            option: Some(stringify!($word)),
            shape: $crate::spec::Shape::Word,
        }
    };
    (@argument ($value:ty) $word:ident $shown:ident as $documented:ident) => {
        $crate::words::arguments!(@argument ($value) $word $documented)
    };
    (@argument ($value:ty) $word:ident $shown:ident) => {
        $crate::spec::Argument {
            name: stringify!($shown),
            option: Some(stringify!($word)),
            shape: <$value as $crate::values::Value>::SHAPE,
        }
    };

    // Reads options until there is no more; of a command without any the words were counted.
    (@options $words:ident,) => {};
    (@options $words:ident, $($option:ident ($($value:ty)?) [$word:ident $($shown:ident)?])+) => {
        while let Some(word) = $words.next() {
            $(if word.eq_ignore_ascii_case(stringify!($word).as_bytes()) {
                let value = $crate::words::arguments!(@value $words, $word, $($value)?);
                $crate::words::once(stringify!($word), &mut $option, value)?;
            } else)+ {
                return Err(palisade_core::Refusal::UnknownOption {
                    known: $crate::words::listed!($([$word $($shown)?])+),
                });
            }
        }
    };
    (@value $words:ident, $word:ident,) => { () };
    (@value $words:ident, $word:ident, $value:ty) => { $words.value::<$value>(stringify!($word))? };
}

/// Options as an error lists them: `WAIT ms, RETRY and NOTE text`.
macro_rules! listed {
    (@one $word:ident) => { stringify!($word) };
    (@one $word:ident $shown:ident) => { concat!(stringify!($word), " ", stringify!($shown)) };
    ([$($one:ident)+]) => { $crate::words::listed!(@one $($one)+) };
    ([$($one:ident)+] [$($other:ident)+]) => {
        concat!($crate::words::listed!(@one $($one)+), " and ", $crate::words::listed!(@one $($other)+))
    };
    ([$($one:ident)+] $([$($other:ident)+])+) => {
        concat!($crate::words::listed!(@one $($one)+), ", ", $crate::words::listed!($([$($other)+])+))
    };
}

pub(crate) use {arguments, listed};

/// The words of a request after the key, one after the other.
#[derive(Clone, Debug)]
pub struct Words {
    words: std::vec::IntoIter<Bytes>,
    bounds: Bounds,
}

impl Words {
    /// These, whose values have these bounds.
    pub fn new(words: Vec<Bytes>, bounds: Bounds) -> Self {
        Self { words: words.into_iter(), bounds }
    }

    /// The same within these bounds.
    pub fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// The next one.
    pub fn next(&mut self) -> Option<Bytes> {
        self.words.next()
    }

    /// The next one as an argument that must be there: they were counted.
    pub fn required<T: Value>(&mut self) -> Result<T, Refusal> {
        T::parse(self.next().unwrap_or_default(), &self.bounds)
    }

    /// The next one as the value of option `name`.
    pub fn value<T: Value>(&mut self, name: &'static str) -> Result<T, Refusal> {
        let value = T::parse(self.next().ok_or(Refusal::MissingValue { name })?, &self.bounds);
        value.map_err(|refusal| refusal.of_option(name))
    }

    /// Whether one of those that are left is this one.
    pub fn have(&self, word: &str) -> bool {
        self.words.as_slice().iter().any(|one| one.eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// Keeps the value of option `name`, which may be given once.
pub fn once<T>(name: &'static str, kept: &mut Option<T>, value: T) -> Result<(), Refusal> {
    match kept.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::RepeatedOption { name }),
    }
}
