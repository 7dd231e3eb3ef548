//! Timeouts, and maximum numbers of requests, of every connection.

use std::time::Duration;

use crate::net::pace::Given;

/// Maximum time to open a connection and identify the node.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time that a node has to answer a request on which no lease depends.
pub const UNHURRIED: Given = Given::Within { least: CONNECT_TIMEOUT, most: CONNECT_TIMEOUT };

/// The error of a request whose connection broke.
pub const BROKE: &str = "the connection broke";

/// Maximum delay of a waiting request's answer after the end of its wait. Then its connection counts as dead.
pub const LATE: Duration = Duration::from_secs(1);

/// Maximum number of concurrent attempts on one server. It is enough for a hundred thousand a second with a round trip
/// of a millisecond. It is so low that the node answers the last one soon after the first. Extensions and releases do
/// not count.
pub const WINDOW: usize = 128;

/// Returns how long a request waits for the very first connection.
pub fn connect_within(given: Given) -> Duration {
    match given {
        Given::Exactly(time) => time,
        Given::Within { .. } => CONNECT_TIMEOUT,
    }
}
