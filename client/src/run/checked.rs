//! What the options of a lock come to.

use std::time::Duration;

use crate::net::pace::Given;

/// What the options come to.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    pub ttl_ms: u32,
    /// How long a node is given to answer.
    pub given: Given,
    /// The same of an extension.
    pub extending: Given,
    pub max_hold: Duration,
    pub told_at_once: bool,
}
