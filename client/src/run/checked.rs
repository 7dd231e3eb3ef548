//! The options of a lock after they have been checked.

use std::time::Duration;

use crate::net::pace::Given;

/// The options of a lock, in the form that acquisitions use.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    pub ttl_ms: u32,
    /// The time that a node has to answer.
    pub given: Given,
    /// The time that a node has to answer an extension.
    pub extending: Given,
    pub max_hold: Duration,
    pub told_at_once: bool,
}
