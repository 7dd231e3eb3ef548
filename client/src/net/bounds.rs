//! Times and numbers that apply to every connection.

use std::time::Duration;

use crate::net::pace::Given;

/// Maximum time to open a connection and identify the node.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A node's time to answer a request that no lease depends on.
pub const UNHURRIED: Given = Given::Within { least: CONNECT_TIMEOUT, most: CONNECT_TIMEOUT };

/// The error of a request whose connection broke.
pub const BROKE: &str = "the connection broke";

/// Maximum delay of a waiting request's answer beyond its time, before its connection counts as dead.
pub const LATE: Duration = Duration::from_secs(1);

/// Maximum number of concurrent attempts on one server: enough for a hundred thousand a second with a round trip of a
/// millisecond. Few enough that the node answers the last of them a moment after the first. Extensions and releases do
/// not count.
pub const WINDOW: usize = 128;

/// Returns how long a request waits for the very first connection.
pub fn connect_within(given: Given) -> Duration {
    match given {
        Given::Exactly(time) => time,
        Given::Within { .. } => CONNECT_TIMEOUT,
    }
}
