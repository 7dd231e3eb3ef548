//! `palisade doctor`: whether a set of nodes is fit for locks, and what to change.

mod each;
mod rights;
mod set;

use std::collections::HashMap;

use futures_util::future::join_all;
use redis::{FromRedisValue, cmd};
use serde::Serialize;

pub use self::rights::Whose;
use crate::exit::{End, Failure};
use crate::node_view::NodeView;
use crate::nodes::Nodes;
use crate::server::Link;
use crate::show::{json, out};

/// Settings that are looked at.
const SETTINGS: [&str; 7] =
    ["appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory", "maxmemory-policy", "timeout", "lock.*"];

/// A node, and how it is set up.
#[derive(Clone, Debug, Default)]
pub struct Patient {
    pub view: NodeView,
    /// By name; `None`: it does not tell.
    pub settings: Option<HashMap<String, String>>,
}

impl Patient {
    /// A setting, or nothing where it is not known.
    fn setting(&self, name: &str) -> &str {
        self.settings.as_ref().and_then(|settings| settings.get(name)).map_or("", String::as_str)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Something should be changed.
    Change,
    /// Locks are not safe, or cannot be had.
    Fail,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// A node, or all of them.
    pub about: String,
    pub found: String,
    /// What to do; empty: nothing.
    pub advice: String,
}

impl Finding {
    fn new(level: Level, about: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level, about: about.to_owned(), found: found.into(), advice: advice.into() }
    }
}

/// Checks the nodes and says what was found, the worst last.
///
/// # Errors
/// The output cannot be written.
pub async fn run(nodes: &Nodes, whose: &Whose<'_>, as_json: bool) -> Result<End, Failure> {
    let looked_at = NodeView::all(nodes).await;
    let patients = join_all(looked_at.into_iter().map(|(view, link)| async {
        let settings = match link {
            Some(mut link) => settings(&mut link).await,
            None => None,
        };
        Patient { view, settings }
    }))
    .await;
    let mut findings = set::check(&patients);
    findings.extend(patients.iter().flat_map(each::check));
    findings.extend(rights::check(nodes, whose).await);
    findings.sort_by_key(|finding| finding.level);
    let worst = findings.last().map_or(Level::Ok, |finding| finding.level);
    if as_json {
        json(&findings)?;
    } else {
        out(&text(&findings))?;
    }
    Ok(End::Code(match worst {
        Level::Ok | Level::Note => 0,
        Level::Change => 1,
        Level::Fail => 2,
    }))
}

async fn settings(link: &mut Link) -> Option<HashMap<String, String>> {
    let mut all = HashMap::new();
    // One name each: servers before 7.0 take no more.
    for name in SETTINGS {
        let reply = link.ask(cmd("CONFIG").arg("GET").arg(name)).await.ok()?;
        all.extend(HashMap::<String, String>::from_redis_value(reply).ok()?);
    }
    Some(all)
}

fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let level = match finding.level {
            Level::Ok => "ok    ",
            Level::Note => "note  ",
            Level::Change => "CHANGE",
            Level::Fail => "FAIL  ",
        };
        let advice = if finding.advice.is_empty() { String::new() } else { format!("\n        {}", finding.advice) };
        format!("{level}  {}: {}{advice}\n", finding.about, finding.found)
    };
    findings.iter().map(line).collect()
}
