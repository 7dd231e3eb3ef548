//! The answer of a command, and its bytes in both versions of the protocol, as a node writes it.

use bytes::{BufMut, BytesMut};

/// The version of the protocol in which a connection receives answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, the older version: a map is a flat list, and Null is a special string.
    #[default]
    Resp2,
    /// RESP3, the newer version.
    Resp3,
}

/// The answer of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Null: the answer "no", which is not an error.
    Null,
    /// An integer that is not negative.
    Integer(u64),
    /// A number that may be below zero.
    Signed(i64),
    /// A string of any bytes.
    Bytes(Vec<u8>),
    /// A fixed word: OK, PONG.
    Word(&'static str),
    /// A list of replies.
    List(Vec<Reply>),
    /// A list whose order means nothing; RESP3 has a type for that.
    Set(Vec<Reply>),
    /// Names and values; in RESP2 a flat list of both.
    Map(Vec<(&'static str, Reply)>),
}

impl Reply {
    /// Creates a reply of this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Bytes(text.into().into_bytes())
    }

    /// Creates a reply of the number, or Null for `None`.
    pub fn or_null(number: Option<u64>) -> Self {
        number.map_or(Self::Null, Self::Integer)
    }

    /// Writes the reply at the end of `out`.
    pub fn write(&self, protocol: Protocol, out: &mut BytesMut) {
        let is_new = protocol == Protocol::Resp3;
        match self {
            Self::Null => out.put_slice(if is_new { b"_\r\n" } else { b"$-1\r\n" }),
            Self::Integer(number) => head(out, b':', *number),
            Self::Signed(number) => line(out, b':', number.to_string().as_bytes()),
            Self::Bytes(bytes) => write_bytes(out, bytes),
            Self::Word(word) => line(out, b'+', word.as_bytes()),
            Self::List(list) | Self::Set(list) => {
                head(out, if is_new && matches!(self, Self::Set(_)) { b'~' } else { b'*' }, list.len() as u64);
                list.iter().for_each(|element| element.write(protocol, out));
            }
            Self::Map(fields) => {
                let (kind, of_each) = if is_new { (b'%', 1) } else { (b'*', 2) };
                head(out, kind, fields.len() as u64 * of_each);
                for (name, value) in fields {
                    write_bytes(out, name.as_bytes());
                    value.write(protocol, out);
                }
            }
        }
    }
}

/// Writes an error at the end of `out`, on one line whatever the text contains. Its first word is the code.
pub fn write_error(text: &str, out: &mut BytesMut) {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line(out, b'-', text.as_bytes());
}

fn write_bytes(out: &mut BytesMut, bytes: &[u8]) {
    head(out, b'$', bytes.len() as u64);
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

fn line(out: &mut BytesMut, kind: u8, text: &[u8]) {
    out.put_u8(kind);
    out.put_slice(text);
    out.put_slice(b"\r\n");
}

/// Writes a byte for the type, then a number, as lengths and integers begin.
fn head(out: &mut BytesMut, kind: u8, number: u64) {
    let mut digits = [0; 20];
    let (mut begin, mut left) = (digits.len(), number);
    loop {
        begin -= 1;
        digits[begin] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    line(out, kind, &digits[begin..]);
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn written(reply: &Reply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        reply.write(protocol, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn every_kind_is_written_as_a_node_writes_it() {
        let map = Reply::Map(vec![("token", Reply::Integer(7)), ("note", Reply::text("a\r\nb"))]);
        let cases = [
            (Reply::Null, "$-1\r\n", "_\r\n"),
            (Reply::Integer(0), ":0\r\n", ":0\r\n"),
            (Reply::Integer(9_007_199_254_740_991), ":9007199254740991\r\n", ":9007199254740991\r\n"),
            (Reply::text(""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Reply::Word("OK"), "+OK\r\n", "+OK\r\n"),
            (Reply::List(vec![Reply::Integer(1), Reply::Null]), "*2\r\n:1\r\n$-1\r\n", "*2\r\n:1\r\n_\r\n"),
            (Reply::Set(vec![Reply::Word("write")]), "*1\r\n+write\r\n", "~1\r\n+write\r\n"),
            (
                map,
                "*4\r\n$5\r\ntoken\r\n:7\r\n$4\r\nnote\r\n$4\r\na\r\nb\r\n",
                "%2\r\n$5\r\ntoken\r\n:7\r\n$4\r\nnote\r\n$4\r\na\r\nb\r\n",
            ),
        ];
        for (reply, old, new) in cases {
            assert_eq!(written(&reply, Protocol::Resp2), old);
            assert_eq!(written(&reply, Protocol::Resp3), new);
        }
    }

    /// A client library reads the written bytes, and gets back what was written.
    #[test]
    fn a_client_reads_what_was_written() {
        let inner =
            Reply::Map(vec![("owner", Reply::Bytes(vec![0, 255, 13, 10])), ("ttl", Reply::Integer(u64::MAX / 2))]);
        let reply = Reply::List(vec![inner, Reply::Null, Reply::List(vec![]), Reply::Map(vec![])]);
        let read = redis::parse_redis_value(written_bytes(&reply).as_slice()).unwrap();
        let owner = (Value::BulkString(b"owner".into()), Value::BulkString(vec![0, 255, 13, 10]));
        let ttl = (Value::BulkString(b"ttl".into()), Value::Int(i64::MAX));
        let expected = vec![Value::Map(vec![owner, ttl]), Value::Nil, Value::Array(vec![]), Value::Map(vec![])];
        assert_eq!(read, Value::Array(expected));
    }

    fn written_bytes(reply: &Reply) -> Vec<u8> {
        let mut out = BytesMut::new();
        reply.write(Protocol::Resp3, &mut out);
        out.to_vec()
    }

    #[test]
    fn an_error_is_one_line() {
        let mut out = BytesMut::new();
        write_error("NOQUORUM a: gone\r\n+OK\nb", &mut out);
        assert_eq!(&out[..], b"-NOQUORUM a: gone  +OK b\r\n");
    }
}
