//! Reasons why a node does not do what it is asked: one type, from where a failure is found to the text that people
//! read. The errors of servers are parsed only here, and this type's own texts are never parsed.

use std::fmt;

use redis::{RedisError, Value};

use crate::values::tls_fault::{TlsFault, is_of_tls};

/// Texts of a server's errors for a client beyond `maxclients`, and for an unknown command of a module. Their code,
/// `ERR`, is that of many errors.
const FULL: &str = "max number of clients";
const UNKNOWN_COMMAND: &str = "unknown command";

/// The text of a server's error for a database that does not exist.
const NO_DATABASE: &str = "DB index is out of range";

/// The text of a server's error if it belongs to no cluster.
const NO_CLUSTER: &str = "cluster support disabled";

/// The words between reason and advice in the error of a guarded node.
const GRANTS_NOTHING: &str = " and grants nothing";

/// The code of a module that has failed. It answers nothing else until its server restarts.
const PANICKED: &str = "LOCKPANIC";

/// Codes of errors that stay until someone acts.
const LASTING: [&str; 7] = ["DENIED", "ERR", PANICKED, "NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE"];

/// The reason why a node did not do what it was asked. Its message says what to do, where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The node did not answer in time.
    Silent,
    /// The node had not answered when the caller stopped waiting.
    Unanswered,
    /// The node was not asked: it cannot be reached now.
    Unreachable(String),
    /// The node was not asked: the server cannot be a node until someone acts.
    Unfit(String),
    /// The connection broke during the request, or the answer is not understood.
    Broken(String),
    /// The server has no lock module.
    NoModule,
    /// The server has no database with the number in its address.
    NoDatabase,
    /// The server belongs to no cluster, although its address says so.
    NoCluster,
    /// The server is of another kind, which is named here.
    Stranger(String),
    /// Client and server do not agree on TLS.
    Tls(TlsFault),
    /// The server has reached its limit of clients; its error text.
    Full(String),
    /// The server refused the connection.
    TurnedAway {
        /// The code: the first word of the error.
        code: String,
        /// The rest of the error's text.
        text: String,
    },
    /// The node refused the request.
    Refused {
        /// The code: the first word of the error.
        code: String,
        /// The rest of the error's text.
        text: String,
    },
    /// The server does not know the command; its error text.
    UnknownCommand(String),
    /// The node is guarded: it may have forgotten grants.
    Guarded {
        /// Milliseconds until the node grants again.
        left_ms: u64,
        /// The reason for the guard.
        reason: String,
        /// The rest of the error's text: the advice.
        rest: String,
    },
    /// The node is not ready to answer.
    NotYet {
        /// Milliseconds until the node is ready.
        left_ms: u64,
        /// The rest of the error's text.
        text: String,
    },
    /// The node has no vote yet on a set of nodes.
    Unsettled {
        /// Milliseconds until the node has a vote.
        left_ms: u64,
        /// The rest of the error's text.
        text: String,
    },
    /// The node has granted the lock to another owner.
    Held,
    /// The node does not have the lock that the request is about. Another owner may have it.
    NotHeld,
    /// The node has not answered this many releases.
    Owing(usize),
    /// The server is also another node of the list, which is named here.
    SameServer(String),
    /// One of the node's servers failed.
    Of {
        /// The address of the server.
        server: String,
        /// The reason why that server failed.
        why: Box<Self>,
    },
    /// All servers of the node failed.
    Each(Vec<Self>),
}

impl Why {
    /// Returns the failure of a server that did not answer while connecting.
    #[doc(hidden)]
    pub fn late() -> Self {
        Self::Unreachable("it does not answer".to_owned())
    }

    /// Parses an error line of a server.
    pub(crate) fn read(line: &str) -> Self {
        let (code, text) = line.split_once(' ').unwrap_or((line, ""));
        Self::answered(code, text)
    }

