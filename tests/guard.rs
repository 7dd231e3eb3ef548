//! A node either provably remembers every grant or refuses until they have all ended.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Reply, Server, Setup, error, int, null, text, wait_until};

/// Short leases, so that a guard can be waited for: 300 ms × 1.01 + 100 ms.
const SHORT: [&str; 4] = ["max-ttl", "300", "max-clock-skew", "100"];

/// The milliseconds of a -GUARDED.
#[track_caller]
fn guarded_ms(reply: Reply) -> u64 {
    let error = error(reply);
    let ms = error.strip_prefix("GUARDED ").and_then(|rest| rest.split(' ').next());
    ms.unwrap_or_else(|| panic!("{error}")).parse().unwrap()
}

fn state_file(server: &Server) -> PathBuf {
    server.dir().join("lock-node-socket.state")
}

/// A file that is there, as text.
fn read(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_new_node_is_guarded_until_every_lease_of_an_unknown_past_has_ended() {
    let server = Setup::new().module_arguments(&SHORT).guarded().start();
    let mut client = server.client();
    let first = guarded_ms(client.say("LOCK.ACQUIRE k me 300"));
    assert!((1..=403).contains(&first), "{first}");
    let node = client.say("LOCK.NODE");
    assert_eq!((node.field("state"), node.field("guard_reason")), (text("guarded"), text("restart")));
    wait_until("the time falls", || match client.say("LOCK.ACQUIRE k me 300") {
        Reply::Error(text) => guarded_ms(Reply::Error(text)) < first,
        _ => true,
    });
    assert!(client.outlast_guard("LOCK.ACQUIRE k me 300").as_int() > 0);
    assert_eq!((client.say("LOCK.GUARD"), client.say("LOCK.NODE").field("state")), (int(0), text("serving")));
}

#[test]
fn lift_and_arm_are_the_operators_word() {
    let mut server = Setup::new().guarded().start();
    let mut client = server.client();
    assert!(client.say("LOCK.GUARD").as_int() > 60_000);
    client.lift();
    let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
    let armed = client.say("LOCK.GUARD arm 50000").as_int();
    assert!((49_000..=50_000).contains(&armed));
    // What was granted before cannot be vouched for: only looked at, released and broken.
    for line in [
        "LOCK.ACQUIRE other me 1000".to_owned(),
        "LOCK.ACQUIRE k me 1000 RETRY".to_owned(),
        "LOCK.EXTEND k me 1000".to_owned(),
        "LOCK.REENTER k me".to_owned(),
        format!("LOCK.CHECK k {token}"),
        format!("LOCK.FENCE k me {}", token + 1),
    ] {
        assert!(guarded_ms(client.say(&line)) > 40_000, "{line}");
    }
    assert_eq!(client.say("LOCK.NODE").field("guard_reason"), text("operator"));
    assert_eq!(client.say("LOCK.INFO k").field("owner"), text("me"));
    // A shorter one does not end a longer one, and it outlives a clean restart.
    assert!(client.say("LOCK.GUARD ARM 5").as_int() > 40_000);
    assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
    wait_until("it is on the disk", || read(state_file(&server)).contains("\nguard operator "));
    drop(client);
    server.shutdown("");
    server.start_again();
    let mut client = server.client();
    assert!(guarded_ms(client.say("LOCK.ACQUIRE k me 1000")) > 30_000);
    client.lift();
    assert!(client.insist("LOCK.ACQUIRE k me 1000").as_int() > token);
}

/// Locks `k` for "me" in a node that serves, and forgets nothing of it but what it is made to.
fn held(setup: Setup) -> (Server, i64) {
    let server = setup.start();
    let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
    (server, token)
}

fn assert_remembers(server: &Server, token: i64) {
    let mut client = server.client();
    assert_eq!(client.say("LOCK.EXTEND k me 60000"), int(token), "the holder goes on");
    assert!(client.insist("LOCK.ACQUIRE other me 1000").as_int() > 0, "nobody waits");
    assert_eq!(client.say("LOCK.RELEASE other me"), int(0));
    assert_eq!(client.say("LOCK.INFO k").field("suspect"), int(0));
    assert_eq!(client.say("LOCK.NODE").field("state"), text("serving"));
}

fn assert_guarded(server: &Server, token: i64) {
    let mut client = server.client();
    assert!(guarded_ms(client.say("LOCK.ACQUIRE k you 1000")) > 30_000);
    assert!(guarded_ms(client.say("LOCK.ACQUIRE other me 1000")) > 30_000);
    if client.say("EXISTS k") == int(1) {
        assert!(guarded_ms(client.say("LOCK.EXTEND k me 60000")) > 1_000);
        assert_eq!(client.say("LOCK.INFO k").field("suspect"), int(1));
        assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
    }
    server.lift();
    assert!(client.insist("LOCK.ACQUIRE k you 1000").as_int() > token);
}

#[test]
fn kill_nine_with_the_aof_always_is_remembered_again_and_again() {
    let (mut server, token) = held(Setup::new().aof());
    for _ in 0..5 {
        server.kill();
        server.start_again();
        assert_remembers(&server, token);
    }
}

#[test]
fn kill_nine_with_anything_less_is_guarded() {
    for setup in [
        Setup::new(),
        Setup::new().option("save", "3600 1"),
        Setup::new().option("appendonly", "yes").option("appendfsync", "everysec"),
        Setup::new().aof().option("no-appendfsync-on-rewrite", "yes"),
        Setup::new().aof().module_arguments(&["state-file", ""]),
    ] {
        let (mut server, token) = held(setup);
        server.kill();
        server.start_again();
        assert_guarded(&server, token);
    }
}

#[test]
fn always_is_guarded_though_it_remembers() {
    let (mut server, token) = held(Setup::new().aof().module_arguments(&["restart-guard", "always"]));
    server.kill();
    server.start_again();
    let mut client = server.client();
    assert!(guarded_ms(client.say("LOCK.ACQUIRE other me 1000")) > 30_000);
    assert!(guarded_ms(client.say("LOCK.EXTEND k me 60000")) > 30_000);
    assert_eq!(client.say("LOCK.INFO k").field("suspect"), int(0));
    server.lift();
    assert_eq!(client.insist("LOCK.EXTEND k me 60000"), int(token));
}

#[test]
fn never_is_the_operators_own_risk() {
    let (mut server, token) = held(Setup::new().module_arguments(&["restart-guard", "never"]));
    server.kill();
    server.start_again();
    let mut client = server.client();
    assert!(client.insist("LOCK.ACQUIRE k you 1000").as_int() > token, "tokens grow all the same");
}

#[test]
fn a_clean_end_is_proved_by_what_was_loaded() {
    // (how it ends, setup)
    let rdb = || Setup::new().option("save", "3600 1");
    for (how, setup) in
        [("SAVE", rdb()), ("", rdb()), ("", Setup::new().option("appendonly", "yes")), ("NOSAVE", Setup::new().aof())]
    {
        let (mut server, token) = held(setup);
        for _ in 0..3 {
            server.shutdown(how);
            server.start_again();
            assert_remembers(&server, token);
        }
        // The proof is used up: a crash after it is a crash.
        let aof_always = how == "NOSAVE";
        server.kill();
        server.start_again();
        if aof_always { assert_remembers(&server, token) } else { assert_guarded(&server, token) }
    }
}

#[test]
fn an_end_that_left_something_else_is_guarded() {
    // Saved earlier, ended without saving: the file is an older set.
    let (mut server, token) = held(Setup::new().option("save", "3600 1"));
    server.client().say("SAVE");
    server.client().say("LOCK.ACQUIRE later me 60000");
    server.shutdown("NOSAVE");
    server.start_again();
    assert_guarded(&server, token);
    // Ended with a snapshot, started with the AOF newly on: nothing is loaded.
    let (mut server, token) = held(Setup::new().option("save", "3600 1"));
    server.shutdown("SAVE");
    server.start_again_with(|setup| setup.aof());
    assert_guarded(&server, token);
}

#[test]
fn saved_earlier_and_unchanged_since_is_proved() {
    let (mut server, token) = held(Setup::new().option("save", "3600 1"));
    server.client().say("SAVE");
    server.shutdown("NOSAVE");
    server.start_again();
    assert_remembers(&server, token);
}

#[test]
fn a_crash_then_a_clean_restart_within_the_guard_is_still_guarded() {
    let (mut server, token) = held(Setup::new().option("save", "3600 1"));
    server.kill();
    server.start_again();
    let before = guarded_ms(server.client().say("LOCK.ACQUIRE k you 1000"));
    server.shutdown("SAVE");
    server.start_again();
    assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k you 1000")) <= before, "not longer by the restart");
    assert_guarded(&server, token);
}

#[test]
fn a_change_of_the_aofs_settings_ends_its_proof() {
    for change in ["appendfsync everysec", "no-appendfsync-on-rewrite yes", "appendonly no"] {
        let (mut server, token) = held(Setup::new().aof());
        let mut client = server.client();
        let (name, value) = change.split_once(' ').unwrap();
        let back = if value == "no" {
            "yes"
        } else if name == "appendfsync" {
            "always"
        } else {
            "no"
        };
        assert_eq!(client.say(&format!("CONFIG SET {change}")), text("OK"));
        assert_eq!(client.say(&format!("CONFIG SET {name} {back}")), text("OK"));
        client.insist("LOCK.ACQUIRE after me 1000");
        wait_until("the AOF is as it was", || client.info_field("aof_rewrite_in_progress") == 0);
        drop(client);
        server.kill();
        server.start_again();
        assert_guarded(&server, token);
    }
}

#[test]
fn a_promoted_replica_is_guarded_for_the_longest_lease_its_master_granted() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    // The replica's own limit is far below its master's.
    let mut replica = Setup::new().aof().replication().module_arguments(&SHORT).start();
    let mut copy = replica.client();
    copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let token = master.client().insist("LOCK.ACQUIRE k me 60000").as_int();
    wait_until("the lock is there", || copy.say("EXISTS k") == int(1));
    assert!(error(copy.say("LOCK.ACQUIRE other me 10")).starts_with("READONLY"));
    copy.say("REPLICAOF NO ONE");
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE k you 10")) > 50_000);
    assert!(guarded_ms(copy.say("LOCK.EXTEND k me 10")) > 50_000);
    assert_eq!(copy.say("LOCK.NODE").field("guard_reason"), text("promotion"));
    replica.lift();
    assert_eq!(copy.say("LOCK.BREAK k"), int(token));
    let newer = copy.insist("LOCK.ACQUIRE k you 300").as_int();
    assert!(newer > token);
    // The AOF of this life began as a replica's: nothing proves that it has everything.
    drop(copy);
    replica.kill();
    replica.start_again();
    let mut copy = replica.client();
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE k me 10")) > 0);
    replica.lift();
    let mut reply = null();
    wait_until("the lease of the loaded lock ends", || {
        reply = copy.say("LOCK.ACQUIRE k me 10");
        reply != null()
    });
    assert!(reply.as_int() > newer);
}

