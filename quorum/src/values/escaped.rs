//! Escapes bytes as text that is safe in a configuration file, in INFO and in the labels of a monitoring system.

/// Returns whether a byte stands for itself: a visible ASCII character, except those that delimit or escape a text.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"%,=\"\\".contains(&byte)
}

/// Escapes `bytes` as visible ASCII. Each invisible or non-ASCII byte, and each of `%`, `,`, `=`, `"` and `\`, becomes
/// `%` and two hexadecimal digits.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if is_plain(byte) {
            text.push(byte.into());
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Returns the bytes that `text` stands for. A byte that should have been escaped but was not stands for itself. `None`
/// if a `%` is not followed by two hexadecimal digits.
pub fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first == b'%' {
            let (&[high, low], behind) = rest.split_first_chunk()?;
            bytes.push((digit(high)? * 16 + digit(low)?) as u8);
            rest = behind;
        } else {
            bytes.push(first);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_sets_texts_apart_is_escaped() {
        for (bytes, text) in [
            (&b"orders:{42}"[..], "orders:{42}"),
            (b"a b\0\xFF\xC3\xA9", "a%20b%00%FF%C3%A9"),
            (b"50%,=\"\\\r\n", "50%25%2C%3D%22%5C%0D%0A"),
        ] {
            assert_eq!((escape(bytes), unescape(text.as_bytes())), (text.to_owned(), Some(bytes.to_vec())));
        }
        assert_eq!(unescape("é%3a".as_bytes()), Some("é:".into()), "what need not be escaped need not be");
        for text in ["%", "a%2", "%zz", "%+1", "%%", "% 1"] {
            assert_eq!(unescape(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let text = escape(&bytes);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && !b",=\"\\".contains(&byte)), "{}", text);
            prop_assert_eq!(unescape(text.as_bytes()), Some(bytes));
        }
    }
}
