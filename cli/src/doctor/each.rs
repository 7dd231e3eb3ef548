//! What each node must be by itself.

use super::Level::{Change, Fail, Note, Ok};
use super::{Finding, Patient};
use crate::show::time;

/// A node is given this long for an answer by clients that say nothing else: with half of it on the way, a busy moment is too
/// much.
const ROUND_TRIP_MAX_US: u64 = 25_000;

/// Checks one node.
pub fn check(patient: &Patient) -> Vec<Finding> {
    let view = &patient.view;
    let about = |level, found: String, advice: &str| Finding::new(level, &view.node, found, advice);
    if let Some(error) = &view.error {
        return vec![about(Change, format!("cannot be asked: {error}"), error.advice())];
    }
    let mut findings = vec![];
    let mut found = |level, found: String, advice: &str| findings.push(about(level, found, advice));
    if view.role != "master" {
        found(Fail, format!("it is a {}", view.role), "give the address of a master");
    }
    if view.info.number("connected_slaves") > 0 {
        found(
            Change,
            format!("{} replicas are attached", view.info.number("connected_slaves")),
            "masters of a quorum are best without: what takes over for one must be sure that it grants no more",
        );
    }
    if view.info.number("cluster_enabled") > 0 {
        found(Change, "it is in cluster mode".to_owned(), "the nodes of a quorum know nothing of each other");
    }
    if view.guard_ms > 0 {
        let text =
            format!("it is guarded for {} ({}), and grants nothing until then", time(view.guard_ms), view.guard_reason);
        found(Change, text, "wait; if it is brand-new and nobody holds a lock there: palisade guard NODE lift");
    }
    if view.info.number("lock_poisoned") > 0 {
        found(Fail, "the module failed, and grants nothing".to_owned(), "report the line in its log, and restart it");
    }
    if view.info.number("lock_state_file_failing") > 0 {
        found(Fail, "its state file cannot be written: grants stop within seconds".to_owned(), "see to its disk");
    }
    if view.info.number("lock_evicted") > 0 {
        found(Change, "it evicted locks that were held".to_owned(), "maxmemory-policy noeviction, and more memory");
    }
    if view.round_trip_us > ROUND_TRIP_MAX_US {
        found(
            Change,
            format!("its round trip is {}", view.round_trip_ms()),
            "a node is given 50ms to answer: nearer nodes, or --node-timeout and a longer --ttl",
        );
    }
    if patient.settings.is_none() {
        found(
            Note,
            "it does not tell its settings (CONFIG)".to_owned(),
            "check them by hand, against redis.conf of Palisade",
        );
    } else {
        findings.extend(memory(patient));
    }
    if findings.iter().all(|finding| finding.level == Note) {
        findings.push(Finding::new(Ok, &view.node, format!("serves, round trip {}", view.round_trip_ms()), ""));
    }
    findings
}

/// Whether it remembers what it granted, or knows that it does not.
fn memory(patient: &Patient) -> Vec<Finding> {
    let mut findings = vec![];
    let mut found =
        |level, found: &str, advice: &str| findings.push(Finding::new(level, &patient.view.node, found, advice));
    let is = |name, value| patient.setting(name) == value;
    let every_grant_is_on_disk =
        is("appendonly", "yes") && is("appendfsync", "always") && is("no-appendfsync-on-rewrite", "no");
    if is("lock.restart-guard", "never") {
        found(
            Fail,
            "lock.restart-guard is never: after a crash it may grant what is held",
            "CONFIG SET lock.restart-guard auto, and in redis.conf",
        );
    } else if is("lock.state-file", "") {
        found(
            Change,
            "it has no state file: it is guarded at every start, and its tokens rely on the wall clock between two incarnations",
            "leave lock.state-file to its default",
        );
    } else if !every_grant_is_on_disk {
        let text = format!(
            "after a crash it grants nothing for {}: not every grant is on its disk",
            time(patient.view.max_ttl_ms)
        );
        found(Note, &text, "appendonly yes and appendfsync always, if it should serve again at once");
    }
    if !is("maxmemory-policy", "noeviction") {
        let level = if is("maxmemory", "0") { Note } else { Change };
        let text =
            format!("maxmemory-policy is {}: it may delete locks that are held", patient.setting("maxmemory-policy"));
        found(level, &text, "CONFIG SET maxmemory-policy noeviction, and in redis.conf");
    }
    if !is("timeout", "0") {
        found(Note, "it closes connections that are idle: clients connect again", "timeout 0");
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::{Level, Patient};
    use super::*;
    use crate::node_failure::NodeFailure;
    use crate::node_view::NodeView;

    fn healthy() -> Patient {
        let settings = [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
            ("maxmemory", "0"),
            ("maxmemory-policy", "noeviction"),
            ("timeout", "0"),
            ("lock.restart-guard", "auto"),
            ("lock.state-file", "a"),
        ];
        let settings: HashMap<_, _> = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let view = NodeView { role: "master".to_owned(), max_ttl_ms: 60_000, ..NodeView::default() };
        Patient { view, settings: Some(settings) }
    }

    fn set(patient: &mut Patient, name: &str, value: &str) {
        patient.settings.as_mut().unwrap().insert(name.to_owned(), value.to_owned());
    }

    #[test]
    fn each_fault_is_found_and_nothing_else() {
        let cases: [(&str, fn(&mut Patient), Level); 12] = [
            ("serves", |_| {}, Ok),
            ("cannot be asked: down", |p| p.view.error = Some(NodeFailure::Silent("down".to_owned())), Change),
            ("it is a replica", |p| p.view.role = "replica".to_owned(), Fail),
            ("guarded for 5ms", |p| p.view.guard_ms = 5, Change),
            ("its round trip is 30.00ms", |p| p.view.round_trip_us = 30_000, Change),
            ("does not tell its settings", |p| p.settings = None, Note),
            ("restart-guard is never", |p| set(p, "lock.restart-guard", "never"), Fail),
            ("no state file", |p| set(p, "lock.state-file", ""), Change),
            ("after a crash it grants nothing for 1m", |p| set(p, "appendfsync", "everysec"), Note),
            ("policy is allkeys-lru", |p| set(p, "maxmemory-policy", "allkeys-lru"), Note),
            ("serves", |p| set(p, "maxmemory", "100"), Ok),
            ("closes connections", |p| set(p, "timeout", "30"), Note),
        ];
        for (text, change, level) in cases {
            let mut patient = healthy();
            change(&mut patient);
            let findings = check(&patient);
            let found = findings.iter().find(|finding| finding.found.contains(text));
            assert_eq!(found.map(|finding| finding.level), Some(level), "{text}: {findings:?}");
            let worst = findings.iter().map(|finding| finding.level).max();
            assert_eq!(worst, Some(level), "{text}: {findings:?}");
        }
        let mut evicting = healthy();
        set(&mut evicting, "maxmemory", "100");
        set(&mut evicting, "maxmemory-policy", "allkeys-lru");
        assert!(check(&evicting).iter().any(|finding| finding.level == Change));
    }
}
