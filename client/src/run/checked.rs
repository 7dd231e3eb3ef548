//! The options of a lock, checked.

use std::time::Duration;

use crate::net::pace::Given;

/// The options of a lock, in the form that acquisitions use.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    pub ttl_ms: u32,
    /// A node's time to answer.
    pub given: Given,
    /// A node's time to answer an extension.
    pub extending: Given,
    pub max_hold: Duration,
    pub told_at_once: bool,
}
