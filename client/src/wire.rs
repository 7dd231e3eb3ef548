//! The commands as they are sent, and what their replies mean.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use palisade_core::Token;
use palisade_core::quorum::{Answer, Ask, NodeId};
use redis::{Cmd, RedisError, Value, cmd};

/// What a node says that was asked about a lock which it does not have, whoever has it now.
pub const NOT_HELD: &str = "it does not have the lock any more";

/// One acquisition of one key: whoever has its owner's name has the lock.
#[derive(Debug)]
pub struct Lease {
    /// The lock.
    pub key: Vec<u8>,
    /// 20 random bytes, new for each acquisition: a late message of another one cannot touch it.
    pub owner: [u8; 20],
    /// For people.
    pub note: Vec<u8>,
    /// By node: something was sent there that may have been granted, or queued.
    may_have: Box<[AtomicBool]>,
}

impl Lease {
    /// A new acquisition on so many nodes.
    pub fn new(key: &[u8], note: &[u8], nodes: usize) -> Self {
        let may_have = (0..nodes).map(|_| AtomicBool::new(false)).collect();
        Self { key: key.to_vec(), owner: rand::random(), note: note.to_vec(), may_have }
    }

    /// Something is sent to this node now.
    pub fn goes_to(&self, node: usize) {
        self.may_have[node].store(true, Ordering::Relaxed);
    }

    /// Whether this node may have it, or a request of it in its queue.
    pub fn may_be_at(&self, node: usize) -> bool {
        self.may_have[node].load(Ordering::Relaxed)
    }

    /// Its key, for people.
    pub fn shown_key(&self) -> ShownKey<'_> {
        ShownKey(&self.key)
    }

    /// What a machine asks, as a command.
    pub fn command(&self, ask: Ask) -> Cmd {
        match ask {
            Ask::Acquire { ttl_ms, proposal, retry } => {
                let mut command = self.acquire(ttl_ms, proposal);
                if retry {
                    command.arg("RETRY");
                }
                command
            }
            Ask::Fence { token } => self.about("LOCK.FENCE").arg(token.get()).take(),
            Ask::Extend { ttl_ms, token } => self.about("LOCK.EXTEND").arg(ttl_ms).arg("TOKEN").arg(token.get()).take(),
            Ask::Share => self.about("LOCK.CONVERT").arg("SHARED").take(),
        }
    }

    /// Takes the lock, waiting in the queue of the one node there is.
    pub fn acquire_waiting(&self, ttl_ms: u32, proposal: Token, wait_ms: u64) -> Cmd {
        // Sent again on another connection it must find its own grant.
        self.acquire(ttl_ms, proposal).arg("RETRY").arg("WAIT").arg(wait_ms).take()
    }

    /// Waits until it is free for this owner.
    pub fn wait(&self, ms: u64, ticket: Token) -> Cmd {
        self.about("LOCK.WAIT").arg(ms).arg("TICKET").arg(ticket.get()).take()
    }

    /// Gives back down to `level - 1` holds; 1: all of them.
    pub fn release(&self, level: u32) -> Cmd {
        self.about("LOCK.RELEASE").arg("LEVEL").arg(level).take()
    }

    /// At least `level` holds.
    pub fn reenter(&self, level: u32) -> Cmd {
        self.about("LOCK.REENTER").arg("LEVEL").arg(level).take()
    }

    fn acquire(&self, ttl_ms: u32, proposal: Token) -> Cmd {
        let mut command = self.about("LOCK.ACQUIRE");
        command.arg(ttl_ms).arg("FENCE").arg(proposal.get());
        if !self.note.is_empty() {
            command.arg("NOTE").arg(&self.note);
        }
        command
    }

    fn about(&self, name: &str) -> Cmd {
        cmd(name).arg(&self.key).arg(&self.owner).take()
    }
}

/// Who has `key`?
pub fn info(key: &[u8]) -> Cmd {
    cmd("LOCK.INFO").arg(key).take()
}

/// A key as people read it: text where it is, and nothing in it that moves a cursor.
#[derive(Clone, Copy, Debug)]
pub struct ShownKey<'a>(pub &'a [u8]);

impl std::fmt::Display for ShownKey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in String::from_utf8_lossy(self.0).chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

/// What a node's reply to `ask` means to the machine; and for people, why it is no token.
pub fn answer(ask: Ask, reply: Result<Value, NodeFailure>) -> (Answer, Option<String>) {
    match reply {
        Ok(Value::Int(value)) => match u64::try_from(value).ok().and_then(Token::new) {
            Some(token) => (Answer::Token(token), None),
            None => (Answer::Failed, Some(format!("it answered {value}, which is no token"))),
        },
        Ok(Value::Nil) => {
            let why = match ask {
                Ask::Acquire { .. } => "somebody else holds it",
                Ask::Extend { .. } | Ask::Fence { .. } | Ask::Share => NOT_HELD,
            };
            (Answer::No, Some(why.to_owned()))
        }
        Ok(other) => (Answer::Failed, Some(format!("it answered {other:?}"))),
        Err(failure) => {
            let ms = failure.ms();
            let answer = match failure.code() {
                Some("GUARDED") => Answer::Guarded { ms },
                Some("NOTYET") => Answer::NotYet { ms: u32::try_from(ms).unwrap_or(u32::MAX) },
                _ => Answer::Failed,
            };
            (answer, Some(failure.to_string()))
        }
    }
}

