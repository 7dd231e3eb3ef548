//! Why a command was refused, as its client reads it: the texts of the rules where they are about a request, the agent's own where they
//! are about the agent or the quorum. Each begins with a stable word; docs/errors.md has them all.

use std::fmt;

use palisade_client::{Error, ErrorKind};
use palisade_quorum::Refusal;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// By the rules that nodes have too.
    Rule(Refusal),
    /// By the quorum, or by the agent.
    Text(String),
}

/// What is answered when the agent ends.
pub const CLOSING: &str = "CLOSING the agent is ending: connect again, and send it with RETRY";

/// What is answered to a connection that needs a password and has not given it, as servers answer it.
pub const NO_AUTH: &str = "NOAUTH Authentication required.";

/// What is answered to a wrong password, as servers answer it.
pub const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// What is answered to the version of a protocol that there is not, as servers answer it.
pub const NO_PROTOCOL: &str = "NOPROTO unsupported protocol version";

/// What is answered to one connection more than may be.
pub fn too_many_connections(max: usize) -> String {
    format!("ERR max number of clients reached: this agent takes {max} connections (--max-connections)")
}

/// That a command was given too few words, or too many, as servers say it.
pub fn wrong_number(name: &str) -> Refused {
    Refused::Text(format!("ERR wrong number of arguments for '{name}' command"))
}

impl Refused {
    /// With this text, whose first word is its code.
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
            // The nodes' own words on it, if it was they who refused.
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

    /// Whoever looks for the text of an error in docs/errors.md finds what to do.
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
