//! Times and numbers that hold for every connection.

use std::time::Duration;

use crate::net::pace::Given;

/// How long a connection may take to be made, and the node to say who it is.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time a node is given for a request of which no lease depends on the answer.
pub const UNHURRIED: Given = Given::Within { least: CONNECT_TIMEOUT, most: CONNECT_TIMEOUT };

/// Why a request has no answer whose connection broke.
pub const BROKE: &str = "the connection broke";

/// How much later than it promised a node may answer, before its connection is taken for dead.
pub const LATE: Duration = Duration::from_secs(1);

/// Attempts at a time on one server: enough for a hundred thousand a second on a network of a millisecond, few enough that the node has
/// answered the last of them a moment after the first. Extensions and releases are not counted.
pub const WINDOW: usize = 128;

/// How long a request waits for the very first connection.
pub fn connect_within(given: Given) -> Duration {
    match given {
        Given::Exactly(time) => time,
        Given::Within { .. } => CONNECT_TIMEOUT,
    }
}