/// The token and the milliseconds waited of an ACQUIRE that waited; `None`: in vain.
pub fn granted_after_wait(value: &Value) -> Option<(Value, u64)> {
    match value {
        Value::Array(list) => match &list[..] {
            [token @ Value::Int(_), Value::Int(waited)] => Some((token.clone(), u64::try_from(*waited).ok()?)),
            _ => None,
        },
        _ => None,
    }
}

/// The value of `name` in a map, or in a flat list of names and values.
pub fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let is = |value: &Value| matches!(value, Value::BulkString(bytes) if bytes == name.as_bytes());
    match value {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is(key)).map(|(_, value)| value),
        Value::Array(list) => list.chunks(2).find(|pair| is(&pair[0]))?.get(1),
        _ => None,
    }
}

/// An integer field.
pub fn number(value: &Value, name: &str) -> Option<u64> {
    match field(value, name)? {
        Value::Int(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

/// A text field.
pub fn text(value: &Value, name: &str) -> Option<String> {
    match field(value, name)? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// Which server LOCK.NODE tells of.
pub fn node_id(value: &Value) -> Option<NodeId> {
    u128::from_str_radix(&text(value, "id")?, 16).ok().map(NodeId)
}

/// Why a node gave no answer, or an error.
#[derive(Clone, Debug)]
pub enum NodeFailure {
    /// It did not answer in time.
    Silent,
    /// It was not asked: it cannot be reached.
    Unreachable(String),
    /// It was not asked: what is there is no lock node.
    Unfit(String),
    /// The connection broke while it was asked.
    Broken(String),
    /// It answered with an error: its code, and its text.
    Refused(String, String),
}

impl NodeFailure {
    /// What `error` of the connection means.
    pub fn of(error: &RedisError) -> Self {
        match error.code() {
            Some(code) if !error.is_io_error() => {
                Self::Refused(code.to_owned(), error.detail().unwrap_or_default().to_owned())
            }
            _ => Self::Broken(error.to_string()),
        }
    }

    /// What a node answered, if that is no error.
    pub fn or_value(reply: Result<Value, RedisError>) -> Result<Value, Self> {
        match reply {
            Ok(Value::ServerError(error)) => {
                Err(Self::Refused(error.code().to_owned(), error.details().unwrap_or_default().to_owned()))
            }
            Ok(value) => Ok(value),
            Err(error) => Err(Self::of(&error)),
        }
    }

    /// The code of a node's error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(code, _) => Some(code),
            _ => None,
        }
    }

    /// It does not pass by itself: somebody has to do something about it.
    pub fn is_lasting(&self) -> bool {
        const LASTING: [&str; 6] = ["ERR", "NOPERM", "WRONGTYPE", "NOAUTH", "WRONGPASS", "LOCKPANIC"];
        match self {
            Self::Unfit(_) => true,
            Self::Refused(code, _) => LASTING.contains(&code.as_str()),
            Self::Silent | Self::Unreachable(_) | Self::Broken(_) => false,
        }
    }

    /// The node answered, with whatever it is.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Refused(..))
    }

    /// The milliseconds that GUARDED and NOTYET name.
    pub fn ms(&self) -> u64 {
        match self {
            Self::Refused(_, text) => text.split(' ').next().and_then(|ms| ms.parse().ok()).unwrap_or(0),
            _ => 0,
        }
    }
}

impl std::fmt::Display for NodeFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent => f.write_str("it did not answer in time"),
            Self::Unreachable(why) | Self::Unfit(why) | Self::Broken(why) => f.write_str(why),
            Self::Refused(code, text) => write!(f, "{code} {text}"),
        }
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

    /// After a BREAK nobody has it; the holder was told that somebody else had.
    #[test]
    fn null_means_what_was_asked() {
        let token = Token::new(7).unwrap();
        let asks = [Ask::Extend { ttl_ms: 1, token }, Ask::Fence { token }];
        for ask in asks {
            assert_eq!(answer(ask, Ok(Value::Nil)), (Answer::No, Some(NOT_HELD.to_owned())));
        }
        let ask = Ask::Acquire { ttl_ms: 1, proposal: token, retry: true };
        assert_eq!(answer(ask, Ok(Value::Nil)).1.unwrap(), "somebody else holds it");
    }
}
