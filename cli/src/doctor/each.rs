//! Checks of a single server.

use palisade_client::Why;

use super::finding::Level::{Change, Fail, Note, Ok};
use super::finding::{Finding, Findings};
use super::patient::{Part, Patient};
use crate::node_failure::{advice, is_silent, words};
use crate::show::time;

/// The longest round trip, in microseconds: half of the time that clients give a node by default. With a longer one, a
/// short delay is enough to miss that time.
const ROUND_TRIP_MAX_US: u64 = 25_000;

/// The longest lease that a replica assumes before its master has reported one, in milliseconds: a day.
const TOLD_NOTHING_MS: u64 = 86_400_000;

/// The longest time in which a master that Sentinels have replaced, and that comes back, still acts as a master, in
/// milliseconds. Its guard must not end earlier, so `lock.max-ttl` must be at least as long (docs/operations.md).
const COMES_BACK_MS: u64 = 20_000;

/// The major version of Redis from which I/O threads may send an answer before the command is in the AOF.
const REDIS_ANSWERS_EARLY: u32 = 8;

/// Checks one server by its settings and its state.
pub fn check(patient: &Patient) -> Vec<Finding> {
    let view = &patient.view;
    if let Some(error) = &view.error {
        return vec![unreachable(patient, error)];
    }
    let mut found = Findings::about(&view.node);
    match (patient.is_replica, patient.part) {
        (true, _) => replica(patient, &mut found),
        (false, Part::Alone) => alone(patient, &mut found),
        (false, Part::OfSentinels | Part::OfCluster) => replaceable(patient, &mut found),
    }
    if patient.part == Part::OfSentinels {
        returning_master(patient, &mut found);
    }
    guards(patient, &mut found);
    if let Some(refusing) = &view.refusing {
        found.add(Fail, &*refusing.found, refusing.advice);
    }
    if view.info.number("lock_evicted") > 0 {
        found.add(Change, "it evicted locks that were held", "maxmemory-policy noeviction, and more memory");
    }
    if view.round_trip_us > ROUND_TRIP_MAX_US {
        let advice = "a node is given 50ms to answer: nearer nodes, or --node-timeout and a longer --ttl";
        found.add(Change, format!("its round trip is {}", view.round_trip_ms()), advice);
    }
    if let Some(why) = &view.info_refused {
        let text = format!("replicas, state file and failures of the module are not checked: {}", words(why));
        found.add(Note, text, "run doctor as an operator too (palisade acl operator)");
    }
    match patient.settings {
        None => {
            let advice = "check them by hand, against redis.conf of Palisade";
            found.add(Note, "it does not tell its settings (CONFIG)", advice);
        }
        Some(_) => memory(patient, &mut found),
    }
    if found.all.iter().all(|finding| finding.level == Note) {
        let what = if patient.is_replica { "stands by" } else { "serves" };
        found.add(Ok, format!("{what}, round trip {}", view.round_trip_ms()), "");
    }
    found.all
}

/// Finds guards. The server may have forgotten grants, and nothing here can tell which, so locks are safe only after
/// its guard.
fn guards(patient: &Patient, found: &mut Findings<'_>) {
    let view = &patient.view;
    let slots = view.info.number("lock_guarded_slots");
    if slots > 0 {
        let text = format!("{slots} of its slots are guarded: locks in them may be missing");
        found.add(Change, text, "wait: they serve again when all leases that they may have forgotten have ended");
    }
    // A replica grants nothing anyway, and starts a guard of its own when it becomes a master.
    if view.guard_ms > 0 && view.role == "master" {
        let text =
            format!("it is guarded for {} ({}), and grants nothing until then", time(view.guard_ms), view.guard_reason);
        let advice = match view.guard_reason.as_str() {
            "operator" => "somebody armed the guard: ask who, and why; it ends by itself",
            _ => "wait: it may have forgotten locks that are held, and serves again when their leases have ended",
        };
        found.add(Change, text, advice);
    }
}

fn unreachable(patient: &Patient, error: &Why) -> Finding {
    let announced = "start it; if it runs, it announces an address that cannot be reached from here: ";
    let is_silent = is_silent(error);
    let (level, then) = match (error, patient.part, patient.is_replica) {
        (Why::NoModule, _, true) => {
            (Fail, "load the module there too: when it takes over, locks cannot be had".to_owned())
        }
        (_, Part::OfCluster, _) if is_silent => (
            Change,
            format!("{announced}cluster-announce-ip, cluster-announce-port; of clients with TLS, tls-cluster yes"),
        ),
        (_, Part::OfSentinels, _) if is_silent => {
            (Change, format!("{announced}replica-announce-ip, replica-announce-port"))
        }
        _ => (Change, advice(error).to_owned()),
    };
    let what = if patient.is_replica { "the replica cannot be asked" } else { "cannot be asked" };
    Finding::new(level, &patient.view.node, format!("{what}: {}", words(error)), then)
}

