//! The program on a cluster, and on a master that Sentinels name.

use std::process::Command;

use crate::fixture::{Running, palisade_at, run};
use crate::harness::{Member, Reply, Server, Setup, Six, behind, text, wait_until, watched};

/// The longest lease, in milliseconds: long, because this machine may be busy between two commands.
pub const MAX_TTL_MS: u64 = 60_000;

/// Starts a cluster of six.
pub fn six() -> Six {
    Six::start_with(|setup| {
        setup
            .module_arguments(&["max-clock-skew", "1000", "log-slower-than", "0"])
            .option("repl-diskless-sync-delay", "0")
    })
}

/// Returns the program with this cluster, which is named by two of its masters.
pub fn on(six: &Six, line: &str) -> Command {
    palisade_at(&six.address(), line)
}

/// Returns the program's name for a server.
pub fn name(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// Returns true if this master serves the key and has granted the lock.
fn has_taken(master: &Member, key: &str) -> bool {
    matches!(master.client().say(&format!("LOCK.ACQUIRE {key} me 60000")), Reply::Int(_))
}

/// Returns the output of a successful run.
#[track_caller]
pub fn well(command: Command) -> String {
    let ended = run(command);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    ended.out()
}

/// Takes one lock on each master, lists, extends, releases and breaks them. Each is shown with the name of its master.
#[test]
fn every_command_finds_the_master_of_a_lock_and_all_masters() {
    let six = six();
    let keys: Vec<_> = (0..3).map(|master| six.key_of(master)).collect();
    for (key, member) in keys.iter().zip(six.masters()) {
        let token = well(on(&six, &format!("acquire {key} --owner me --ttl 1m --note ann")));
        let token = token.trim();
        assert_eq!(member.server.info("held"), 1);
        assert_eq!(well(on(&six, &format!("extend {key} --owner me --ttl 1m"))).trim(), token);
        let info = run(on(&six, &format!("info {key} --json"))).json();
        assert_eq!(info["token"].to_string(), token);
        assert_eq!(info["servers"], serde_json::json!([name(&member.server)]));
        let info = well(on(&six, &format!("info {key}")));
        assert!(info.contains(&format!("nodes    1 of 1 ({})", name(&member.server))), "{info}");
        run(on(&six, &format!("try {key}"))).assert_refused(194, "held by ann");
        let why = well(on(&six, &format!("why {key}")));
        assert!(why.contains("is held by ann"), "{why}");
    }
    for key in &keys {
        let broken = well(on(&six, &format!("break {key} --yes")));
        assert!(broken.contains("broken on 1 of 1"), "{broken}");
        let next = well(on(&six, &format!("exec {key} -- printenv PALISADE_TOKEN")));
        assert!(next.trim().parse::<u64>().is_ok());
        let history = well(on(&six, &format!("history {key}")));
        assert!(history.contains("broken") && history.contains("1/1"), "{history}");
        assert!(well(on(&six, &format!("info {key}"))).contains("is free"));
    }
    let nodes = well(on(&six, "nodes"));
    for member in six.masters() {
        assert!(nodes.lines().any(|line| line.starts_with("1  ") && line.contains(&name(&member.server))), "{nodes}");
    }
    assert!(nodes.contains("SLOTS") && nodes.contains(" 5461 "), "{nodes}");
    let top = well(on(&six, "top --once --interval 1ms"));
    assert!(top.matches(&name(&six.0[2].server)).count() == 2, "{top}");
    assert_eq!(well(on(&six, "deadlocks")).trim(), "no deadlock among 0 locks that are waited for");
}

/// Many locks at once: each is listed once, with its master.
#[test]
fn all_locks_of_a_cluster_are_listed() {
    let six = six();
    for n in 0..40 {
        assert!(six.masters().any(|member| has_taken(member, &format!("lock{n}"))));
    }
    let text = well(on(&six, "ls lock*"));
    assert_eq!(text.lines().skip(1).count(), 40, "{text}");
    assert!(text.lines().next().unwrap().ends_with("AT"), "{text}");
    let at = |line: &&str| six.masters().any(|member| line.trim_end().ends_with(&name(&member.server)));
    // Each master is asked only for its own locks, so each lock is listed once.
    assert!(text.lines().skip(1).all(|line| at(&line) && line.contains(" 1/1 ") && !line.contains(", ")), "{text}");
    // A replica also knows the masters.
    let by_replica = format!("redis+cluster://{}", name(&six.0[4].server));
    assert_eq!(well(palisade_at(&by_replica, "ls lock*")).lines().count(), 41);
    run(palisade_at(&by_replica, "try lock7")).assert_refused(194, "held by");
    let limited = run(on(&six, "ls lock* --limit 1"));
    assert!(limited.out().lines().count() == 2 && limited.err().contains("39 more"), "{limited:?}");
}

/// A lock whose slot is migrating is found wherever it is: at its old master, at its new one, and through a
/// redirection.
#[test]
fn a_slot_that_moves_is_followed() {
    let six = six();
    let key = six.key_of(0);
    let (from, to) = (&six.0[0], &six.0[1]);
    let slot = from.client().say(&format!("CLUSTER KEYSLOT {key}")).as_int();
    assert_eq!(to.client().say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id)), text("OK"));
    assert_eq!(from.client().say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id)), text("OK"));
    let key_at = |member: &Member| {
        let info = run(on(&six, &format!("info {key} --json"))).json();
        assert_eq!(info["servers"], serde_json::json!([name(&member.server)]), "{info}");
        let listed = run(on(&six, "ls --json")).json();
        assert_eq!(listed[0]["servers"], serde_json::json!([name(&member.server)]), "{listed}");
    };
    // The key is not at the old master any longer, so it is requested and created at the new one (ASK).
    let mut there = to.client();
    wait_until("it grants there", || {
        there.say("ASKING");
        match there.say(&format!("LOCK.ACQUIRE {key} me 60000")) {
            Reply::Int(_) => true,
            other => {
                // A server that had to wait for its disk redirects after that. Before its first grant in the slot it
                // asks the old master what that one may have forgotten.
                assert!(["NOTYET", "MOVED", "GUARDED"].iter().any(|word| other.is_error(word)), "{other:?}");
                false
            }
        }
    });
    key_at(to);
    let broken = well(on(&six, &format!("break {key} --yes")));
    assert!(broken.contains("broken on 1 of 1 nodes"), "{broken}");
    assert_eq!(to.client().say(&format!("CLUSTER SETSLOT {slot} NODE {}", to.id)), text("OK"));
    // The old master does not know yet that the slot has moved, and may be asked.
    assert!(well(on(&six, &format!("info {key}"))).contains("is free"));
}

