//! Names of attempts to acquire a lock: the owners that the nodes know.

use std::io::Write;
use std::sync::Arc;

/// Length of the suffix after the caller's name: a separator, 8 hexadecimal digits that all attempts of one request
/// share, and 8 random ones.
pub const SUFFIX_BYTES: usize = 17;
const SIGN: u8 = b'#';
const REQUEST_BYTES: usize = 8;

/// Returns the name of a new attempt of this request; it begins with `name` if the caller chose one. Names never
/// repeat, so that no late message of one attempt can affect another.
pub fn attempt_of(name: Option<&[u8]>, request: u32) -> Arc<[u8]> {
    let Some(name) = name else { return Arc::from(rand::random::<[u8; 20]>()) };
    let mut suffix = [0; SUFFIX_BYTES];
    // There is room for all of it, so this cannot fail.
    let _ = write!(&mut suffix[..], "{}{request:08x}{:08x}", char::from(SIGN), rand::random::<u32>());
    name.iter().chain(&suffix).copied().collect()
}

/// Returns whether both are attempts of one request.
pub fn is_same_request(one: &[u8], other: &[u8]) -> bool {
    let request = |attempt: &[u8]| attempt.get(..name_of(attempt).len() + 1 + REQUEST_BYTES).map(<[u8]>::to_vec);
    request(one).is_some_and(|of_one| Some(of_one) == request(other))
}

/// Returns the name that the caller chose, or the whole attempt name if the caller chose none.
pub fn name_of(attempt: &[u8]) -> &[u8] {
    match attempt.split_last_chunk::<SUFFIX_BYTES>() {
        Some((name, [SIGN, digits @ ..])) if !name.is_empty() && digits.iter().all(u8::is_ascii_hexdigit) => name,
        _ => attempt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_tells_the_name_and_is_no_other() {
        for name in [&b"me"[..], b"#", b"\0\xff", b"me#0123456789abcdef"] {
            let (one, other) = (attempt_of(Some(name), 7), attempt_of(Some(name), 7));
            assert_eq!((name_of(&one), one.len()), (name, name.len() + SUFFIX_BYTES));
            assert_ne!(one, other);
            assert!(is_same_request(&one, &other) && !is_same_request(&one, &attempt_of(Some(name), 8)));
        }
        for other in [&b"me"[..], b"", b"#0123456789abcdef", b"me#0123456789abcdeg", b"me-0123456789abcdef"] {
            assert_eq!(name_of(other), other);
        }
        assert_eq!(attempt_of(None, 7).len(), 20);
        assert!(!is_same_request(&attempt_of(Some(b"me"), 7), &attempt_of(Some(b"you"), 7)), "of another owner");
    }
}
