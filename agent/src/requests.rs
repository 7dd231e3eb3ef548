//! Parses requests from the bytes of a connection: lists of strings, the form in which every client sends a command.
//!
//! A length is checked as soon as it is read. No memory is reserved for bytes that are only announced, and a list
//! cannot contain a list.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use tokio::time::Instant;

use crate::limits::{ARGUMENTS_MAX, LENGTH_LINE_MAX, REQUEST_BYTES_MAX, REQUEST_BYTES_UNKNOWN_MAX};

/// A request: the name of a command, then its arguments.
pub type Request = Vec<Bytes>;

/// The input of a connection, from which complete requests are taken.
#[derive(Debug)]
pub struct Requests {
    /// The bytes that have arrived and are not parsed yet.
    pub bytes: BytesMut,
    /// The number of arguments of the present request that have not arrived yet.
    missing: usize,
    /// The arguments of the present request that have arrived.
    arguments: Request,
    /// The number of bytes of the present request that have been parsed.
    size: usize,
    size_max: usize,
    /// The time at which the present request began, if that is known yet.
    since: Option<Instant>,
}

/// Bytes that are no request. What follows them cannot be understood, so the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// The bytes are not a list. They may be a command typed by hand.
    NotAList,
    /// The number of arguments is no number, or is too large.
    Arguments,
    /// An argument is not a string, but of the type with this byte.
    NotAString(u8),
    /// The length of a string is no number.
    Length,
    /// The request has more bytes than this limit.
    TooLong(usize),
}

impl fmt::Display for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ERR Protocol error: ")?;
        match self {
            Self::NotAList => f.write_str(
                "a request is a list of strings, as clients send it; this agent takes no commands typed by hand",
            ),
            Self::Arguments => write!(f, "invalid multibulk length: a request has up to {ARGUMENTS_MAX} arguments"),
            Self::NotAString(found) => write!(f, "expected '$', got '{}'", found.escape_ascii()),
            Self::Length => f.write_str("invalid bulk length"),
            Self::TooLong(max) => write!(f, "a request has up to {max} bytes"),
        }
    }
}

impl Requests {
    /// Creates the input of a new connection. If the connection still has to give a password (not `is_known`), its
    /// requests must be short.
    pub fn new(is_known: bool) -> Self {
        let mut requests = Self {
            bytes: BytesMut::new(),
            missing: 0,
            arguments: vec![],
            size: 0,
            size_max: REQUEST_BYTES_UNKNOWN_MAX,
            since: None,
        };
        if is_known {
            requests.known();
        }
        requests
    }

    /// Raises the limits, because the connection has given the password.
    pub fn known(&mut self) {
        self.size_max = REQUEST_BYTES_MAX;
    }

    /// Returns the time at which the present, incomplete request began; `None` if there is none. If it has just begun,
    /// that is `now`.
    pub fn since(&mut self, now: Instant) -> Option<Instant> {
        let has_begun = self.missing > 0 || !self.bytes.is_empty();
        self.since = has_begun.then(|| self.since.unwrap_or(now));
        self.since
    }

    /// Returns the next complete request; `None` if it has not arrived completely.
    pub fn next(&mut self) -> Result<Option<Request>, Garbage> {
        while self.missing == 0 {
            let Some((kind, count)) = self.length()? else { return Ok(None) };
            if kind != b'*' {
                return Err(Garbage::NotAList);
            }
            // An empty list is no request, and is skipped.
            self.missing = match count {
                Some(count) if count <= 0 => 0,
                Some(count) => usize::try_from(count).ok().filter(|n| *n <= ARGUMENTS_MAX).ok_or(Garbage::Arguments)?,
                None => return Err(Garbage::Arguments),
            };
            self.size = 0;
        }
        while self.missing > 0 {
            let Some(argument) = self.argument()? else { return Ok(None) };
            self.arguments.push(argument);
            self.missing -= 1;
        }
        // The bytes that follow belong to the next request, whose time begins then.
        self.since = None;
        Ok(Some(std::mem::take(&mut self.arguments)))
    }

    /// Returns the next argument, if it has arrived completely.
    fn argument(&mut self) -> Result<Option<Bytes>, Garbage> {
        let Some(end) = self.line()? else { return Ok(None) };
        if self.bytes[0] != b'$' {
            return Err(Garbage::NotAString(self.bytes[0]));
        }
        let length =
            number(&self.bytes[1..end]).and_then(|length| usize::try_from(length).ok()).ok_or(Garbage::Length)?;
        if self.size.saturating_add(end + 4).saturating_add(length) > self.size_max {
            return Err(Garbage::TooLong(self.size_max));
        }
        let begin = end + 2;
        if self.bytes.len() < begin + length + 2 {
            return Ok(None);
        }
        if self.bytes[begin + length..begin + length + 2] != *b"\r\n" {
            return Err(Garbage::Length);
        }
        self.size += begin + length + 2;
        self.bytes.advance(begin);
        let argument = self.bytes.split_to(length).freeze();
        self.bytes.advance(2);
        Ok(Some(argument))
    }

    /// Returns the byte and the number of a line such as `$4`, if it has arrived completely. The number is `None` if it
    /// is invalid.
    fn length(&mut self) -> Result<Option<(u8, Option<i64>)>, Garbage> {
        if self.bytes.first().is_some_and(|kind| *kind != b'*') {
            return Err(Garbage::NotAList);
        }
        let Some(end) = self.line()? else { return Ok(None) };
        let read = (self.bytes[0], number(&self.bytes[1..end]));
        self.bytes.advance(end + 2);
        Ok(Some(read))
    }

