//! Parses replies in a buffer: their length and value.

use redis::Value;

/// End of a line.
const END: &[u8] = b"\r\n";

/// An error: the bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Returns the first reply in `bytes` and its length; `None` if it is incomplete.
///
/// # Errors
/// `Malformed`: no Redis server writes these bytes.
pub fn first(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
    let Some(length) = length(bytes)? else { return Ok(None) };
    Ok(Some((value(&bytes[..length])?, length)))
}

/// Parses one complete reply. Short replies, which lock commands use most, are parsed here, without the allocations of
/// the library's parser.
fn value(reply: &[u8]) -> Result<Value, Malformed> {
    match reply {
        [b':', ..] => number(&reply[1..reply.len() - END.len()]).map(Value::Int),
        b"_\r\n" | b"$-1\r\n" => Ok(Value::Nil),
        b"+OK\r\n" => Ok(Value::Okay),
        reply => redis::parse_redis_value(reply).map_err(|_| Malformed),
    }
}

/// Returns the length of the first reply in `bytes`; `None` if it is incomplete.
fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let (mut at, mut missing) = (0_usize, 1_usize);
    while missing > 0 {
        let Some(line) = bytes.get(at..).and_then(line) else { return Ok(None) };
        let [kind, text @ ..] = line else { return Err(Malformed) };
        at += line.len() + END.len();
        missing -= 1;
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'=' | b'!' => {
                if let Some(length) = count(text)? {
                    at = at.checked_add(length).and_then(|at| at.checked_add(END.len())).ok_or(Malformed)?;
                }
            }
            b'*' | b'~' | b'>' => missing = more(missing, count(text)?, 1, 0)?,
            b'%' => missing = more(missing, count(text)?, 2, 0)?,
            // An attribute: the value that it belongs to follows.
            b'|' => missing = more(missing, count(text)?, 2, 1)?,
            _ => return Err(Malformed),
        }
    }
    Ok(Some(at).filter(|at| *at <= bytes.len()))
}

fn line(bytes: &[u8]) -> Option<&[u8]> {
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| *byte == END[1])?;
        if at > 0 && bytes[at - 1] == END[0] {
            return Some(&bytes[..at - 1]);
        }
        from = at + 1;
    }
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

/// Parses a length; `None` for a null.
fn count(text: &[u8]) -> Result<Option<usize>, Malformed> {
    Ok(usize::try_from(number(text)?).ok())
}

fn more(missing: usize, count: Option<usize>, times: usize, besides: usize) -> Result<usize, Malformed> {
    let values = count.unwrap_or(0).checked_mul(times).and_then(|values| values.checked_add(besides));
    values.and_then(|values| missing.checked_add(values)).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One reply of each kind, and others that the library parses.
    const REPLIES: [&[u8]; 20] = [
        b":42\r\n",
        b":-7\r\n",
        b"_\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"+OK\r\n",
        b"+WAITING\r\n",
        b"-ERR no such thing\r\n",
        b"$0\r\n\r\n",
        b"$7\r\na\r\nb\nc\r\r\n",
        b"!8\r\nERR \r\nxx\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"*0\r\n",
        b"*3\r\n:1\r\n*2\r\n+a\r\n$1\r\nb\r\n_\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n+c\r\n#t\r\n",
        b"~1\r\n,1.5\r\n",
        b"|1\r\n+ttl\r\n:3\r\n*1\r\n:9\r\n",
        b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n",
        b"(12345678901234567890\r\n",
        b"#f\r\n",
    ];

    #[test]
    fn a_reply_ends_where_the_library_says_and_nowhere_before() {
        for reply in REPLIES {
            let mut followed = reply.to_vec();
            followed.extend(b":1\r\n");
            for end in 0..reply.len() {
                assert_eq!(first(&reply[..end]), Ok(None), "{reply:?} up to {end}");
            }
            let expected = redis::parse_redis_value(reply).unwrap();
            assert_eq!(first(&followed), Ok(Some((expected, reply.len()))));
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let wrong: [&[u8]; 6] = [
            b"HTTP/1.1 200 OK\r\n",
            b":x\r\n",
            b"$y\r\n",
            b"\r\n",
            b"*99999999999999999999\r\n",
            b"%9223372036854775807\r\n%9223372036854775807\r\n",
        ];
        for bytes in wrong {
            assert_eq!(first(bytes), Err(Malformed), "{bytes:?}");
        }
    }
}
