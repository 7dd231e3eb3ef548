//! The description of a command, for COMMAND, LOCK.HELP, and clients that send too few words or too many.

/// The description of a command.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The name.
    pub name: &'static str,
    /// A summary, in one line.
    pub summary: &'static str,
    /// A server's flags for it, with spaces between them.
    pub flags: &'static str,
    /// The use of its key, the first argument; `None`: there is no key.
    pub key: Option<KeyAccess>,
    /// The arguments after the key.
    pub arguments: &'static [Argument],
}

/// The use that a command makes of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAccess {
    /// Reads it.
    Read,
    /// Creates or changes it.
    Insert,
    /// Changes it.
    Update,
    /// Changes or deletes it.
    Delete,
}

/// One argument.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// The name; of a word without a value, the word.
    pub name: &'static str,
    /// The word before the value, of an argument that may be left out.
    pub option: Option<&'static str>,
    /// The kind of value.
    pub shape: Shape,
}

/// The kind of value that an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Any bytes.
    Bytes,
    /// A decimal integer.
    Integer,
    /// No value: the word alone.
    Word,
}

impl Argument {
    /// Returns the name as COMMAND DOCS has it.
    pub fn documented(&self) -> String {
        self.name.to_lowercase()
    }
}

impl Spec {
    /// Returns how many words there are at least, the command's name included.
    pub fn words_min(&self) -> usize {
        let required = self.arguments.iter().filter(|argument| argument.option.is_none());
        1 + usize::from(self.key.is_some()) + required.count()
    }

    /// Returns whether more words may follow.
    pub fn has_options(&self) -> bool {
        self.arguments.iter().any(|argument| argument.option.is_some())
    }

    /// Returns the number of words as a server tells it: negative if more may follow.
    pub fn arity(&self) -> i32 {
        let words = self.words_min() as i32;
        if self.has_options() { -words } else { words }
    }

    /// Returns how the command is typed, with those of its arguments that are `shown`.
    pub fn syntax<'a>(&self, shown: impl IntoIterator<Item = &'a Argument>) -> String {
        let mut line = self.name.to_owned();
        if self.key.is_some() {
            line.push_str(" key");
        }
        for Argument { name, option, shape } in shown {
            match (option, shape) {
                (None, _) => line.extend([" ", name]),
                (Some(word), Shape::Word) => line.extend([" [", word, "]"]),
                (Some(word), _) => line.extend([" [", word, " ", name, "]"]),
            }
        }
        line
    }
}