#[test]
fn a_promoted_replica_issues_no_token_that_its_master_may_have_issued() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    let mut copy = replica.client();
    copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let ceiling = |server: &Server| server.info("token_ceiling");
    let mut client = master.client();
    wait_until("the replica is known", || client.say("INFO replication").as_text().contains("connected_slaves:1"));
    let heard = ceiling(&master);
    wait_until("the replica has heard of the ceiling", || {
        copy.say("INFO commandstats").as_text().to_lowercase().contains("lock.ceiling")
    });
    let newest = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    assert!(newest as u64 <= heard);
    copy.say("REPLICAOF NO ONE");
    replica.lift();
    // Of this key the replica knows nothing; the master may have granted it up to its ceiling.
    let token = copy.insist("LOCK.ACQUIRE other you 1000").as_int();
    assert!(token as u64 > heard, "{token} is not above {heard}");
}

#[test]
fn flushing_live_locks_is_guarded_until_the_last_of_them_would_have_ended() {
    for line in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "SWAPDB 0 1"] {
        let mut server = Setup::new().aof().start();
        let mut client = server.client();
        client.insist("LOCK.ACQUIRE gone me 60000");
        client.say("LOCK.RELEASE gone me");
        client.say("LOCK.ACQUIRE k me 40000");
        client.say(line);
        let left = guarded_ms(client.say("LOCK.ACQUIRE k you 1000"));
        assert!(left <= 40_000, "{line}: {left}, the released lock counts for nothing");
        assert_eq!(client.say("LOCK.NODE").field("guard_reason"), text("flush"), "{line}");
        // A crash does not forget it, though the AOF proves everything else.
        drop(client);
        server.kill();
        server.start_again();
        assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k you 1000")) <= left, "{line}");
    }
    let server = Server::start();
    let mut client = server.client();
    client.insist("LOCK.ACQUIRE k me 200");
    client.say("FLUSHALL");
    assert!(client.outlast_guard("LOCK.ACQUIRE k you 1000").as_int() > 0, "it ends with the last lease");
    client.say("LOCK.RELEASE k you");
    // Nothing live, nothing to guard.
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "DEBUG RELOAD"] {
        client.say(line);
        assert!(client.insist("LOCK.ACQUIRE k me 60000").as_int() > 0, "{line}");
        client.say("LOCK.RELEASE k me");
    }
}