/// Checks a server that is a node by itself, outside of clusters and without Sentinels.
fn alone(patient: &Patient, found: &mut Findings<'_>) {
    let view = &patient.view;
    if view.role != "master" {
        found.add(Fail, format!("it is a {}", view.role), "give the address of a master");
    }
    let replicas = view.info.number("connected_slaves");
    if replicas > 0 {
        let advice =
            "masters of a quorum are best without: what takes over for one must be sure that it grants no more";
        found.add(Change, format!("{replicas} replicas are attached"), advice);
    }
    if view.info.number("cluster_enabled") > 0 {
        let text = "it is in cluster mode, and its address is one of a single server: it refuses locks of slots that it does not serve";
        found.add(Change, text, format!("give its address as redis+cluster://{}", view.node));
    }
}

/// Checks a server of a cluster or behind Sentinels, which has to be a master that a replica can replace.
fn replaceable(patient: &Patient, found: &mut Findings<'_>) {
    let view = &patient.view;
    if view.role != "master" {
        found.add(Fail, format!("it is a {}", view.role), "look again: another server is the master by now");
    }
    let replicas = view.info.number("connected_slaves");
    if replicas == 0 && view.info_refused.is_none() {
        let text = "no replica is attached: while it is down, nobody gets its locks";
        found.add(Change, text, "give it a replica, on another machine");
    }
    let needed: u64 = patient.setting("min-replicas-to-write").parse().unwrap_or(0);
    if needed > 0 && needed == replicas && view.refusing.is_none() {
        let text = format!(
            "min-replicas-to-write is {needed}, of {replicas} replicas: with one down, it grants, extends and releases nothing"
        );
        found.add(Note, text, "another replica, if that is too much");
    }
}

/// Checks a server that Sentinels watch, which may come back as a master after another one has replaced it.
fn returning_master(patient: &Patient, found: &mut Findings<'_>) {
    let guard = patient.setting("lock.restart-guard");
    if !["", "always"].contains(&guard) {
        let text = format!(
            "lock.restart-guard is {guard}: replaced while it was down, it comes back as a master that grants at once"
        );
        found.add(Change, text, "CONFIG SET lock.restart-guard always, and in redis.conf");
    }
    if patient.view.max_ttl_ms < COMES_BACK_MS {
        let text = format!(
            "lock.max-ttl is {}: its guard may be over before Sentinel tells it to follow, which takes up to {}",
            time(patient.view.max_ttl_ms),
            time(COMES_BACK_MS)
        );
        found.add(Change, text, "lock.max-ttl 20000 at least, on it and its replicas");
    }
}

/// Checks whether a replica hears from its master, and knows what it needs to take over.
fn replica(patient: &Patient, found: &mut Findings<'_>) {
    let view = &patient.view;
    if view.info.word("master_link_status") == "down" {
        let text = "it is not connected to its master, and hears nothing of its locks";
        found.add(Change, text, "see its log, and its masterauth and masteruser");
    }
    if view.info.number("lock_outstanding_ttl_ms") >= TOLD_NOTHING_MS && view.max_ttl_ms < TOLD_NOTHING_MS {
        let text = "its master has told it nothing yet: taking over, it is guarded for a day";
        found.add(Change, text, "wait some seconds; the master must have the module, of the same version");
    }
}

