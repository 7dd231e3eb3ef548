//! What is told of a command: by COMMAND, by LOCK.HELP, and to those who give it too few arguments.

/// A command.
#[derive(Debug)]
pub struct Spec {
    /// Its name, as it is shown.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Whether its first argument is a key.
    pub has_key: bool,
    /// Whether it changes something.
    pub writes: bool,
    /// Whether words may follow that it reads by itself.
    pub is_open: bool,
    /// What comes after the key.
    pub arguments: &'static [Argument],
}

/// An argument.
#[derive(Debug)]
pub struct Argument {
    /// What it is called.
    pub name: &'static str,
    /// The word before it, of an option.
    pub option: Option<&'static str>,
    /// Of which kind it is.
    pub shape: Shape,
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Any bytes.
    Bytes,
    /// A decimal integer.
    Integer,
    /// No value: the word alone.
    Word,
}

impl Spec {
    /// How many words it needs, its name counted.
    pub fn words_min(&self) -> usize {
        1 + usize::from(self.has_key) + self.arguments.iter().filter(|argument| argument.option.is_none()).count()
    }

    /// Whether more may follow.
    pub fn has_options(&self) -> bool {
        self.is_open || self.arguments.iter().any(|argument| argument.option.is_some())
    }

    /// Whether it takes so many words, its name counted.
    pub fn takes(&self, words: usize) -> bool {
        words >= self.words_min() && (self.has_options() || words == self.words_min())
    }

    /// The same number as servers tell it: negative if more may follow.
    pub fn arity(&self) -> i64 {
        let words = self.words_min() as i64;
        if self.has_options() { -words } else { words }
    }

    /// How it is typed.
    pub fn syntax(&self) -> String {
        let mut syntax = self.name.to_owned();
        if self.has_key {
            syntax.push_str(" key");
        }
        for Argument { name, option, shape } in self.arguments {
            match (option, shape) {
                (None, _) => syntax.extend([" ", name]),
                (Some(word), Shape::Word) => syntax.extend([" [", word, "]"]),
                (Some(word), _) => syntax.extend([" [", word, " ", name, "]"]),
            }
        }
        syntax
    }
}