/// While a master of a cluster is down, the locks of the others are shown, and the missing master is reported.
#[test]
fn a_master_that_is_down_is_named_and_the_others_tell() {
    let mut six = six();
    let keys: Vec<_> = (0..3).map(|master| six.key_of(master)).collect();
    let down = name(&six.0[1].server);
    assert!(has_taken(&six.0[0], &keys[0]));
    six.0[1].server.kill();
    let listed = run(on(&six, "ls"));
    assert_eq!(listed.code(), Some(196), "{listed:?}");
    assert!(listed.out().starts_with("KEY") && listed.err().contains(&format!("{down}: it cannot be reached")));
    run(on(&six, &format!("info {}", keys[1]))).assert_refused(196, &down);
    assert!(well(on(&six, &format!("info {}", keys[2]))).contains("is free"));
    let nodes = run(on(&six, "nodes"));
    assert!(
        nodes.code() == Some(196)
            && nodes.out().contains("unreachable")
            && nodes.out().contains(&name(&six.0[2].server))
    );
    let deadlocks = run(on(&six, "deadlocks"));
    assert_eq!(deadlocks.code(), Some(196), "{deadlocks:?}");
    assert!(deadlocks.out().contains("cannot be known"), "{deadlocks:?}");
    let top = well(on(&six, "top --once"));
    assert!(top.contains("without those of masters that cannot be asked"), "{top}");
}

/// Each server has a guard of its own, so with a cluster the server must be named.
#[test]
fn the_guard_of_one_master_of_a_cluster() {
    let six = six();
    run(on(&six, "guard 1")).assert_refused(193, "1 is a cluster: say which of its masters: 1 127.0.0.1:");
    let second = name(&six.0[1].server);
    assert_eq!(well(on(&six, &format!("guard {second} arm 1m"))), format!("{second} is guarded for 1m\n"));
    let refused = run(on(&six, &format!("try {}", six.key_of(1))));
    refused.assert_refused(196, "guarded");
    assert_eq!(well(on(&six, &format!("guard {second} lift --yes"))), format!("{second} serves\n"));
    run(on(&six, "guard 2")).assert_refused(193, "2 is none of the nodes: 1 127.0.0.1:");
}