/// The end of loading took the guard of a flush that the AOF replayed for that of a reload, and undid it.
#[test]
fn a_flush_that_only_the_aof_knows_of_is_guarded() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, away) = (dir.path().join("folder"), dir.path().join("away"));
    fs::create_dir(&folder).unwrap();
    let path = folder.join("node.state");
    let arguments = ["state-file", path.to_str().unwrap()];
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        let mut server = Setup::new().aof().module_arguments(&arguments).start();
        let mut client = server.client();
        client.insist("LOCK.ACQUIRE k me 60000");
        // From here on the state file stands still.
        fs::rename(&folder, &away).unwrap();
        client.say(line);
        assert!(guarded_ms(client.say("LOCK.ACQUIRE k you 1000")) > 30_000, "{line}");
        drop(client);
        server.kill();
        fs::rename(&away, &folder).unwrap();
        server.start_again();
        assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k you 1000")) > 30_000, "{line}");
    }
}

#[test]
fn a_reload_drops_nothing() {
    let (server, token) = held(Setup::new());
    assert_eq!(server.client().say("DEBUG RELOAD"), text("OK"));
    assert_remembers(&server, token);
}

#[test]
fn an_evicted_lock_bars_its_key_from_others() {
    let server = Setup::new().option("maxmemory-policy", "allkeys-lru").start();
    assert!(server.log().contains("maxmemory-policy lets the server evict keys"));
    let mut client = server.client();
    for n in 0..500 {
        client.say(&format!("LOCK.ACQUIRE k{n} me 60000"));
    }
    let used = client.info_field("used_memory");
    client.say(&format!("CONFIG SET maxmemory {}", used - 30_000));
    client.say("SET x 1");
    client.say("CONFIG SET maxmemory 0");
    client.say("DEL x");
    assert!(server.info("evicted") > 0);
    let evicted = (0..500).find(|n| client.say(&format!("EXISTS k{n}")) == int(0)).expect("one is evicted");
    assert!(guarded_ms(client.say(&format!("LOCK.ACQUIRE k{evicted} you 1000"))) > 30_000);
    assert!(client.insist("LOCK.ACQUIRE other you 1000").as_int() > 0, "that key alone");
    assert_eq!(client.say(&format!("LOCK.EXTEND k{evicted} me 1000")), null(), "its holder is told the truth");
    assert!(client.say(&format!("LOCK.ACQUIRE k{evicted} me 1000")).as_int() > 0, "and may have it again");
}

