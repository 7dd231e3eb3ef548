//! What the agent has done since it started, counted: for INFO and metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that grows, or one that rises and falls.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Of one command.
#[derive(Debug)]
pub struct OfCommand {
    /// Its name.
    pub name: &'static str,
    /// How often it was sent.
    pub calls: Count,
    /// How often it was answered with an error.
    pub errors: Count,
}

/// All of it.
#[derive(Debug)]
pub struct Counts {
    /// Connections that are open.
    pub connections: Count,
    /// Connections that were accepted.
    pub accepted: Count,
    /// Connections that were one too many.
    pub turned_away: Count,
    /// Connections that were closed for what they sent.
    pub garbage: Count,
    /// Connections that were closed since they did not read, say who they are, or end what they began.
    pub too_slow: Count,
    /// Connections that gave a wrong password.
    pub wrong_passwords: Count,
    /// Connections that ended with a fault of the agent's own.
    pub panics: Count,
    /// Commands that there are not here.
    pub unknown: Count,
    /// Connections that wait for the answer of a command that blocks.
    pub blocked: Count,
    /// Each command, in the order of the table.
    pub commands: Vec<OfCommand>,
}

impl Counts {
    /// Of commands with these names, none of which has been sent.
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
