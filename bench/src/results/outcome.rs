//! What a benchmark measured, and which figures are meant to stay under a limit, or over it.

use serde::{Deserialize, Serialize};

use super::{Plot, Table};

/// What a benchmark measured.
#[derive(Default, Serialize, Deserialize)]
pub struct Outcome {
    /// What was measured, in a few words.
    pub title: String,
    pub tables: Vec<Table>,
    pub plots: Vec<Plot>,
    pub budgets: Vec<Budget>,
}

/// A figure beside what it is meant to stay under, or over. Nothing fails when it does not.
#[derive(Serialize, Deserialize)]
pub struct Budget {
    /// What the figure is, with its unit.
    pub what: String,
    pub figure: f64,
    pub limit: f64,
    pub keep: Keep,
}

/// On which side of its limit a figure belongs.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    AtMost,
    AtLeast,
}

impl Budget {
    /// `figure` is at most `limit`.
    pub fn at_most(what: impl Into<String>, figure: f64, limit: f64) -> Self {
        Self { what: what.into(), figure, limit, keep: Keep::AtMost }
    }

    /// `figure` is at least `limit`.
    pub fn at_least(what: impl Into<String>, figure: f64, limit: f64) -> Self {
        Self { what: what.into(), figure, limit, keep: Keep::AtLeast }
    }

    /// Whether the figure is on the right side.
    pub fn is_met(&self) -> bool {
        match self.keep {
            Keep::AtMost => self.figure <= self.limit,
            Keep::AtLeast => self.figure >= self.limit,
        }
    }
}
