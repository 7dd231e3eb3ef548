//! The description of a command, for COMMAND, LOCK.HELP, and errors about the number of words.

/// The description of a command.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The command's name, in capital letters.
    pub name: &'static str,
    /// A summary in one line.
    pub summary: &'static str,
    /// The server's flags for the command, separated by spaces.
    pub flags: &'static str,
    /// The command's use of its key, which is its first argument; `None` if the command has no key.
    pub key: Option<KeyAccess>,
    /// The arguments after the key.
    pub arguments: &'static [Argument],
}

/// A command's use of its key, for COMMAND DOCS and ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAccess {
    /// The command only reads the key.
    Read,
    /// The command creates or changes the key.
    Insert,
    /// The command changes the key, and never creates it.
    Update,
    /// The command changes or deletes the key.
    Delete,
}

/// An argument of a command, for its parser and its description.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// The argument's name; for a word without a value, the word itself.
    pub name: &'static str,
    /// For an optional argument with a value, the word before the value.
    pub option: Option<&'static str>,
    /// The kind of value that the argument takes.
    pub shape: Shape,
}

/// The kind of value that an argument has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Arbitrary bytes.
    Bytes,
    /// A decimal integer.
    Integer,
    /// No value: the word alone.
    Word,
    /// A command with its arguments: all words that are left.
    Command,
}

impl Argument {
    /// Returns the argument's name as COMMAND DOCS shows it.
    pub fn documented(&self) -> String {
        self.name.to_lowercase()
    }
}

impl Spec {
    /// Returns the least number of words of a call, the command's name included.
    pub fn words_min(&self) -> usize {
        let required = self.arguments.iter().filter(|argument| argument.option.is_none());
        1 + usize::from(self.key.is_some()) + required.count()
    }

    /// Returns whether more than [`Spec::words_min`] words are allowed.
    pub fn has_options(&self) -> bool {
        self.arguments.iter().any(|argument| argument.option.is_some())
    }

    /// Returns the arity as servers write it: the number of words, negative if more may follow.
    pub fn arity(&self) -> i32 {
        let words = self.words_min() as i32;
        if self.has_options() { -words } else { words }
    }

    /// Returns the command's syntax as one line, with the arguments `shown`.
    pub fn syntax<'a>(&self, shown: impl IntoIterator<Item = &'a Argument>) -> String {
        let mut line = self.name.to_owned();
        if self.key.is_some() {
            line.push_str(" key");
        }
        for Argument { name, option, shape } in shown {
            match (option, shape) {
                (None, _) => line.extend([" ", name]),
                (Some(word), Shape::Word) => line.extend([" [", word, "]"]),
                (Some(word), Shape::Command) => line.extend([" [", word, " ", name, " ...]"]),
                (Some(word), _) => line.extend([" [", word, " ", name, "]"]),
            }
        }
        line
    }
}
