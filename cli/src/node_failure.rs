//! What is wrong with a node: why it gave no answer, or the error that it answered.

use std::fmt;

use redis::RedisError;
use serde::{Serialize, Serializer};

use crate::show::time;

/// How the client begins what a server said before it could be asked anything.
const WHILE_CONNECTING: &str = "it cannot be reached: ";

/// The errors with which a node refuses the request itself: asked again, it answers the same.
const REFUSALS: [&str; 6] = ["DENIED", "ERR", "NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE"];

/// The first words of a server about a database that there is not.
const NO_DATABASE: &str = "DB index is out of range";

/// The words of a server without room for one more client, under the code that it has for everything.
const TOO_MANY_CLIENTS: &str = "max number of clients reached";

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeFailure {
    /// It does not answer, or not what a lock node answers.
    Silent(String),
    /// A server without the lock module.
    NoModule,
    /// A server of another kind, which speaks this.
    Stranger(String),
    /// A server with as many clients as it takes.
    Full,
    /// The server of another node of the list, which has this name.
    SameServer(String),
    /// It answered with an error: its first word, and the rest.
    Error(String, String),
    /// One of several servers of it says so.
    Of(String, Box<Self>),
}

impl NodeFailure {
    /// It did not answer in time.
    pub fn late() -> Self {
        Self::Silent("it does not answer".to_owned())
    }

    /// There is no connection to it.
    pub fn unreachable(error: &RedisError) -> Self {
        match Self::from(error) {
            Self::Silent(why) => Self::Silent(format!("{WHILE_CONNECTING}{why}")),
            answered => answered,
        }
    }

    /// An answer that is not one of a lock node.
    pub fn strange(command: &str, why: impl fmt::Display) -> Self {
        Self::Silent(format!("its answer to {command} is not understood: {why}"))
    }

    /// An error that a server answered.
    pub fn answered(code: &str, text: &str) -> Self {
        match code {
            "ERR" if text.contains("unknown command") => Self::NoModule,
            "ERR" if text == TOO_MANY_CLIENTS => Self::Full,
            _ => Self::Error(code.to_owned(), text.to_owned()),
        }
    }

    /// As the client tells it.
    pub fn told(why: &str) -> Self {
        if why.contains("no lock module") {
            return Self::NoModule;
        }
        // A server of a cluster or a Sentinel, before what it says.
        if let Some((server, said)) = why.split_once(": ")
            && server.contains([':', '/'])
            && !server.contains(' ')
        {
            return Self::Of(server.to_owned(), Box::new(Self::told(said)));
        }
        let said = why.strip_prefix(WHILE_CONNECTING).unwrap_or(why);
        match said.split_once(' ') {
            Some((word, text)) if is_code(word.trim_matches(['"', ':'])) => {
                Self::answered(word.trim_matches(['"', ':']), text)
            }
            _ => Self::Silent(why.to_owned()),
        }
    }

    /// Tells whether it does not pass by itself: somebody has to do something about it.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::NoModule | Self::SameServer(_) | Self::Stranger(_) => true,
            Self::Of(_, said) => said.is_lasting(),
            Self::Full => false,
            Self::Error(..) | Self::Silent(_) => self.is_refusal(),
        }
    }

    /// Whether the node refuses the request itself, so that it is of no use to ask again.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Error(code, _) => REFUSALS.contains(&code.as_str()),
            Self::Of(_, said) => said.is_refusal(),
            Self::Silent(_) | Self::NoModule | Self::SameServer(_) | Self::Stranger(_) | Self::Full => false,
        }
    }

    /// Tells whether its user lacks the permission, and nothing else is wrong.
    pub fn is_no_permission(&self) -> bool {
        matches!(self, Self::Error(code, _) if code == "NOPERM")
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        self.remedy().unwrap_or(match self {
            Self::Silent(_) => "bring it back, or replace it as docs/operations.md says",
            _ => "see the log of the server",
        })
    }

    /// What to do about it, where that is known from what the node says.
    fn remedy(&self) -> Option<&'static str> {
        let code = match self {
            Self::Silent(_) => return None,
            Self::Of(_, said) => return said.remedy(),
            Self::SameServer(_) => return Some("give each node once"),
            Self::Stranger(_) => return Some("correct its address"),
            Self::Full => return Some("raise maxclients, or see who has so many connections (CLIENT LIST)"),
            Self::Error(code, text) if code == "ERR" && text.starts_with(NO_DATABASE) => {
                return Some(
                    "correct the number of the database in its address, or raise `databases` in its redis.conf",
                );
            }
            Self::NoModule => {
                return Some(
                    "load the module: loadmodule /path/to/libpalisade.so in its redis.conf, as docs/install.md says",
                );
            }
            Self::Error(code, _) => code.as_str(),
        };
        Some(match code {
            "NOAUTH" => "put its password into the address: redis://:password@host, or redis://user:password@host",
            "WRONGPASS" => {
                "correct the user or the password in the address, or the server's own: ACL LIST shows its users"
            }
            "NOPERM" => "allow its user what it lacks (ACL SETUSER): docs/cli.md says what palisade needs",
            "WRONGTYPE" => "give the lock another name, or move what is there (TYPE shows what it is)",
            "DENIED" => "give it a password, or a bind address, as its protected mode asks",
            "LOADING" => "wait until it has loaded its data",
            "READONLY" | "MASTERDOWN" => "give the address of a master",
            _ => return None,
        })
    }

    /// What is wrong and, where that is known, what to do, in a line.
    pub fn with_remedy(&self) -> String {
        self.remedy().map_or(self.to_string(), |remedy| format!("{self}: {remedy}"))
    }
}