    /// Returns the index at which the first line of the unparsed bytes ends, if it has arrived completely.
    fn line(&self) -> Result<Option<usize>, Garbage> {
        let looked = &self.bytes[..self.bytes.len().min(LENGTH_LINE_MAX)];
        match looked.windows(2).position(|two| two == b"\r\n") {
            Some(0) => Err(Garbage::Length),
            Some(end) => Ok(Some(end)),
            None if looked.len() == LENGTH_LINE_MAX => Err(Garbage::Length),
            None => Ok(None),
        }
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Parses `bytes`, which arrive in pieces of `piece` bytes. Returns all requests, and the fault that ended them.
    fn read(bytes: &[u8], piece: usize) -> (Vec<Request>, Option<Garbage>) {
        let (mut requests, mut all) = (Requests::new(true), vec![]);
        for piece in bytes.chunks(piece) {
            requests.bytes.extend_from_slice(piece);
            loop {
                match requests.next() {
                    Ok(Some(request)) => all.push(request),
                    Ok(None) => break,
                    Err(garbage) => return (all, Some(garbage)),
                }
            }
        }
        (all, None)
    }

    #[test]
    fn requests_in_any_pieces() {
        let bytes = b"*2\r\n$4\r\nPING\r\n$0\r\n\r\n*0\r\n*-1\r\n*1\r\n$3\r\na\r\n\r\n*1\r\n$1\r\n*\r\n";
        let expected: Vec<Request> = [&[&b"PING"[..], b""][..], &[b"a\r\n"], &[b"*"]]
            .iter()
            .map(|request| request.iter().map(|bytes| Bytes::copy_from_slice(bytes)).collect())
            .collect();
        for piece in 1..=bytes.len() {
            assert_eq!(read(bytes, piece), (expected.clone(), None), "pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_request() {
        let cases: [(&[u8], Garbage); 16] = [
            (b"PING\r\n", Garbage::NotAList),
            (b"\r\n", Garbage::NotAList),
            (b"$4\r\nPING\r\n", Garbage::NotAList),
            (b"\0", Garbage::NotAList),
            (b"*1000000000\r\n", Garbage::Arguments),
            (b"*1025\r\n", Garbage::Arguments),
            (b"*x\r\n", Garbage::Arguments),
            (b"*99999999999999999999\r\n", Garbage::Arguments),
            (b"*11111111111111111111111111111111111", Garbage::Length),
            (b"*1\r\n*1\r\n", Garbage::NotAString(b'*')),
            (b"*1\r\n:1\r\n", Garbage::NotAString(b':')),
            (b"*1\r\n$-1\r\n", Garbage::Length),
            (b"*1\r\n$x\r\n", Garbage::Length),
            (b"*1\r\n$536870912\r\n", Garbage::TooLong(REQUEST_BYTES_MAX)),
            (b"*1\r\n$18446744073709551615\r\n", Garbage::Length),
            (b"*1\r\n$1\r\nab\r\n", Garbage::Length),
        ];
        for (bytes, garbage) in cases {
            for piece in [1, bytes.len()] {
                let text = bytes.escape_ascii();
                assert_eq!(read(bytes, piece), (vec![], Some(garbage)), "{text} in pieces of {piece}");
            }
        }
    }

    /// A request may be as long as the limit, all its arguments together. The next request may be as long again.
    #[test]
    fn a_request_is_as_long_as_its_arguments() {
        let half = REQUEST_BYTES_MAX / 2 - 64;
        let argument = [format!("${half}\r\n").into_bytes(), vec![b'x'; half], b"\r\n".to_vec()].concat();
        let two = [b"*2\r\n".to_vec(), argument.clone(), argument.clone()].concat();
        let (requests, garbage) = read(&[two.clone(), two].concat(), 1 << 20);
        assert_eq!((requests.len(), garbage), (2, None));
        let three = [b"*3\r\n".to_vec(), argument.clone(), argument.clone(), argument].concat();
        assert_eq!(read(&three, 1 << 20), (vec![], Some(Garbage::TooLong(REQUEST_BYTES_MAX))));
    }

    /// Regression: a client that sent a byte from time to time kept an incomplete request forever. The time for a
    /// request counts from its first byte.
    #[test]
    fn a_request_has_its_time_from_its_first_byte_on() {
        let mut requests = Requests::new(true);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(requests.since(at(0)), None);
        let mut send = |bytes: &[u8], seconds| {
            requests.bytes.extend_from_slice(bytes);
            let complete = std::iter::from_fn(|| requests.next().unwrap()).count();
            (complete, requests.since(at(seconds)))
        };
        assert_eq!(send(b"*1", 10), (0, Some(at(10))));
        assert_eq!(send(b"\r\n$4\r\nPI", 40), (0, Some(at(10))));
        assert_eq!(send(b"N", 69), (0, Some(at(10))));
        // The next request begins right after that one, and so does its time.
        assert_eq!(send(b"G\r\n*1\r\n", 80), (1, Some(at(80))));
        assert_eq!(send(b"$4\r\nPING\r\n", 90), (1, None));
        assert_eq!(send(b"*", 100), (0, Some(at(100))));
    }

    #[test]
    fn who_is_not_known_says_little() {
        let mut requests = Requests::new(false);
        requests.bytes.extend_from_slice(b"*1\r\n$5000\r\n");
        assert_eq!(requests.next(), Err(Garbage::TooLong(REQUEST_BYTES_UNKNOWN_MAX)));
        let mut requests = Requests::new(false);
        requests.known();
        requests.bytes.extend_from_slice(b"*1\r\n$5000\r\n");
        assert_eq!(requests.next(), Ok(None));
    }
}
