//! Holder ids: one name for everything that a worker holds and waits for, which deadlock detection needs.
//!
//! On the nodes each acquisition has a name of its own. A *holder id* names the flow of control that makes several
//! acquisitions, such as a worker, a job, or a process that does one thing at a time. It is written at the end of the
//! note, as ` [holder=ID]`, so that nodes need no field for it and every client can set it.
//! [`Options::holder`](crate::Options::holder) sets it, `palisade deadlocks` reads it.

use std::str;

/// Begins the holder id at the end of a note.
const OPEN: &str = "[holder=";

/// Ends the holder id at the end of a note.
const CLOSE: &str = "]";

/// Maximum length of a holder id, in bytes.
pub const HOLDER_ID_BYTES_MAX: usize = 64;

/// Returns whether `id` is a valid holder id: 1 to [`HOLDER_ID_BYTES_MAX`] ASCII letters and digits and `.`, `_`, `:`,
/// `/`, `@`, `+`, `-`.
///
/// ```
/// assert!(palisade_client::direct::holder_id::is_one("web-1/4711/job:7"));
/// assert!(!palisade_client::direct::holder_id::is_one("job 7"));
/// ```
pub fn is_one(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte);
    (1..=HOLDER_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(allowed)
}

/// Returns a note with the holder id after its text.
///
/// ```
/// # use palisade_client::direct::holder_id;
/// let note = holder_id::noted(b"invoice run", "web-3/4711");
/// assert_eq!(note, b"invoice run [holder=web-3/4711]");
/// assert_eq!(holder_id::of(&note), (&b"invoice run"[..], Some("web-3/4711")));
/// ```
pub fn noted(text: &[u8], id: &str) -> Vec<u8> {
    let space: &[u8] = if text.is_empty() { b"" } else { b" " };
    [text, space, OPEN.as_bytes(), id.as_bytes(), CLOSE.as_bytes()].concat()
}

/// Splits a note into its text and its holder id, if it has one.
pub fn of(note: &[u8]) -> (&[u8], Option<&str>) {
    let told = || {
        let rest = note.strip_suffix(CLOSE.as_bytes())?;
        let at = rest.windows(OPEN.len()).rposition(|window| window == OPEN.as_bytes())?;
        let id = str::from_utf8(&rest[at + OPEN.len()..]).ok().filter(|id| is_one(id))?;
        let text = &rest[..at];
        match text.split_last() {
            None => Some((text, id)),
            Some((b' ', text)) => Some((text, id)),
            Some(_) => None,
        }
    };
    told().map_or((note, None), |(text, id)| (text, Some(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_and_nothing_else() {
        for text in ["", "text", "a [holder=b]", "ends with ]", "\u{1f512}"] {
            assert_eq!(of(&noted(text.as_bytes(), "web-1/4711")), (text.as_bytes(), Some("web-1/4711")));
        }
        for other in
            ["", "]", "[holder=]", "text[holder=a]", "text [holder=a b]", "text [holder=a] ", "[holder=a\u{e9}]"]
        {
            assert_eq!(of(other.as_bytes()), (other.as_bytes(), None), "{other}");
        }
        let longest = "a".repeat(HOLDER_ID_BYTES_MAX);
        assert!(is_one(&longest) && !is_one(&(longest + "a")) && !is_one(""));
    }
}
