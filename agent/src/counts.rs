//! Counters of the agent's work since it started, for INFO and metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, or one that rises and falls.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one command.
#[derive(Debug)]
pub struct OfCommand {
    /// The name.
    pub name: &'static str,
    /// The number of calls.
    pub calls: Count,
    /// The number of calls answered with an error.
    pub errors: Count,
}

/// All counters.
#[derive(Debug)]
pub struct Counts {
    /// Open connections.
    pub connections: Count,
    /// Accepted connections.
    pub accepted: Count,
    /// Connections that found no place.
    pub turned_away: Count,
    /// Connections closed because of what they sent.
    pub garbage: Count,
    /// Connections closed because they did not read, authenticate, or complete a request in time.
    pub too_slow: Count,
    /// Connections that gave a wrong password.
    pub wrong_passwords: Count,
    /// Connections ended by a fault of the agent.
    pub panics: Count,
    /// Commands that do not exist here.
    pub unknown: Count,
    /// Connections that wait for the answer of a blocking command.
    pub blocked: Count,
    /// The counters of each command, in the order of the table.
    pub commands: Vec<OfCommand>,
}

impl Counts {
    /// Returns counters for commands with these names, all zero.
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let of = |name| OfCommand { name, calls: Count::default(), errors: Count::default() };
        Self {
            connections: Count::default(),
            accepted: Count::default(),
            turned_away: Count::default(),
            garbage: Count::default(),
            too_slow: Count::default(),
            wrong_passwords: Count::default(),
            panics: Count::default(),
            unknown: Count::default(),
            blocked: Count::default(),
            commands: names.into_iter().map(of).collect(),
        }
    }
}
