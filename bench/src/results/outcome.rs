//! The measurements of a benchmark, and the figures that should stay below or above a limit.

use serde::{Deserialize, Serialize};

use super::{Plot, Table};

/// The results of a benchmark: tables, plots and budgets.
#[derive(Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The subject of the benchmark, in a few words.
    pub title: String,
    pub tables: Vec<Table>,
    pub plots: Vec<Plot>,
    pub budgets: Vec<Budget>,
}

/// A figure with its limit. Nothing fails when it misses the limit.
#[derive(Serialize, Deserialize)]
pub struct Budget {
    /// The figure's name, with its unit.
    pub what: String,
    pub figure: f64,
    pub limit: f64,
    pub keep: Keep,
}

/// The side of the limit on which a figure should be.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    AtMost,
    AtLeast,
}

impl Budget {
    /// Returns a budget of a figure that should be at most `limit`.
    pub fn at_most(what: impl Into<String>, figure: f64, limit: f64) -> Self {
        Self { what: what.into(), figure, limit, keep: Keep::AtMost }
    }

    /// Returns a budget of a figure that should be at least `limit`.
    pub fn at_least(what: impl Into<String>, figure: f64, limit: f64) -> Self {
        Self { what: what.into(), figure, limit, keep: Keep::AtLeast }
    }

    /// Returns true if the figure keeps to its limit.
    pub fn is_met(&self) -> bool {
        match self.keep {
            Keep::AtMost => self.figure <= self.limit,
            Keep::AtLeast => self.figure >= self.limit,
        }
    }
}