/// If the master of a lock dies, the command under it is ended in time, and the master's replica grants the lock again.
#[test]
fn a_command_does_not_outlive_its_master() {
    let mut six = Six::start(3_000);
    let key = six.key_of(1);
    let running = Running::start(on(&six, &format!("exec {key} --ttl 2s --grace 100ms -- sleep 1000")));
    wait_until("it holds the lock", || six.0[1].server.info("held") == 1);
    six.0[1].server.kill();
    running.end().assert_refused_after(197, "was lost");
    let next = well(on(&six, &format!("exec {key} --ttl 2s --grace 100ms --node-timeout 1s -- echo ran")));
    assert_eq!(next, "ran\n");
    assert_eq!(six.0[4].client().say("ROLE").as_list()[0], text("master"));
    // The replica, which is the master now, is asked.
    assert!(well(on(&six, "nodes")).contains(&name(&six.0[4].server)));
}

/// When this program is killed, the watchdog sends the release to the master of the lock's slot.
#[test]
fn the_watchdog_gives_back_to_the_master_of_the_lock() {
    let six = six();
    let folder = tempfile::tempdir().unwrap();
    for master in 0..3 {
        let key = six.key_of(master);
        let runs = folder.path().join(format!("runs{master}"));
        let mut exec = on(&six, &format!("exec {key} -- sh -c"));
        exec.arg(format!("touch {}; sleep 1000", runs.display()));
        let running = Running::start(exec);
        wait_until("the command runs", || runs.exists());
        drop(running);
        wait_until("nobody holds it", || six.0[master].server.info("held") == 0);
        let told = six.0[master].client().say("INFO commandstats").as_text();
        assert!(told.contains("cmdstat_LOCK.RELEASE:calls=1"), "it was given back, and did not run out: {told}");
    }
}

/// Commands ask the current master, before and after a fail-over.
#[test]
fn a_master_behind_sentinels_is_found() {
    let (one, other, sentinels) = watched(1, MAX_TTL_MS);
    let address = behind(&sentinels);
    let at = |line: &str| palisade_at(&address, line);
    well(at("acquire k --owner me --ttl 1m --note ann"));
    let info = run(at("info k --json")).json();
    assert_eq!(info["servers"], serde_json::json!([name(&one)]));
    assert!(well(at("nodes")).contains(&name(&one)));
    assert!(well(at("guard 1")).contains(&format!("{} serves", name(&one))));
    sentinels[0].fail_over();
    sentinels[0].wait_for_master(&other);
    let nodes = run(at("nodes"));
    assert!(nodes.out().contains(&name(&other)) && !nodes.out().contains(&name(&one)), "{nodes:?}");
    run(at("try k")).assert_refused(196, "guarded for");
    let why = well(at("why k"));
    assert!(why.contains(&format!("{}: guarded for", name(&other))), "{why}");
    let unknown = behind(&sentinels).replace("/locks", "/looks");
    let refused = run(palisade_at(&unknown, "nodes"));
    assert!(refused.err().contains("watch no master of the name looks"), "{refused:?}");
}

/// A cluster, a master behind Sentinel and a server are three nodes of one quorum.
#[test]
fn all_kinds_are_nodes_of_one_quorum() {
    let six = six();
    let (master, _replica, sentinels) = watched(1, MAX_TTL_MS);
    let alone = Setup::new().start();
    let nodes = format!("{},{},{}", six.address(), behind(&sentinels), alone.address());
    let at = |line: &str| palisade_at(&nodes, line);
    let key = six.key_of(2);
    let held = at(&format!("exec {key} -- sh -c"));
    let mut held = held;
    held.arg("echo runs; sleep 1000");
    let running = Running::start(held);
    let all = [&six.0[2].server, &master, &alone];
    wait_until("all have it", || all.iter().all(|server| server.info("held") == 1));
    let info = run(at(&format!("info {key} --json"))).json();
    assert_eq!((info["nodes"].as_u64(), info["servers"].as_array().unwrap().len()), (Some(3), 3), "{info}");
    let listed = well(at("nodes"));
    assert_eq!(listed.lines().filter(|line| line.starts_with("1  ")).count(), 3, "{listed}");
    assert!(listed.lines().any(|line| line.starts_with("3  ")), "{listed}");
    drop(running);
}

#[test]
fn what_is_wrong_with_an_address_is_told() {
    for (nodes, text) in [
        ("redis+cluster://a,b/2", "there is one database"),
        ("redis+sentinel://a,b", "the name of the master is missing"),
        ("redis+cluster://127.0.0.1:1,redis+cluster://127.0.0.1:1", "is given twice"),
    ] {
        run(palisade_at(nodes, "nodes")).assert_refused(193, text);
    }
    let alone = Setup::new().replication().start();
    let refused = run(palisade_at(&format!("redis+cluster://{}", name(&alone)), "nodes"));
    assert!(refused.err().contains("give its address as redis://"), "{refused:?}");
}
