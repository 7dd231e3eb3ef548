//! The refusals that clients read: the texts of the rules for requests, and the agent's own texts about itself and the
//! quorum. Each begins with a stable word; docs/errors.md lists them all.

use std::fmt;

use palisade_client::{Error, ErrorKind};
use palisade_quorum::Refusal;

/// The reason for a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A refusal by the rules that nodes have as well.
    Rule(Refusal),
    /// A refusal by the quorum, or by the agent.
    Text(String),
}

/// The answer to waiting clients when the agent ends.
pub const CLOSING: &str = "CLOSING the agent is ending: connect again, and send it with RETRY";

/// The answer to a connection that has not given the required password, in the words of a server.
pub const NO_AUTH: &str = "NOAUTH Authentication required.";

/// The answer to a wrong password, in the words of a server.
pub const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// The answer to an unknown protocol version, in the words of a server.
pub const NO_PROTOCOL: &str = "NOPROTO unsupported protocol version";

/// Returns the answer to a connection above the limit.
pub fn too_many_connections(max: usize) -> String {
    format!("ERR max number of clients reached: this agent takes {max} connections (--max-connections)")
}

/// Returns the answer to a command with too few or too many words, in the words of a server.
pub fn wrong_number(name: &str) -> Refused {
    Refused::Text(format!("ERR wrong number of arguments for '{name}' command"))
}

impl Refused {
    /// Returns a refusal with this text, whose first word is its code.
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
            // If nodes refused the request, the error has their own words.
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

    /// Each error text is in docs/errors.md, where a reader finds what to do.
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
