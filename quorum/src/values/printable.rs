//! Prints texts that come from others, so that control sequences in them do not act on the terminal.

use std::fmt::{self, Write};

/// A text in which characters that control a terminal are escaped. Escapes that are already there stay as they are.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_obeyed(c) { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

/// Returns whether a character acts on the terminal instead of being shown: control characters, line and paragraph
/// separators, and format characters, which reorder what is shown or are invisible.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys() {
        for c in
            "\u{7f}\u{9b}\u{ad}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0001}"
                .chars()
        {
            let (text, shown) = (format!("a{c}b"), format!("a\\u{{{:x}}}b", c as u32));
            assert_eq!(Printable(&text).to_string(), shown);
            assert_eq!(Printable(&shown).to_string(), shown);
        }
        assert_eq!(Printable("a\r\n\u{1b}[31m").to_string(), "a\\r\\n\\u{1b}[31m");
        let readable = "b\u{fc}ro \u{65e5}\u{672c} \u{5e9}\u{5dc}\u{5d5}\u{5dd} e\u{301} \\n \u{1f525}";
        assert_eq!(Printable(readable).to_string(), readable);
    }
}
