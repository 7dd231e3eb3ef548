//! The program's end: its exit codes, and the one line that says why.
//!
//! The codes are above 192, since a command that a signal ended has a code of up to 128 + 64. They are below 200, where
//! systemd's own codes begin.

use std::fmt;

use nix::sys::signal::Signal;
use palisade_client::{Error, ErrorKind};
use palisade_quorum::Printable;

/// An argument is wrong or missing, or the nodes refuse it.
pub const USAGE: u8 = 193;
/// Somebody else holds the lock, and waiting was not allowed.
pub const CONFLICT: u8 = 194;
/// The lock was not granted within the wait.
pub const TIMED_OUT: u8 = 195;
/// Too few nodes can be asked, or they are guarded.
pub const NO_QUORUM: u8 = 196;
/// The lock was held, but lost before the command ended; or an owner does not hold the lock that it wants to release or
/// extend.
pub const LOST: u8 = 197;
/// The command cannot be started: it does not exist, or cannot be run.
pub const NOT_STARTED: u8 = 198;
/// The exit status of a failure without a status of its own.
pub const FAILED: u8 = 199;

/// The base of the exit status when a signal ended the command, as in shells.
const BY_SIGNAL: u8 = 128;

/// The table of codes in the help.
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

/// The end of a run without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An exit code.
    Code(u8),
    /// A signal: the one that ended the command, or one that came during the wait.
    Signal(Signal),
}

impl End {
    /// Success.
    pub const OK: Self = Self::Code(0);

    /// Returns the exit status.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => BY_SIGNAL + signal as u8,
        }
    }
}

/// A failure: a code for programs, a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status.
    pub code: u8,
    /// The line; empty if there is nothing to print.
    pub text: String,
}

impl Failure {
    /// Returns a failure with this code and text.
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Returns a failure caused by the arguments.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, text)
    }

    /// Adds the name of the lock or the election that the failure is about.
    pub fn about(self, name: &[u8]) -> Self {
        match self.text.is_empty() {
            true => self,
            false => Self { text: format!("{}: {}", Printable(&String::from_utf8_lossy(name)), self.text), ..self },
        }
    }

    /// Returns a failure with a cause on this machine.
    pub fn of(what: &str, why: impl fmt::Display) -> Self {
        Self::new(FAILED, format!("{what}: {why}"))
    }

    /// Returns the failure when the reader of the output is gone: then no message is printed.
    pub fn reader_is_gone() -> Self {
        Self::new(End::Signal(Signal::SIGPIPE).code(), "")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Contended => CONFLICT,
            ErrorKind::TimedOut => match error.in_the_way() {
                // The nodes are the cause, not other holders: the lock may be free.
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
