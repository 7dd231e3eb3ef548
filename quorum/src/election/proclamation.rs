//! The text that a leader writes into the note of its grants.

use crate::values::limits::NOTE_BYTES_MAX;
use crate::values::token::Token;

/// The longest value that a leader can proclaim, in bytes: what a note has room for beside the term.
pub const VALUE_BYTES_MAX: usize = NOTE_BYTES_MAX - PREFIX.len() - TERM_DIGITS_MAX - 1;

const PREFIX: &str = "term ";
const TERM_DIGITS_MAX: usize = 16;

/// A term and the value of its leader. As a note it is the text `term 1795234601882918 10.0.0.1`, so that people can
/// read it too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proclamation {
    /// The term: the token with which the leader won.
    pub term: Token,
    /// The value that the leader proclaims: any bytes, at most [`VALUE_BYTES_MAX`].
    pub value: Vec<u8>,
}

impl Proclamation {
    /// Formats the proclamation as a note.
    pub fn note(&self) -> Vec<u8> {
        let mut note = format!("{PREFIX}{} ", self.term.get()).into_bytes();
        note.extend_from_slice(&self.value);
        note
    }

    /// Reads a proclamation from a note; `None` if the note is another text.
    pub fn read(note: &[u8]) -> Option<Self> {
        let rest = note.strip_prefix(PREFIX.as_bytes())?;
        let end = rest.iter().position(|&byte| byte == b' ')?;
        let (digits, value) = (&rest[..end], &rest[end + 1..]);
        let is_plain =
            digits.len() <= TERM_DIGITS_MAX && digits.iter().all(u8::is_ascii_digit) && digits.first() != Some(&b'0');
        let term = std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()?;
        Some(Self { term: Token::new(term)?, value: value.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::token;
    use crate::values::limits::TOKEN_LIMIT;

    #[test]
    fn what_is_written_is_read_and_fits() {
        for (term, value) in [(1, &b""[..]), (7, b" two  words "), (TOKEN_LIMIT - 1, &[255; VALUE_BYTES_MAX])] {
            let proclamation = Proclamation { term: token(term), value: value.to_vec() };
            assert!(proclamation.note().len() <= NOTE_BYTES_MAX);
            assert_eq!(Proclamation::read(&proclamation.note()), Some(proclamation));
        }
        let largest = Proclamation { term: token(TOKEN_LIMIT - 1), value: vec![0; VALUE_BYTES_MAX] };
        assert_eq!(largest.note().len(), NOTE_BYTES_MAX);
    }

    #[test]
    fn other_notes_are_no_records() {
        for note in ["", "term", "term 7", "term  x", "term 07 x", "term +7 x", "term 0 x", "Term 7 x", "term 7x y"] {
            assert_eq!(Proclamation::read(note.as_bytes()), None, "{note}");
        }
        for term in ["9007199254740992", "99999999999999999"] {
            assert_eq!(Proclamation::read(format!("term {term} x").as_bytes()), None, "{term}");
        }
    }
}
