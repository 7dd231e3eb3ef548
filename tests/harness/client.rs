//! A client that sends lines as a person would type them, and the replies that it gets.

use std::path::Path;

use redis::{Connection, ConnectionLike, RedisResult, Value};

/// The server's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Null,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// The code and text, as sent.
    Error(String),
}

/// Returns an integer reply.
pub fn int(value: i64) -> Reply {
    Reply::Int(value)
}

/// Returns a reply that is Null.
pub fn null() -> Reply {
    Reply::Null
}

/// Returns a text reply.
pub fn text(text: &str) -> Reply {
    Reply::Text(text.into())
}

/// Returns an error's code and text.
#[track_caller]
pub fn error(reply: Reply) -> String {
    match reply {
        Reply::Error(text) => text,
        other => panic!("an error was expected, not {other:?}"),
    }
}

impl Reply {
    /// Returns the integer.
    #[track_caller]
    pub fn as_int(&self) -> i64 {
        match self {
            Reply::Int(value) => *value,
            other => panic!("an integer was expected, not {other:?}"),
        }
    }

    /// Returns the text.
    #[track_caller]
    pub fn as_text(&self) -> String {
        match self {
            Reply::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("a text was expected, not {other:?}"),
        }
    }

    /// Returns the bytes.
    #[track_caller]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Reply::Text(bytes) => bytes,
            other => panic!("a text was expected, not {other:?}"),
        }
    }

    /// Returns the elements; of a map, names and values alternately, as in RESP2.
    #[track_caller]
    pub fn as_list(&self) -> Vec<Reply> {
        match self {
            Reply::List(list) => list.clone(),
            Reply::Map(pairs) => pairs.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect(),
            other => panic!("a list was expected, not {other:?}"),
        }
    }

    /// Returns true if the reply is an error with this code.
    pub fn is_error(&self, code: &str) -> bool {
        matches!(self, Reply::Error(text) if text.split(' ').next() == Some(code))
    }

    /// Returns the value of `name` in a map, or in a flat list of names and values.
    #[track_caller]
    pub fn field(&self, name: &str) -> Reply {
        let list = self.as_list();
        let pair = list.chunks(2).find(|pair| pair[0] == text(name));
        pair.unwrap_or_else(|| panic!("no field {name} in {self:?}"))[1].clone()
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        match value {
            Value::Nil => Reply::Null,
            Value::Int(value) => Reply::Int(value),
            Value::Boolean(value) => Reply::Int(value.into()),
            Value::BulkString(bytes) => Reply::Text(bytes),
            Value::SimpleString(text) => Reply::Text(text.into()),
            Value::VerbatimString { text, .. } => Reply::Text(text.into()),
            Value::Okay => text("OK"),
            Value::Array(list) | Value::Set(list) => Reply::List(list.into_iter().map(Reply::from).collect()),
            Value::Map(pairs) => Reply::Map(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect()),
            Value::ServerError(error) => {
                Reply::Error(format!("{} {}", error.code(), error.details().unwrap_or_default()))
            }
            other => panic!("a kind of reply that no test expects: {other:?}"),
        }
    }
}

impl From<RedisResult<Value>> for Reply {
    fn from(result: RedisResult<Value>) -> Self {
        match result {
            Ok(value) => value.into(),
            Err(error) => {
                let detail = error.detail().map_or_else(|| error.to_string(), str::to_owned);
                Reply::Error(format!("{} {detail}", error.code().unwrap_or("no code")))
            }
        }
    }
}

/// Returns the command with these arguments.
fn command<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    arguments.for_each(|argument| {
        command.arg(argument);
    });
    command
}

/// A connection that sends lines as a person would type them.
pub struct Client(Connection);

impl Client {
    pub fn connect(socket: &Path, resp3: bool) -> Self {
        Self::try_connect(socket, resp3).expect("the server can be reached")
    }

