//! Integers as clients and operators write them.

/// Parses a decimal integer as Redis does: digits only, no leading zero, 64 bits.
#[inline]
pub fn parse_integer(bytes: &[u8]) -> Option<u64> {
    let well_formed = match bytes {
        [b'0', _, ..] => false,
        _ => !bytes.is_empty(),
    };
    bytes
        .iter()
        .try_fold(0_u64, |value, digit| {
            let digit = char::from(*digit).to_digit(10)?;
            value.checked_mul(10)?.checked_add(digit.into())
        })
        .filter(|_| well_formed)
}

#[cfg(test)]
mod tests {
    use super::parse_integer;

    #[test]
    fn integers_as_redis_takes_them() {
        for (text, value) in [("0", Some(0)), ("7", Some(7)), ("18446744073709551615", Some(u64::MAX))] {
            assert_eq!(parse_integer(text.as_bytes()), value);
        }
        for text in ["", "-1", "+1", "01", "00", " 1", "1 ", "1.0", "1e3", "0x1", "18446744073709551616", "\u{0661}"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_integer(b"1\0"), None);
        assert_eq!(parse_integer(b"\xFF"), None);
    }
}