#[test]
fn a_lowered_max_ttl_still_honours_the_old_one() {
    let (mut server, token) = held(Setup::new());
    server.kill();
    server.start_again_with(|setup| setup.module_arguments(&SHORT));
    assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k you 100")) > 30_000, "leases of the old limit may run");
    server.lift();
    assert!(server.client().insist("LOCK.ACQUIRE k you 100").as_int() > token);
}

#[test]
fn a_state_file_that_cannot_be_read_proves_nothing_and_is_kept_aside() {
    let damage: [(&str, fn(&str) -> String, &str); 4] = [
        ("absent", |_| String::new(), ""),
        ("cut short", |text| text[..text.len() / 2].to_owned(), "is damaged"),
        ("changed", |text| text.replace("incarnation 1", "incarnation 9"), "is damaged"),
        ("of the future", |text| text.replace("palisade-node 1", "palisade-node 2"), "is of version 2"),
    ];
    for (what, change, logged) in damage {
        let (mut server, token) = held(Setup::new().aof());
        let id = server.client().say("LOCK.NODE").field("id");
        server.kill();
        let path = state_file(&server);
        let text = read(path.clone());
        match change(&text) {
            gone if gone.is_empty() => fs::remove_file(&path).unwrap(),
            changed => fs::write(&path, changed).unwrap(),
        }
        server.start_again();
        assert!(server.log().contains(logged), "{what}: {}", server.log());
        assert_ne!(server.client().say("LOCK.NODE").field("id"), id, "{what}: a node without a memory is a new node");
        assert_guarded(&server, token);
        let aside = if what == "of the future" { ".other-version" } else { ".damaged" };
        let kept = PathBuf::from(format!("{}{aside}", path.display()));
        assert_eq!(kept.exists(), what != "absent", "{what}");
    }
}

