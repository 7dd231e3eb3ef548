//! A command's arguments, each declared once: COMMAND DOCS, HELP, the parser and its errors all come from the declaration.

use std::ffi::CStr;

use palisade_core::Refusal;

use super::values::Value;
use crate::ffi::Call;

/// Declares what follows the key of a command, or its name if it has no key, and how that is read.
///
/// ```text
/// arguments! {
///     /// What is asked.
///     struct Asked<'a> {
///         owner: Owner<'a>,               // an argument that must be there
///         [WAIT ms] wait: Patience,       // an option with a value: becomes Option<Patience>
///         [RETRY] retry,                  // an option without one: becomes bool
///         [LEVEL n as level] level: Level,
///     }
/// }
/// ```
///
/// An option is written as errors show it; `as` gives its value another name in COMMAND DOCS. Options come in any order and
/// case, each at most once. In an `enum` each variant is an option, and only one of them can be given:
/// `enum Asked { [LIFT] Lift, [ARM ms] Arm: GuardMs, }`.
///
/// Both get `ARGUMENTS`, what is told of them, and `read`, which makes one of a call.
macro_rules! arguments {
    (
        $(#[$about:meta])*
        struct $name:ident $(<$life:lifetime>)? {
            $($field:ident: $type:ty,)*
            $([$word:ident $($shown:ident $(as $documented:ident)?)?] $option:ident $(: $value:ty)?,)*
        }
    ) => {
        $(#[$about])*
        struct $name $(<$life>)? {
            $($field: $type,)*
            $($option: $crate::commands::declaration::arguments!(@kept $($value)?),)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            const ARGUMENTS: &'static [$crate::ffi::Argument] = &[
                $($crate::ffi::Argument {
                    name: $crate::commands::declaration::c_str(concat!(stringify!($field), "\0").as_bytes()),
                    token: None,
                    shape: <$type as $crate::commands::values::Value>::SHAPE,
                },)*
                $($crate::commands::declaration::arguments!(
                    @argument $option ($($value)?) $word $($shown $(as $documented)?)?
                ),)*
            ];

            #[inline(always)]
            fn read(call: &$($life)? $crate::ffi::Call<$($life)?>) -> Result<Self, palisade_core::Refusal> {
                #[allow(unused_mut)]
                let mut words = $crate::commands::declaration::Words::of(call);
                $(let $field = words.required::<$type>()?;)*
                $(let mut $option = None;)*
                $crate::commands::declaration::arguments!(@options words, "and",
                    $($option ($($value)?) [$word $($shown)?])*
                );
                Ok(Self {
                    $($field,)*
                    $($option: $crate::commands::declaration::arguments!(@keep $option $($value)?),)*
                })
            }
        }
    };

    (
        $(#[$about:meta])*
        enum $name:ident {
            $([$word:ident $($shown:ident $(as $documented:ident)?)?] $option:ident $(: $value:ty)?,)*
        }
    ) => {
        $(#[$about])*
        enum $name {
            $($option $(($value))?,)*
        }

        impl $name {
            const ARGUMENTS: &'static [$crate::ffi::Argument] = &[
                $($crate::commands::declaration::arguments!(
                    @argument $option ($($value)?) $word $($shown $(as $documented)?)?
                ),)*
            ];

            fn read(call: &$crate::ffi::Call<'_>) -> Result<Option<Self>, palisade_core::Refusal> {
                const UNKNOWN: palisade_core::Refusal = palisade_core::Refusal::UnknownOption {
                    known: $crate::commands::declaration::listed!("or", $([$word $($shown)?])*),
                };
                let mut words = $crate::commands::declaration::Words::of(call);
                let Some(word) = words.take() else { return Ok(None) };
                let asked = $(if word.eq_ignore_ascii_case(stringify!($word).as_bytes()) {
                    Self::$option $((words.value::<$value>(stringify!($word))?))?
                } else)* {
                    return Err(UNKNOWN);
                };
                if words.take().is_some() { Err(UNKNOWN) } else { Ok(Some(asked)) }
            }
        }
    };

    // The type of an option's field, and how it gets its value.
    (@kept) => { bool };
    (@kept $value:ty) => { Option<$value> };
    (@keep $option:ident) => { $option.is_some() };
    (@keep $option:ident $value:ty) => { $option };

    // What is told of an option: the name of its value, or its own if it has none.
    (@argument $option:ident () $word:ident) => {
        $crate::ffi::Argument {
            name: {
                const NAME: &[u8] = &$crate::commands::declaration::lower_case::<{ stringify!($word).len() + 1 }>(
                    concat!(stringify!($word), "\0"),
                );
                $crate::commands::declaration::c_str(NAME)
            },
            token: Some($crate::commands::declaration::c_str(concat!(stringify!($word), "\0").as_bytes())),
            shape: $crate::ffi::Shape::Token,
        }
    };
    (@argument $option:ident ($value:ty) $word:ident $shown:ident as $documented:ident) => {
        $crate::commands::declaration::arguments!(@argument $option ($value) $word $documented)
    };
    (@argument $option:ident ($value:ty) $word:ident $shown:ident) => {
        $crate::ffi::Argument {
            name: $crate::commands::declaration::c_str(concat!(stringify!($shown), "\0").as_bytes()),
            token: Some($crate::commands::declaration::c_str(concat!(stringify!($word), "\0").as_bytes())),
            shape: <$value as $crate::commands::values::Value>::SHAPE,
        }
    };

    // Reads options until there is no more; the server counts the arguments of a command without any.
    (@options $words:ident, $last:literal,) => {};
    (@options $words:ident, $last:literal, $($option:ident ($($value:ty)?) [$word:ident $($shown:ident)?])+) => {
        while let Some(word) = $words.take() {
            $(if word.eq_ignore_ascii_case(stringify!($word).as_bytes()) {
                let value = $crate::commands::declaration::arguments!(@value $words, $word, $($value)?);
                $crate::commands::declaration::once(stringify!($word), &mut $option, value)?;
            } else)+ {
                return Err(palisade_core::Refusal::UnknownOption {
                    known: $crate::commands::declaration::listed!($last, $([$word $($shown)?])+),
                });
            }
        }
    };
    (@value $words:ident, $word:ident,) => { () };
    (@value $words:ident, $word:ident, $value:ty) => { $words.value::<$value>(stringify!($word))? };
}

/// Options as an error lists them: `WAIT ms, FENCE token and RETRY`.
macro_rules! listed {
    (@one $word:ident) => { stringify!($word) };
    (@one $word:ident $shown:ident) => { concat!(stringify!($word), " ", stringify!($shown)) };
    ($last:literal, [$($one:ident)+]) => { $crate::commands::declaration::listed!(@one $($one)+) };
    ($last:literal, [$($one:ident)+] [$($other:ident)+]) => {
        concat!(
            $crate::commands::declaration::listed!(@one $($one)+),
            " ",
            $last,
            " ",
            $crate::commands::declaration::listed!(@one $($other)+)
        )
    };
    ($last:literal, [$($one:ident)+] $([$($other:ident)+])+) => {
        concat!(
            $crate::commands::declaration::listed!(@one $($one)+),
            ", ",
            $crate::commands::declaration::listed!($last, $([$($other)+])+)
        )
    };
}

pub(super) use {arguments, listed};

/// The words of a call after its key, one after the other.
pub struct Words<'a> {
    call: &'a Call<'a>,
    next: usize,
}

impl<'a> Words<'a> {
    /// Those of `call`.
    pub fn of(call: &'a Call<'a>) -> Self {
        Self { call, next: 0 }
    }

    /// The next one.
    #[inline(always)]
    pub fn take(&mut self) -> Option<&'a [u8]> {
        let word = self.call.argument(self.next);
        self.next += 1;
        word
    }

    /// The next one as an argument that must be there: the server has counted them.
    // Inlined it saves every command up to 40 instructions (`make instructions`).
    #[inline(always)]
    pub fn required<T: Value<'a>>(&mut self) -> Result<T, Refusal> {
        T::parse(self.take().unwrap_or_default())
    }

    /// The next one as the value of option `name`.
    pub fn value<T: Value<'a>>(&mut self, name: &'static str) -> Result<T, Refusal> {
        let value = T::parse(self.take().ok_or(Refusal::MissingValue { name })?);
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

/// A constant text, which ends with a NUL byte, as C has it.
pub const fn c_str(text: &'static [u8]) -> &'static CStr {
    match CStr::from_bytes_with_nul(text) {
        Ok(text) => text,
        Err(_) => panic!("the text has a NUL byte at its end, and only there"),
    }
}

/// A constant text, whose length is `LEN`, in lower case.
pub const fn lower_case<const LEN: usize>(text: &str) -> [u8; LEN] {
    let (mut lower, mut n) = ([0; LEN], 0);
    while n < LEN {
        lower[n] = text.as_bytes()[n].to_ascii_lowercase();
        n += 1;
    }
    lower
}

#[cfg(test)]
mod tests {
    #[test]
    fn options_are_listed_as_they_are_typed() {
        assert_eq!(listed!("and", [TOKEN t]), "TOKEN t");
        assert_eq!(listed!("or", [LIFT] [ARM ms]), "LIFT or ARM ms");
        assert_eq!(
            listed!("and", [WAIT ms] [FENCE token] [RETRY] [NOTE text]),
            "WAIT ms, FENCE token, RETRY and NOTE text"
        );
    }
}
