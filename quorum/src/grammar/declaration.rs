//! The macro that declares a command.

/// Declares a command: its description, and the words after its key, or after its name if it has no key.
///
/// ```text
/// command! {
///     name: "LOCK.REENTER",
///     summary: "Adds one hold, ….",
///     flags: "write fast",
///     key: Some(KeyAccess::Update),
///     /// LOCK.REENTER: adds one hold.
///     pub struct Reenter<'a> {
///         /// The holder.
///         owner: Owner<'a>,               // a required argument
///         [LEVEL n as level]
///         /// The least number of holds afterwards.
///         level: Level,                   // an option with a value: becomes Option<Level>
///         [ADOPT]
///         /// Another process continues.
///         adopts,                         // an option without one: becomes bool
///     }
/// }
/// ```
///
/// An option is written as errors show it; `as` gives an argument another name in COMMAND DOCS. Options come in any
/// order and case, each at most once.
///
/// The type gets `SPEC`, the description of the command, and `read`, which parses words into a request.
macro_rules! command {
    (
        name: $command:literal,
        summary: $summary:literal,
        flags: $flags:literal,
        key: $key:expr,
        $(#[$about:meta])*
        $vis:vis struct $name:ident $(<$life:lifetime>)? {
            $($(#[$field_about:meta])* $field:ident $(as $told:ident)?: $type:ty,)*
            $([$word:ident $($shown:ident $(as $documented:ident)?)?]
              $(#[$option_about:meta])* $option:ident $(: $value:ty)?,)*
        }
    ) => {
        $(#[$about])*
        $vis struct $name $(<$life>)? {
            $($(#[$field_about])* $vis $field: $type,)*
            $($(#[$option_about])* $vis $option: $crate::grammar::declaration::command!(@kept $($value)?),)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// The description of this command.
            $vis const SPEC: $crate::grammar::Spec = $crate::grammar::Spec {
                name: $command,
                summary: $summary,
                flags: $flags,
                key: $key,
                arguments: &[
                    $($crate::grammar::Argument {
                        name: $crate::grammar::declaration::command!(@name $field $($told)?),
                        option: None,
                        shape: <$type as $crate::grammar::words::Value>::SHAPE,
                    },)*
                    $($crate::grammar::declaration::command!(
                        @argument ($($value)?) $word $($shown $(as $documented)?)?
                    ),)*
                ],
            };

            /// Parses the words after the key into a request, or into the refusal for the client.
            #[allow(unused_mut, unused_variables)]
            #[inline(always)]
            $vis fn read<'w $(: $life)?>(
                words: impl Iterator<Item = &'w [u8]>,
                bounds: $crate::grammar::Bounds,
            ) -> Result<Self, $crate::refusal::Refusal> {
                let mut words = $crate::grammar::words::Words::new(words, bounds);
                $(let $field = words.required::<$type>()?;)*
                $(let mut $option = None;)*
                $crate::grammar::declaration::command!(@options words, $($option ($($value)?) [$word $($shown)?])*);
                Ok(Self {
                    $($field,)*
                    $($option: $crate::grammar::declaration::command!(@keep $option $($value)?),)*
                })
            }
        }
    };

    // The arms below give the type of an option's field, and the expression for its value.
    (@kept) => { bool };
    (@kept $value:ty) => { Option<$value> };
    (@keep $option:ident) => { $option.is_some() };
    (@keep $option:ident $value:ty) => { $option };

    // The arms below describe an argument.
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $told:ident) => { stringify!($told) };
    (@argument () $word:ident) => {
        $crate::grammar::Argument {
            name: stringify!($word),
            option: Some(stringify!($word)),
            shape: $crate::grammar::Shape::Word,
        }
    };
    (@argument ($value:ty) $word:ident $shown:ident $(as $documented:ident)?) => {
        $crate::grammar::Argument {
            name: $crate::grammar::declaration::command!(@name $shown $($documented)?),
            option: Some(stringify!($word)),
            shape: <$value as $crate::grammar::words::Value>::SHAPE,
        }
    };

    // The arms below read options until no word is left. A command without options has no words left, because their
    // number was checked before.
    (@options $words:ident,) => {};
    (@options $words:ident, $($option:ident ($($value:ty)?) [$word:ident $($shown:ident)?])+) => {
        while let Some(word) = $words.next() {
            $(if word.eq_ignore_ascii_case(stringify!($word).as_bytes()) {
                let value = $crate::grammar::declaration::command!(@value $words, $word, $($value)?);
                $crate::grammar::words::once(stringify!($word), &mut $option, value)?;
            } else)+ {
                return Err($crate::refusal::Refusal::UnknownOption {
                    known: $crate::grammar::declaration::listed!($([$word $($shown)?])+),
                });
            }
        }
    };
    (@value $words:ident, $word:ident,) => { () };
    (@value $words:ident, $word:ident, $value:ty) => { $words.value::<$value>(stringify!($word))? };
}

/// Lists options as errors show them: `WAIT ms, FENCE token and RETRY`.
macro_rules! listed {
    (@one $word:ident) => { stringify!($word) };
    (@one $word:ident $shown:ident) => { concat!(stringify!($word), " ", stringify!($shown)) };
    ([$($one:ident)+]) => { $crate::grammar::declaration::listed!(@one $($one)+) };
    ([$($one:ident)+] [$($other:ident)+]) => {
        concat!(
            $crate::grammar::declaration::listed!(@one $($one)+),
            " and ",
            $crate::grammar::declaration::listed!(@one $($other)+)
        )
    };
    ([$($one:ident)+] $([$($other:ident)+])+) => {
        concat!(
            $crate::grammar::declaration::listed!(@one $($one)+),
            ", ",
            $crate::grammar::declaration::listed!($([$($other)+])+)
        )
    };
}

pub(crate) use {command, listed};

#[cfg(test)]
mod tests {
    #[test]
    fn options_are_listed_as_they_are_typed() {
        assert_eq!(listed!([TOKEN t]), "TOKEN t");
        assert_eq!(listed!([COUNT n] [RESET]), "COUNT n and RESET");
        let listed = listed!([WAIT ms] [FENCE token] [RETRY] [NOTE text]);
        assert_eq!(listed, "WAIT ms, FENCE token, RETRY and NOTE text");
    }
}
