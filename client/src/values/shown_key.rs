//! Keys in messages for people.

use std::fmt;

use palisade_quorum::Printable;

/// A key as people read it: as text if it is valid text, without characters that control a terminal.
#[derive(Clone, Copy, Debug)]
pub struct ShownKey<'a>(pub &'a [u8]);

impl fmt::Display for ShownKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Printable(&String::from_utf8_lossy(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_on_one_line() {
        let shown = |key: &[u8]| ShownKey(key).to_string();
        assert_eq!(shown(b"orders:42"), "orders:42");
        assert_eq!(shown("caf\u{e9} \"x\"".as_bytes()), "caf\u{e9} \"x\"");
        assert_eq!(shown(b"a\r\nb\x1b[2J\x00"), "a\\r\\nb\\u{1b}[2J\\u{0}");
        assert_eq!(shown(b"\xff"), "\u{fffd}");
    }
}