/// Whether a word is the first of a server's error.
fn is_code(word: &str) -> bool {
    word.len() >= 3 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

impl From<&RedisError> for NodeFailure {
    fn from(error: &RedisError) -> Self {
        match (error.code(), error.detail()) {
            (Some(code), text) if !error.is_io_error() => Self::answered(code, text.unwrap_or_default()),
            _ => Self::Silent(error.to_string()),
        }
    }
}

impl fmt::Display for NodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, text) = match self {
            Self::Silent(why) => return f.write_str(why),
            Self::NoModule => return f.write_str("the server has no lock module"),
            Self::Stranger(what) => return write!(f, "no node is there, but {what}"),
            Self::Full => return write!(f, "ERR {TOO_MANY_CLIENTS}"),
            Self::SameServer(name) => return write!(f, "it is the same server as {name}: it counts once"),
            Self::Of(server, said) => return write!(f, "{server}: {said}"),
            Self::Error(code, text) => (code.as_str(), text.as_str()),
        };
        match code {
            "NOAUTH" => f.write_str("NOAUTH it needs a password, and its address has none"),
            "WRONGPASS" => f.write_str("WRONGPASS it does not accept the user or the password of its address"),
            "WRONGTYPE" => f.write_str("WRONGTYPE the key is in use for something that is not a lock"),
            "GUARDED" => {
                let (ms, why) = text.split_once(' ').unwrap_or((text, ""));
                let why = why.split(" and grants nothing").next().unwrap_or_default();
                write!(f, "guarded for {}: {why}", time(ms.parse().unwrap_or(0)))
            }
            _ => write!(f, "{code} {text}"),
        }
    }
}

impl Serialize for NodeFailure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What is wrong with some of `count` nodes, each text once, after those that it is about.
pub fn grouped<'a>(failures: impl IntoIterator<Item = (&'a str, String)>, count: usize) -> Vec<(String, String)> {
    let mut groups: Vec<(String, Vec<&str>)> = vec![];
    for (node, text) in failures {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((text, vec![node])),
        }
    }
    let who = |nodes: &[&str]| match nodes {
        [node] => (*node).to_owned(),
        all if all.len() == count => format!("all {count} nodes"),
        some => format!("{} nodes ({})", some.len(), some.join(", ")),
    };
    groups.into_iter().map(|(text, nodes)| (who(&nodes), text)).collect()
}

/// The same in a line.
pub fn line<'a>(failures: impl IntoIterator<Item = (&'a str, String)>, count: usize) -> String {
    let groups = grouped(failures, count).into_iter().map(|(who, text)| format!("{who}: {text}"));
    groups.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_once() {
        let of = |texts: &[(&'static str, &str)], count| line(texts.iter().map(|(n, t)| (*n, (*t).to_owned())), count);
        assert_eq!(of(&[("a", "x")], 1), "a: x");
        assert_eq!(of(&[("a", "x"), ("b", "x"), ("c", "x")], 3), "all 3 nodes: x");
        assert_eq!(of(&[("a", "x"), ("b", "y"), ("c", "x")], 5), "2 nodes (a, c): x; b: y");
    }

    #[test]
    fn what_the_client_tells() {
        for (why, text, refuses) in [
            ("it cannot be reached: \"NOAUTH\": HELLO must be", "NOAUTH it needs a password", true),
            ("it cannot be reached: \"WRONGPASS\": invalid", "WRONGPASS it does not accept", true),
            ("NOPERM this user has no permissions", "NOPERM this user has no permissions", true),
            ("ERR ttl must be", "ERR ttl must be", true),
            ("it cannot be reached: Connection refused", "it cannot be reached: Connection refused", false),
            ("OOM command not allowed", "OOM command not allowed", false),
            ("ERR max number of clients reached", "ERR max number of clients reached", false),
            ("it did not answer in time", "it did not answer in time", false),
            ("the server has no lock module: start it", "the server has no lock module", false),
            (
                "GUARDED 49000 this node may have forgotten grants (restart) and grants nothing until they have ended: try",
                "guarded for 49s: this node may have forgotten grants (restart)",
                false,
            ),
        ] {
            let failure = NodeFailure::told(why);
            assert!(failure.to_string().starts_with(text), "{failure}");
            assert_eq!(failure.is_refusal(), refuses, "{why}");
        }
    }
}
