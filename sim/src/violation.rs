//! The laws that a history can break, each with a description.

use std::fmt;

use crate::history::{HeldAs, Holder, TimeUs};

/// A client's reliance on a lock during a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The holder that relies on the lock.
    pub who: Holder,
    /// The mode in which the holder relies on the lock.
    pub mode: HeldAs,
    /// The holder's token.
    pub token: u64,
    /// The moment from which the client relies on the lock.
    pub from: TimeUs,
    /// The moment until which the client relies on the lock.
    pub until: TimeUs,
}

/// A law that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Two holders rely on one lock at the same time in conflicting modes.
    Overlap { key: u32, first: Claim, second: Claim },
    /// A later holder's token is not larger than the largest earlier one.
    TokenOrder { key: u32, before: u64, later: Claim },
    /// A holder's token fell while it held the lock.
    TokenFell { key: u32, claim: Claim, to: u64 },
    /// More permits are held than the smallest limit of their holders allows.
    TooMany { key: u32, last: Claim, count: usize },
    /// A holder relied again on a lock that it had lost.
    Revived { key: u32, who: Holder },
    /// A write of the current holder was refused, because the register had seen a larger token.
    FencedOut { key: u32, claim: Claim, seen: u64 },
}

impl Violation {
    /// Returns the law's name.
    pub fn law(&self) -> &'static str {
        match self {
            Self::Overlap { .. } | Self::TooMany { .. } | Self::Revived { .. } => "exclusion",
            Self::TokenOrder { .. } | Self::TokenFell { .. } => "token order",
            Self::FencedOut { .. } => "guarded register",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { key, first, second } => write!(
                f,
                "exclusion: key {key} is held by {}{} until {} us, and by {}{} from {} us on",
                first.who,
                shown(first.mode),
                first.until,
                second.who,
                shown(second.mode),
                second.from
            ),
            Self::TooMany { key, last, count } => {
                write!(f, "exclusion: key {key} has {count} holders{} of {}", shown(last.mode), last.who)
            }
            Self::TokenOrder { key, before, later } => write!(
                f,
                "token order: {} holds key {key}{} with token {}, and an earlier holder had {before}",
                later.who,
                shown(later.mode),
                later.token
            ),
            Self::TokenFell { key, claim, to } => {
                write!(f, "token order: {} held key {key} with token {}, then with {to}", claim.who, claim.token)
            }
            Self::Revived { key, who } => write!(f, "exclusion: {who} relies again on key {key}, which it had lost"),
            Self::FencedOut { key, claim, seen } => write!(
                f,
                "guarded register: {} holds key {key} with token {}, and its write is refused: {seen} was seen",
                claim.who, claim.token
            ),
        }
    }
}

/// Returns the mode as text; empty for an exclusive lock.
fn shown(mode: HeldAs) -> String {
    match mode {
        HeldAs::Exclusive => String::new(),
        HeldAs::Shared => " with others".to_owned(),
        HeldAs::Permit { number, limit } => format!(" by permit {number} of {limit}"),
    }
}