    /// Parses an error that a server answered.
    #[doc(hidden)]
    pub fn answered(code: &str, text: &str) -> Self {
        let (number, rest) = text.split_once(' ').unwrap_or((text, ""));
        match (code, number.parse()) {
            ("ERR", _) if text.starts_with(FULL) => Self::Full(text.to_owned()),
            ("ERR", _) if text.contains(UNKNOWN_COMMAND) => Self::UnknownCommand(text.to_owned()),
            ("ERR", _) if text.contains(NO_CLUSTER) => Self::NoCluster,
            ("ERR", _) if text == NO_DATABASE => Self::NoDatabase,
            ("GUARDED", Ok(left_ms)) => {
                let (reason, rest) = rest.split_at(rest.find(GRANTS_NOTHING).unwrap_or(rest.len()));
                Self::Guarded { left_ms, reason: reason.to_owned(), rest: rest.to_owned() }
            }
            ("NOTYET", Ok(left_ms)) => Self::NotYet { left_ms, text: rest.to_owned() },
            ("UNSETTLED", Ok(left_ms)) => Self::Unsettled { left_ms, text: rest.to_owned() },
            _ => Self::Refused { code: code.to_owned(), text: text.to_owned() },
        }
    }

    /// Converts an error of a connection.
    #[doc(hidden)]
    pub fn of(error: &RedisError) -> Self {
        match error.code() {
            Some(code) if !error.is_io_error() => Self::answered(code, error.detail().unwrap_or_default()),
            _ => Self::Broken(error.to_string()),
        }
    }

    /// Converts the error of a failed connection attempt.
    pub(crate) fn unconnected(error: &RedisError) -> Self {
        match TlsFault::of(error).map_or_else(|| Self::of(error), Self::Tls) {
            Self::Broken(text) => {
                let text = format!("it cannot be reached: {text}");
                let is_refused = error.kind() == redis::ErrorKind::AuthenticationFailed || is_of_tls(error);
                if is_refused { Self::Unfit(text) } else { Self::Unreachable(text) }
            }
            answer => answer.before_asked(),
        }
    }

    /// Takes the error out of a reply.
    #[doc(hidden)]
    pub fn or_value(reply: Result<Value, RedisError>) -> Result<Value, Self> {
        match reply {
            Ok(Value::ServerError(error)) => Err(Self::answered(error.code(), error.details().unwrap_or_default())),
            reply => reply.map_err(|error| Self::of(&error)),
        }
    }

    /// Treats a server that does not know a node's command as one without the lock module.
    #[doc(hidden)]
    pub fn of_node(self) -> Self {
        match self {
            Self::UnknownCommand(_) => Self::NoModule,
            why => why,
        }
    }

    /// Marks an error as one from before the request was sent: the node did nothing.
    pub(crate) fn before_asked(self) -> Self {
        match self {
            Self::Refused { code, text } => Self::TurnedAway { code, text },
            why if why.may_be_done() || why.is_answer() => Self::Unreachable(why.to_string()),
            why => why,
        }
    }

    /// Names the permissions that this client's user lacks, if the server reports missing ones.
    pub(crate) fn asking_for(mut self, permissions: &str) -> Self {
        if let Self::Refused { code, text } | Self::TurnedAway { code, text } = &mut self
            && code == "NOPERM"
        {
            *text += &format!(": allow {permissions}");
        }
        self
    }

    /// Adds the server's name to a failure, for a node that has several servers. An answer of the server, or its
    /// silence, is returned unchanged.
    pub(crate) fn of_server(self, name: &str) -> Self {
        match self {
            Self::Silent => self,
            why if why.is_answer() => why,
            why => Self::Of { server: name.to_owned(), why: Box::new(why) },
        }
    }

