//! The commands as they are sent, and what their replies mean.

use palisade_core::Token;
use palisade_core::quorum::{Answer, Ask, NodeId};
use redis::{Cmd, RedisError, Value, cmd};

/// One acquisition of one key: whoever has its owner's name has the lock.
#[derive(Debug)]
pub struct Lease {
    /// The lock.
    pub key: Vec<u8>,
    /// 20 random bytes, new for each acquisition: a late message of another one cannot touch it.
    pub owner: [u8; 20],
    /// For people.
    pub note: Vec<u8>,
}

impl Lease {
    /// A new acquisition.
    pub fn new(key: &[u8], note: &[u8]) -> Self {
        Self { key: key.to_vec(), owner: rand::random(), note: note.to_vec() }
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

    /// Who has it?
    pub fn info(&self) -> Cmd {
        cmd("LOCK.INFO").arg(&self.key).take()
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

/// What a node's reply to an [`Ask`] means to the machine; and for people, why it is no token.
pub fn answer(reply: Result<Value, Trouble>) -> (Answer, Option<String>) {
    match reply {
        Ok(Value::Int(value)) => match u64::try_from(value).ok().and_then(Token::new) {
            Some(token) => (Answer::Token(token), None),
            None => (Answer::Failed, Some(format!("it answered {value}, which is no token"))),
        },
        Ok(Value::Nil) => (Answer::No, Some("somebody else holds it".to_owned())),
        Ok(other) => (Answer::Failed, Some(format!("it answered {other:?}"))),
        Err(trouble) => {
            let ms = trouble.ms();
            let answer = match trouble.code() {
                Some("GUARDED") => Answer::Guarded { ms },
                Some("NOTYET") => Answer::NotYet { ms: u32::try_from(ms).unwrap_or(u32::MAX) },
                _ => Answer::Failed,
            };
            (answer, Some(trouble.to_string()))
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
pub enum Trouble {
    /// It did not answer in time.
    Silent,
    /// It cannot be reached, or is no lock node.
    Unreachable(String),
    /// The connection broke while it was asked.
    Broken(String),
    /// It answered with an error: its code, and its text.
    Refused(String, String),
}

impl Trouble {
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

    /// The milliseconds that GUARDED and NOTYET name.
    pub fn ms(&self) -> u64 {
        match self {
            Self::Refused(_, text) => text.split(' ').next().and_then(|ms| ms.parse().ok()).unwrap_or(0),
            _ => 0,
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent => f.write_str("it did not answer in time"),
            Self::Unreachable(why) | Self::Broken(why) => f.write_str(why),
            Self::Refused(code, text) => write!(f, "{code} {text}"),
        }
    }
}