#[test]
fn a_node_keeps_its_identity_and_counts_its_lives() {
    let (mut server, _) = held(Setup::new().aof());
    let id = server.client().say("LOCK.NODE").field("id");
    assert_eq!(id.as_text().len(), 32);
    for life in 2..5 {
        server.kill();
        server.start_again();
        let node = server.client().say("LOCK.NODE");
        assert_eq!((node.field("id"), node.field("incarnation")), (id.clone(), int(life)));
        assert_eq!((node.field("role"), node.field("protocol")), (text("master"), int(1)));
        assert_eq!(node.field("max_ttl"), int(60_000));
        assert!(node.field("clock_us").as_int() > 1 << 50);
    }
    assert_ne!(Server::start().client().say("LOCK.NODE").field("id"), id);
}

#[test]
fn two_servers_do_not_share_a_state_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shared.state");
    let arguments = ["state-file", path.to_str().unwrap()];
    let mut first = Setup::new().module_arguments(&arguments).start();
    let log = Setup::new().module_arguments(&arguments).refused();
    assert!(log.contains("another server uses the state file"), "{log}");
    assert!(first.client().say("LOCK.ACQUIRE k me 1000").as_int() > 0);
    first.kill();
    Setup::new().module_arguments(&arguments).start();
}

#[test]
fn a_disk_that_fails_refuses_grants_at_the_ceiling_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("node.state");
    let server = Setup::new().module_arguments(&["state-file", path.to_str().unwrap()]).start();
    let mut client = server.client();
    let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
    // The folder goes away under it: nothing can be written.
    let away = dir.path().join("away");
    fs::rename(&folder, &away).unwrap();
    wait_until("the failure is noticed", || server.info("state_file_failing") == 1);
    assert!(server.log().contains("the state file cannot be written"));
    let mut last = token;
    wait_until("the ceiling is reached", || {
        client.say("LOCK.RELEASE k me");
        match client.say("LOCK.ACQUIRE k me 60000") {
            Reply::Error(text) => text.starts_with("NOTYET 10 "),
            reply => {
                assert!(reply.as_int() > last);
                last = reply.as_int();
                assert!(last as u64 <= server.info("token_ceiling"));
                false
            }
        }
    });
    assert_eq!(client.say("LOCK.RELEASE k me"), null());
    fs::rename(&away, &folder).unwrap();
    assert!(client.insist("LOCK.ACQUIRE k me 60000").as_int() > last);
    wait_until("the recovery is noticed", || server.info("state_file_failing") == 0);
    assert!(server.log().contains("the state file can be written again"));
}

#[test]
fn proposals_of_a_quorum_client() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    // A new node's first tokens are ahead of its clock by the skew: no proposal is above them before that has passed.
    wait_until("the clock is past the first token", || client.say("LOCK.NODE").field("clock_us").as_int() > first);
    let clock = client.say("LOCK.NODE").field("clock_us").as_int();
    let mut again = |proposal: i64| {
        client.say("LOCK.RELEASE k me");
        client.insist(&format!("LOCK.ACQUIRE k me 60000 FENCE {proposal}")).as_int()
    };
    let proposed = clock + 500_000;
    assert_eq!(again(proposed), proposed, "taken");
    assert_eq!(again(proposed), proposed + 1, "equal to the last: one more");
    assert_eq!(again(first), proposed + 2, "lower: one more");
    assert_eq!(again(clock + 3_600_000_000), proposed + 3, "an hour ahead: ignored");
    assert_eq!(again((1 << 53) - 1), proposed + 4);
    let held = proposed + 4;
    // The second round: raised, never lowered, bounded by a fixed cap.
    assert_eq!(client.say(&format!("LOCK.FENCE k me {held}")), int(held));
    assert_eq!(client.say("LOCK.FENCE k me 1"), int(held), "lower is no error");
    assert_eq!(client.say(&format!("LOCK.FENCE k you {}", held + 5)), null());
    assert_eq!(client.say(&format!("LOCK.FENCE k me {}", held + 5)), int(held + 5));
    assert_eq!(client.say("LOCK.INFO k").field("token"), int(held + 5));
    let far = held + 7_200_000_000;
    assert_eq!(client.insist(&format!("LOCK.FENCE k me {far}")), int(far), "hours ahead: after a write to the disk");
    assert!(error(client.say("LOCK.FENCE k me 4503599627370497")).starts_with("ERR token must be at most"));
    client.say("LOCK.RELEASE k me");
    assert!(client.insist("LOCK.ACQUIRE k you 60000").as_int() > far);
}