    pub fn try_connect(socket: &Path, resp3: bool) -> Option<Self> {
        let protocol = if resp3 { "?protocol=resp3" } else { "" };
        let client = redis::Client::open(format!("redis+unix://{}{protocol}", socket.display())).unwrap();
        // The connection has no time limit: the system may interrupt a wait with a limit (EINTR), which then fails; one
        // without a limit continues. The test runner sets a limit for all tests.
        client.get_connection().ok().map(Self)
    }

    /// Sends a line, split at spaces. Returns the reply.
    pub fn say(&mut self, line: &str) -> Reply {
        self.send(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    /// Lifts the server's guard.
    pub fn lift(&mut self) {
        assert_eq!(self.say("LOCK.GUARD LIFT"), int(0));
    }

    /// Repeats a line until the answer is no longer NOTYET, so that the node's state is on disk.
    pub fn insist(&mut self, line: &str) -> Reply {
        self.say_while(line, &["NOTYET "])
    }

    /// Repeats a line until the answer is neither GUARDED nor NOTYET.
    pub fn outlast_guard(&mut self, line: &str) -> Reply {
        self.say_while(line, &["NOTYET ", "GUARDED "])
    }

    /// Repeats a line to an agent until its nodes answer and grant. Only for requests that may be repeated.
    pub fn outlast_outage(&mut self, line: &str) -> Reply {
        self.say_while(line, &["NOQUORUM ", "GUARDED "])
    }

    fn say_while(&mut self, line: &str, refusals: &[&str]) -> Reply {
        let mut reply = self.say(line);
        super::wait_until(line, || {
            let waits = matches!(&reply, Reply::Error(text) if refusals.iter().any(|code| text.starts_with(code)));
            if waits {
                reply = self.say(line);
            }
            !waits
        });
        reply
    }

    /// Sends a line to a server that may be gone; returns `None` if it is.
    pub fn try_say(&mut self, line: &str) -> Option<Reply> {
        let command = command(line.split(' ').map(str::as_bytes));
        match self.0.req_command(&command) {
            Err(error) if error.is_io_error() || error.is_connection_dropped() => None,
            result => Some(result.into()),
        }
    }

    /// Sends all lines at once and collects their replies.
    pub fn pipeline(&mut self, lines: &[String]) -> Vec<Reply> {
        let mut packed = Vec::new();
        for line in lines {
            packed.extend(command(line.split(' ').map(str::as_bytes)).get_packed_command());
        }
        self.0.send_packed_command(&packed).unwrap();
        lines.iter().map(|_| self.0.recv_response().into()).collect()
    }

    /// Sends all commands at once. Returns the replies, or `None` if the server closes the connection before the last
    /// one.
    pub fn try_pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Option<Vec<Reply>> {
        let mut packed = Vec::new();
        for arguments in commands {
            packed.extend(command(arguments.iter().map(Vec::as_slice)).get_packed_command());
        }
        self.0.send_packed_command(&packed).ok()?;
        self.0.set_read_timeout(Some(super::patience())).unwrap();
        let mut replies = Vec::new();
        while replies.len() < commands.len() {
            match self.0.recv_response() {
                Err(error) if error.is_timeout() => panic!("{replies:?} to {commands:?}, then nothing"),
                Err(error) if error.is_io_error() || error.is_connection_dropped() => return None,
                result => replies.push(result.into()),
            }
        }
        self.0.set_read_timeout(None).unwrap();
        Some(replies)
    }

    /// Sends a line without waiting for its reply, which [`Client::hear`] returns.
    pub fn ask(&mut self, line: &str) {
        let packed = command(line.split(' ').map(str::as_bytes)).get_packed_command();
        self.0.send_packed_command(&packed).unwrap();
    }

    /// Sends these arguments. Returns the reply.
    pub fn send(&mut self, arguments: &[&[u8]]) -> Reply {
        let command = command(arguments.iter().copied());
        self.0.req_command(&command).into()
    }

    /// Returns the next reply.
    pub fn hear(&mut self) -> Reply {
        self.0.recv_response().into()
    }

    /// Returns one field of INFO.
    #[track_caller]
    pub fn info_field(&mut self, field: &str) -> u64 {
        let info = self.say("INFO everything").as_text();
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {field} in INFO:\n{info}")).parse().unwrap()
    }
}
