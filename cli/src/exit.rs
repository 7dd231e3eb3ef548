//! How the program ends: its exit codes, and the one line that says why.
//!
//! The codes lie above 128 + 64, the last that a command ended by a signal has, and below 200, where systemd's own begin.

use std::fmt;

use nix::sys::signal::Signal;
use palisade_client::{Error, ErrorKind};
use palisade_quorum::Printable;

/// An argument is wrong, or missing, or the nodes refuse it.
pub const USAGE: u8 = 193;
/// Somebody else holds the lock, and it was not to be waited for.
pub const CONFLICT: u8 = 194;
/// It was waited for as long as was allowed.
pub const TIMED_OUT: u8 = 195;
/// Too few nodes can be asked, or they are guarded.
pub const NO_QUORUM: u8 = 196;
/// The lock was held, and lost before the command had ended; or an owner does not hold what it gives back or extends.
pub const LOST: u8 = 197;
/// The command cannot be started: there is none of this name, or it cannot be run.
pub const NOT_STARTED: u8 = 198;
/// Anything else.
pub const FAILED: u8 = 199;

/// Added to the number of the signal that ended the command, as shells do.
const BY_SIGNAL: u8 = 128;

/// The table of codes, for the help.
pub const TABLE: &str = "\
Exit status:
  that of the command, or 128 + the signal that ended it
  193  an argument is wrong, or the nodes refuse it
  194  somebody else holds the lock
  195  the lock was not free in time (--wait)
  196  too few nodes can be asked, or they are guarded
  197  the lock was lost before the command had ended; this owner does not hold it
  198  the command cannot be started
  199  anything else";

/// How it ended, if nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Code(u8),
    /// By this signal: that of a command, or one that came while it was waited for.
    Signal(Signal),
}

impl End {
    /// All is well.
    pub const OK: Self = Self::Code(0);

    /// The exit status that tells of it.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => BY_SIGNAL + signal as u8,
        }
    }
}

/// Why it failed: a code for programs, a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status.
    pub code: u8,
    /// What to say; empty: nothing.
    pub text: String,
}

impl Failure {
    /// With this code and text.
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// The arguments are wrong.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, text)
    }

    /// Names the lock or the election that it is about.
    pub fn about(self, name: &[u8]) -> Self {
        match self.text.is_empty() {
            true => self,
            false => Self { text: format!("{}: {}", Printable(&String::from_utf8_lossy(name)), self.text), ..self },
        }
    }

    /// Something of this machine failed.
    pub fn of(what: &str, why: impl fmt::Display) -> Self {
        Self::new(FAILED, format!("{what}: {why}"))
    }

    /// Who reads the output is gone: nothing to say, and nobody to say it to.
    pub fn reader_is_gone() -> Self {
        Self::new(End::Signal(Signal::SIGPIPE).code(), "")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Contended => CONFLICT,
            ErrorKind::TimedOut => match error.in_the_way() {
                // Not others, but the nodes: nobody knows whether it is free.
                Some(ErrorKind::NoQuorum | ErrorKind::Guarded | ErrorKind::Expired) => NO_QUORUM,
                _ => TIMED_OUT,
            },
            ErrorKind::NoQuorum | ErrorKind::Guarded | ErrorKind::Expired | ErrorKind::Overtaken => NO_QUORUM,
            ErrorKind::Lost => LOST,
            ErrorKind::BadArgument | ErrorKind::Configuration | ErrorKind::NotAllowed | ErrorKind::Owned => USAGE,
            _ => FAILED,
        };
        Self::new(code, error.to_string())
    }
}