/// Checks that the server remembers its grants after a restart, or is guarded.
fn memory(patient: &Patient, found: &mut Findings<'_>) {
    let is = |name, value| patient.setting(name) == value;
    let is_synced = is("appendonly", "yes") && is("appendfsync", "always") && is("no-appendfsync-on-rewrite", "no");
    let info = &patient.view.info;
    let major = info.word("redis_version").split('.').next().and_then(|major| major.parse().ok());
    let answers_early =
        info.word("valkey_version").is_empty() && major >= Some(REDIS_ANSWERS_EARLY) && !is("io-threads", "1");
    if is("lock.restart-guard", "never") {
        let text = "lock.restart-guard is never: after a crash it may grant what is held";
        found.add(Fail, text, "CONFIG SET lock.restart-guard auto, and in redis.conf");
    } else if is("lock.state-file", "") {
        let text = "it has no state file: it is guarded at every start, and its tokens rely on the wall clock between two incarnations";
        found.add(Change, text, "leave lock.state-file to its default");
    } else if is_synced && answers_early {
        let text = "io-threads is above 1: Redis 8 answers before the AOF is written, so after a crash it is guarded";
        found.add(Change, text, "io-threads 1 in redis.conf, and restart it");
    } else if !is_synced && patient.part == Part::Alone {
        let guarded = time(patient.view.max_ttl_ms);
        let text = format!("after a crash it grants nothing for {guarded}: not every grant is on its disk");
        found.add(Note, text, "appendonly yes and appendfsync always, if it should serve again at once");
    }
    if !is("maxmemory-policy", "noeviction") {
        let level = if is("maxmemory", "0") { Note } else { Change };
        let policy = patient.setting("maxmemory-policy");
        let text = format!("maxmemory-policy is {policy}: it may delete locks that are held");
        found.add(level, text, "CONFIG SET maxmemory-policy noeviction, and in redis.conf");
    }
    if !is("timeout", "0") {
        found.add(Note, "it closes connections that are idle: clients connect again", "timeout 0");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::finding::{Level, assert_worst};
    use super::*;
    use crate::info::Info;
    use crate::node_view::NodeView;
    use crate::refusing::Refusing;

    fn healthy() -> Patient {
        let settings = [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("io-threads", "1"),
            ("no-appendfsync-on-rewrite", "no"),
            ("maxmemory", "0"),
            ("maxmemory-policy", "noeviction"),
            ("timeout", "0"),
            ("lock.restart-guard", "auto"),
            ("lock.state-file", "a"),
        ];
        let settings: HashMap<_, _> = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let view = NodeView { role: "master".to_owned(), max_ttl_ms: 60_000, ..NodeView::default() };
        Patient { view, settings: Some(settings), ..Patient::default() }
    }

    fn set(patient: &mut Patient, name: &str, value: &str) {
        patient.settings.as_mut().unwrap().insert(name.to_owned(), value.to_owned());
    }

    fn inform(patient: &mut Patient, lines: &str) {
        patient.view.info = Info::of(lines);
    }

    fn of(part: Part) -> Patient {
        let mut patient = Patient { part, ..healthy() };
        set(&mut patient, "lock.restart-guard", "always");
        inform(&mut patient, "connected_slaves:1\nmin_slaves_good_slaves:1\n");
        patient
    }

    #[test]
    fn each_fault_of_a_cluster_and_behind_sentinels_is_found_and_nothing_else() {
        let replica = |part| {
            let mut patient = Patient { is_replica: true, ..of(part) };
            patient.view.role = "replica".to_owned();
            inform(&mut patient, "master_link_status:up\nlock_outstanding_ttl_ms:60000\n");
            patient
        };
        let (cluster, sentinels) = (Part::OfCluster, Part::OfSentinels);
        let silent = |p: &mut Patient| p.view.error = Some(Why::Unreachable("down".to_owned()));
        let cases: [(&str, Patient, fn(&mut Patient), Level); 17] = [
            ("serves", of(cluster), |_| {}, Ok),
            ("serves", of(sentinels), |_| {}, Ok),
            ("stands by", replica(cluster), |p| p.view.guard_ms = 5, Ok),
            ("in cluster mode", healthy(), |p| inform(p, "cluster_enabled:1"), Change),
            ("serves", of(cluster), |p| inform(p, "connected_slaves:1\ncluster_enabled:1"), Ok),
            ("it is a replica", of(sentinels), |p| p.view.role = "replica".to_owned(), Fail),
            ("no replica is attached", of(cluster), |p| inform(p, ""), Change),
            ("is 1, of 1 replicas", of(cluster), |p| set(p, "min-replicas-to-write", "1"), Note),
            ("slots are guarded", of(cluster), |p| inform(p, "connected_slaves:1\nlock_guarded_slots:3"), Change),
            ("comes back as a master", of(sentinels), |p| set(p, "lock.restart-guard", "auto"), Change),
            ("serves", of(cluster), |p| set(p, "lock.restart-guard", "auto"), Ok),
            ("lock.max-ttl is 19s", of(sentinels), |p| p.view.max_ttl_ms = 19_000, Change),
            ("comes back as a master", replica(sentinels), |p| set(p, "lock.restart-guard", "auto"), Change),
            ("not connected to its master", replica(cluster), |p| inform(p, "master_link_status:down"), Change),
            ("guarded for a day", replica(cluster), |p| inform(p, "lock_outstanding_ttl_ms:86400000"), Change),
            ("the replica cannot be asked: down", replica(cluster), silent, Change),
            (
                "the replica cannot be asked: the server has no",
                replica(cluster),
                |p| p.view.error = Some(Why::NoModule),
                Fail,
            ),
        ];
        for (text, mut patient, change, level) in cases {
            change(&mut patient);
            assert_worst(&check(&patient), text, level);
        }
        let mut announced = replica(sentinels);
        silent(&mut announced);
        assert!(check(&announced)[0].advice.contains("replica-announce-ip"));
    }

    #[test]
    fn each_fault_is_found_and_nothing_else() {
        let cases: [(&str, fn(&mut Patient), Level); 15] = [
            ("serves", |_| {}, Ok),
            ("cannot be asked: down", |p| p.view.error = Some(Why::Unreachable("down".to_owned())), Change),
            ("it is a replica", |p| p.view.role = "replica".to_owned(), Fail),
            ("guarded for 5ms", |p| p.view.guard_ms = 5, Change),
            (
                "its AOF",
                |p| {
                    p.view.refusing =
                        Refusing::of(&Info::of("aof_enabled:1\naof_last_write_status:err"), &HashMap::new())
                },
                Fail,
            ),
            ("io-threads is above 1", |p| (set(p, "io-threads", "2"), inform(p, "redis_version:8.2.1")).0, Change),
            ("serves", |p| (set(p, "io-threads", "2"), inform(p, "redis_version:8.1\nvalkey_version:8.1")).0, Ok),
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
            assert_worst(&check(&patient), text, level);
        }
        let mut evicting = healthy();
        set(&mut evicting, "maxmemory", "100");
        set(&mut evicting, "maxmemory-policy", "allkeys-lru");
        assert!(check(&evicting).iter().any(|finding| finding.level == Change));
    }
}