#[test]
fn a_clock_set_back_between_two_lives_brings_no_token_back() {
    for back in [3_600, 86_400] {
        let mut server = Setup::new().wall_clock().start();
        server.wall_clock().set(0);
        let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
        server.kill();
        server.wall_clock().set(-back);
        server.start_again();
        server.lift();
        let mut client = server.client();
        assert!(client.insist("LOCK.ACQUIRE k me 60000").as_int() > token, "{back}");
    }
}

#[test]
fn a_terminated_server_ends_clean() {
    let (mut server, token) = held(Setup::new().option("save", "3600 1"));
    server.signal(Signal::TERM);
    server.wait_ended();
    server.start_again();
    assert_remembers(&server, token);
}

#[test]
fn a_save_that_fails_ends_nothing_and_proves_nothing() {
    let (mut server, token) = held(Setup::new().option("save", "3600 1"));
    // Where the snapshot should go there is a folder.
    let snapshot = server.dir().join("dump.rdb");
    fs::create_dir(&snapshot).unwrap();
    assert!(error(server.client().say("SHUTDOWN SAVE")).contains("Errors trying to SHUTDOWN"));
    assert_eq!(server.client().say("LOCK.EXTEND k me 60000"), int(token), "it goes on");
    server.kill();
    fs::remove_dir(&snapshot).unwrap();
    server.start_again();
    assert_guarded(&server, token);
}

/// The old master is frozen, not dead: it grants nothing more, and what it granted counts.
#[test]
fn no_second_grant_after_a_fail_over_before_the_first_has_ended() {
    let setup = || Setup::new().replication().option("repl-diskless-sync-delay", "0").module_arguments(&SHORT);
    let (master, replica) = (setup().start(), setup().start());
    let (mut client, mut copy) = (master.client(), replica.client());
    copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    wait_until("the replica has heard of its master", || {
        copy.say("INFO commandstats").as_text().to_lowercase().contains("lock.ceiling")
    });
    for round in 0..5 {
        // Granted by the master alone: the replica never hears of it.
        replica.signal(Signal::STOP);
        let sent = Instant::now();
        let token = client.insist(&format!("LOCK.ACQUIRE k{round} me 300")).as_int();
        master.signal(Signal::STOP);
        replica.signal(Signal::CONT);
        copy.say("REPLICAOF NO ONE");
        let newer = copy.outlast_guard(&format!("LOCK.ACQUIRE k{round} you 300")).as_int();
        assert!(sent.elapsed() >= Duration::from_millis(300), "granted after {:?}", sent.elapsed());
        assert!(newer > token, "{newer} after {token}");
        master.signal(Signal::CONT);
        copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        wait_until("it follows again", || copy.say("INFO replication").as_text().contains("master_link_status:up"));
    }
}

#[test]
fn paused_writes_stop_neither_the_ceiling_nor_the_server() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    let mut client = master.client();
    replica.client().say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    wait_until("the replica is known", || client.say("INFO replication").as_text().contains("connected_slaves:1"));
    for n in 0..100 {
        client.insist(&format!("LOCK.ACQUIRE k{n} me {}", 10 * n + 1));
    }
    client.say("CLIENT PAUSE 100000 WRITE");
    let first = master.info("token_ceiling");
    wait_until("the ceiling moves on", || master.info("token_ceiling") > first);
    let second = master.info("token_ceiling");
    wait_until("and again, past the time at which replicas are told", || master.info("token_ceiling") > second);
    client.say("CLIENT UNPAUSE");
    wait_until("what had ended is gone", || client.say("DBSIZE") == int(0));
    wait_until("on the replica too", || replica.client().say("DBSIZE") == int(0));
}
