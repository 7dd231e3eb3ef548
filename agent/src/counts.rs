//! Counters of the agent's work since it started, for INFO and metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that all connections may change: a counter, which only grows, or a gauge.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one to the number.
    pub fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one from the number.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number as it is now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one command.
#[derive(Debug)]
pub struct OfCommand {
    /// The name of the command.
    pub name: &'static str,
    /// The number of calls of the command.
    pub calls: Count,
    /// The number of calls that were answered with an error.
    pub errors: Count,
}

/// All counters of the agent.
#[derive(Debug)]
pub struct Counts {
    /// The number of open connections.
    pub connections: Count,
    /// The number of connections that were accepted.
    pub accepted: Count,
    /// The number of connections that were refused, because there was no place.
    pub turned_away: Count,
    /// The number of connections that were closed because they sent something that is no request.
    pub garbage: Count,
    /// The number of connections that were closed because they did not read, authenticate or complete a request in
    /// time.
    pub too_slow: Count,
    /// The number of wrong passwords.
    pub wrong_passwords: Count,
    /// The number of connections that a fault (a panic) of the agent ended.
    pub panics: Count,
    /// The number of calls of commands that the agent does not have.
    pub unknown: Count,
    /// The number of connections that are waiting for the answer to a command which waits for other clients.
    pub blocked: Count,
    /// The counters of each command, in the order of the table of commands.
    pub commands: Vec<OfCommand>,
}

impl Counts {
    /// Creates counters for commands with these names, all zero.
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
