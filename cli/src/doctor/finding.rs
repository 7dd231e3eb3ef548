//! A finding of `palisade doctor`, and how severe it is.

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing has to be changed.
    Ok,
    /// For information: nothing has to be changed.
    Note,
    /// Something should be changed, although locks are safe now.
    Change,
    /// Locks are not safe, or cannot be acquired.
    Fail,
}

/// A finding: what was checked, how severe it is, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// The name of the node that the finding is about, or "all nodes".
    pub about: String,
    pub found: String,
    /// The remedy; empty if there is none.
    pub advice: String,
}

impl Finding {
    pub fn new(level: Level, about: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level, about: about.to_owned(), found: found.into(), advice: advice.into() }
    }
}

/// The findings about one node, or about all of them.
pub struct Findings<'a> {
    about: &'a str,
    pub all: Vec<Finding>,
}

impl<'a> Findings<'a> {
    /// Creates an empty list of findings about a node.
    pub fn about(about: &'a str) -> Self {
        Self { about, all: vec![] }
    }

    /// Adds a finding with its remedy.
    pub fn add(&mut self, level: Level, found: impl Into<String>, advice: impl Into<String>) {
        self.all.push(Finding::new(level, self.about, found, advice));
    }
}

/// Checks that `findings` include this text at this level, and nothing worse.
#[cfg(test)]
#[track_caller]
pub fn assert_worst(findings: &[Finding], text: &str, level: Level) {
    let found = findings.iter().find(|finding| finding.found.contains(text));
    assert_eq!(found.map(|finding| finding.level), Some(level), "{text}: {findings:?}");
    let worst = findings.iter().map(|finding| finding.level).max();
    assert_eq!(worst, Some(level), "{text}: {findings:?}");
}