    /// Returns the code of a server's error, its first word.
    #[doc(hidden)]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } | Self::TurnedAway { code, .. } => Some(code),
            Self::NoDatabase => Some("ERR"),
            _ => None,
        }
    }

    /// Returns whether the failure is permanent, so that somebody has to act.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Unfit(_)
            | Self::Tls(_)
            | Self::NoModule
            | Self::NoCluster
            | Self::Stranger(_)
            | Self::SameServer(_)
            | Self::UnknownCommand(_) => true,
            Self::Of { why, .. } => why.is_lasting(),
            Self::Each(whys) => whys.iter().any(Self::is_lasting),
            why => why.code().is_some_and(|code| LASTING.contains(&code)),
        }
    }

    /// Returns whether the node refuses the request or the user: a repeated request gets the same answer.
    #[doc(hidden)]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Of { why, .. } => why.is_refusal(),
            Self::Each(whys) => whys.iter().any(Self::is_refusal),
            why => why.code().is_some_and(|code| LASTING.contains(&code) && code != PANICKED),
        }
    }

    /// Returns whether the node answers that the owner of the request holds the lock already.
    pub(crate) fn is_owned(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "OWNED")
    }

    /// Returns whether the node reports that the request itself is wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        match self {
            Self::Refused { code, .. } => ["ERR", "WRONGTYPE"].contains(&code.as_str()),
            Self::UnknownCommand(_) => true,
            _ => false,
        }
    }

    /// Returns whether the node may have done what it was asked, without having answered.
    pub(crate) fn may_be_done(&self) -> bool {
        match self {
            Self::Of { why, .. } => why.may_be_done(),
            why => matches!(why, Self::Silent | Self::Broken(_)),
        }
    }

    /// Returns whether the node answered the request, with whatever error.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::UnknownCommand(_)
                | Self::Guarded { .. }
                | Self::NotYet { .. }
                | Self::Unsettled { .. }
        )
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("it did not answer in time"),
            Self::Unanswered => f.write_str("it has not answered yet"),
            Self::Unreachable(text) | Self::Unfit(text) | Self::Broken(text) => f.write_str(text),
            Self::NoModule => f.write_str("the server has no lock module: start it with --loadmodule libpalisade.so"),
            Self::NoCluster => {
                f.write_str("it belongs to no cluster (cluster-enabled no): give its address as redis://")
            }
            Self::NoDatabase => write!(f, "ERR {NO_DATABASE}"),
            Self::Stranger(what) => write!(f, "no node is there, but {what}: correct its address"),
            Self::Tls(fault) => write!(f, "{fault}: {}", fault.remedy()),
            Self::Full(text) | Self::UnknownCommand(text) => write!(f, "ERR {text}"),
            Self::TurnedAway { code, text } | Self::Refused { code, text } => write!(f, "{code} {text}"),
            Self::Guarded { left_ms, reason, rest } => write!(f, "GUARDED {left_ms} {reason}{rest}"),
            Self::NotYet { left_ms, text } => write!(f, "NOTYET {left_ms} {text}"),
            Self::Unsettled { left_ms, text } => write!(f, "UNSETTLED {left_ms} {text}"),
            Self::Held => f.write_str("somebody else holds it"),
            Self::NotHeld => f.write_str("it does not have the lock any more"),
            Self::Owing(releases) => write!(f, "it did not answer {releases} releases"),
            Self::SameServer(name) => write!(f, "it is the same server as {name}: it counts once"),
            Self::Of { server, why } => write!(f, "{server}: {why}"),
            Self::Each(whys) => {
                let each: Vec<_> = whys.iter().map(ToString::to_string).collect();
                f.write_str(&each.join("; "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, ServerErrorKind, parse_redis_value};

    use super::*;

    fn refused(code: &str, text: &str) -> Why {
        Why::Refused { code: code.to_owned(), text: text.to_owned() }
    }

    /// Each case: a server's answer, the reason, whether the reason is lasting, and whether it is a refusal. The
    /// server's own words stay unchanged.
    #[test]
    fn each_answer_of_a_server() {
        let reason = "this node may have forgotten grants (restart)";
        let rest = " and grants nothing until they have ended: try later";
        let guarded = |rest: &str| Why::Guarded { left_ms: 49_000, reason: reason.to_owned(), rest: rest.to_owned() };
        let full = "max number of clients reached: this server takes 10";
        let unknown = "unknown command 'LOCK.NODE', with args beginning with: ";
        for (said, why, is_lasting, is_refusal) in [
            ("NOPERM no permissions", refused("NOPERM", "no permissions"), true, true),
            ("WRONGPASS invalid", refused("WRONGPASS", "invalid"), true, true),
            ("NOAUTH Authentication required.", refused("NOAUTH", "Authentication required."), true, true),
            ("WRONGTYPE Operation against", refused("WRONGTYPE", "Operation against"), true, true),
            ("DENIED Redis is running", refused("DENIED", "Redis is running"), true, true),
            ("ERR DB index is out of range", Why::NoDatabase, true, true),
            ("ERR ttl must be", refused("ERR", "ttl must be"), true, true),
            ("LOCKPANIC the module failed", refused("LOCKPANIC", "the module failed"), true, false),
            ("LOADING Redis is loading", refused("LOADING", "Redis is loading"), false, false),
            ("OOM command not allowed", refused("OOM", "command not allowed"), false, false),
            ("READONLY You can't write", refused("READONLY", "You can't write"), false, false),
            (&format!("ERR {full}"), Why::Full(full.to_owned()), false, false),
            (&format!("ERR {unknown}"), Why::UnknownCommand(unknown.to_owned()), true, false),
            (&format!("GUARDED 49000 {reason}{rest}"), guarded(rest), false, false),
            (&format!("GUARDED 49000 {reason}"), guarded(""), false, false),
            ("NOTYET 50 ask again", Why::NotYet { left_ms: 50, text: "ask again".to_owned() }, false, false),
            ("UNSETTLED 7 later", Why::Unsettled { left_ms: 7, text: "later".to_owned() }, false, false),
            ("NOTYET soon", refused("NOTYET", "soon"), false, false),
        ] {
            let reply = parse_redis_value(format!("-{said}\r\n").as_bytes());
            assert_eq!(Why::or_value(reply.clone()), Err(why.clone()), "{said}");
            assert_eq!(Why::of(&reply.unwrap().extract_error().unwrap_err()), why, "{said}");
            assert_eq!(why.to_string(), said);
            assert_eq!((why.is_lasting(), why.is_refusal()), (is_lasting, is_refusal), "{said}");
        }
        assert_eq!(Why::answered("ERR", "This instance has cluster support disabled"), Why::NoCluster);
    }

    #[test]
    fn a_server_that_was_not_asked_yet() {
        let error = |code: ServerErrorKind| RedisError::from((code.into(), "it refused", "why".to_owned()));
        let turned_away = |code: &str| Why::TurnedAway { code: code.to_owned(), text: "why".to_owned() };
        assert_eq!(Why::unconnected(&error(ServerErrorKind::BusyLoading)), turned_away("LOADING"));
        assert_eq!(Why::unconnected(&error(ServerErrorKind::ResponseError)), turned_away("ERR"));
        let gone = Why::unconnected(&std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
        assert!(matches!(&gone, Why::Unreachable(_)) && gone.to_string().starts_with("it cannot be reached: "));
        let wrong = RedisError::from((ErrorKind::AuthenticationFailed, "Password authentication failed"));
        assert!(matches!(Why::unconnected(&wrong), Why::Unfit(_)));
        // The node did nothing.
        assert!([Why::Silent, Why::Broken("x".to_owned())].into_iter().all(|why| !why.before_asked().may_be_done()));
        assert!(!turned_away("ERR").is_wrong() && refused("ERR", "why").is_wrong());
    }

    #[test]
    fn one_of_several_servers() {
        let of = |why: Why| why.of_server("h:1");
        let noperm = refused("NOPERM", "no").before_asked().asking_for("+a");
        let each = Why::Each(vec![of(Why::late()), of(noperm)]);
        assert_eq!(each.to_string(), "h:1: it does not answer; h:1: NOPERM no: allow +a");
        assert!(each.is_lasting() && each.is_refusal() && !of(Why::late()).is_lasting());
        assert_eq!(of(refused("OOM", "no")), refused("OOM", "no"));
        assert!(of(Why::Broken("x".to_owned())).may_be_done());
    }
}
