//! The errors that clients read. They have the texts of the rules for requests, and the agent's own texts about itself
//! and the quorum. Each begins with a stable word; docs/errors.md lists them all.

use std::fmt;

use palisade_client::{Error, ErrorKind};
use palisade_quorum::Refusal;

/// A refusal with its text for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A refusal that a node would answer with too, by the rules for requests.
    Rule(Refusal),
    /// A refusal that only the agent or the quorum gives. Its first word is the code.
    Text(String),
}

/// The error for clients that are waiting when the agent ends.
pub const CLOSING: &str = "CLOSING the agent is ending: connect again, and send it with RETRY";

/// The error for a connection that has not given the password, in the words of a server.
pub const NO_AUTH: &str = "NOAUTH Authentication required.";

/// The error for a wrong password, in the words of a server.
pub const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// The error for an unknown protocol version in HELLO, in the words of a server.
pub const NO_PROTOCOL: &str = "NOPROTO unsupported protocol version";

/// Returns the error for a connection above the limit of `max` connections.
pub fn too_many_connections(max: usize) -> String {
    format!("ERR max number of clients reached: this agent takes {max} connections (--max-connections)")
}

/// Returns the error for a command with too few or too many words, in the words of a server.
pub fn wrong_number(name: &str) -> Refused {
    Refused::Text(format!("ERR wrong number of arguments for '{name}' command"))
}

impl Refused {
    /// Creates a refusal with this text. The first word is its code.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::Rule(refusal)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Owned => Self::Rule(Refusal::Owned),
            ErrorKind::Guarded => {
                let ms = error.retry_after().map_or(0, |after| after.as_millis());
                Self::Text(format!("GUARDED {ms} {error}"))
            }
            ErrorKind::Closed => Self::text(CLOSING),
            // If nodes refused the request, the error repeats their words.
            ErrorKind::BadArgument => Self::Text(format!("ERR {error}")),
            _ => Self::Text(format!("NOQUORUM {error}")),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(refusal) => refusal.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each error text is in docs/errors.md, where readers find what to do about it.
    #[test]
    fn the_page_of_errors_has_them() {
        let page = include_str!("../../docs/errors.md");
        let (_, page) = page.split_once("\n## Errors of an agent\n").unwrap();
        for text in [CLOSING, &too_many_connections(10_000)] {
            assert!(page.contains(&format!("`{text}`")), "docs/errors.md lacks: {text}");
        }
        assert!(page.contains("`NOQUORUM ") && page.contains("`ERR Protocol error: …`"));
    }
}
