//! A start either proves that the node remembers every grant of its last incarnation, or is guarded.

use std::fs;

use rustix::process::Signal;

use crate::harness::{SHORT, Setup, assert_guarded, assert_remembers, error, guarded_ms, held, int, text, wait_until};

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
    // Each entry: the argument of SHUTDOWN, and the server's setup.
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
        // The proof is used only once: after it a crash is like any other.
        let aof_always = how == "NOSAVE";
        server.kill();
        server.start_again();
        if aof_always { assert_remembers(&server, token) } else { assert_guarded(&server, token) }
    }
}

#[test]
fn an_end_that_left_something_else_is_guarded() {
    // The data was saved earlier, and the server ended without saving, so the file has older locks.
    let (mut server, token) = held(Setup::new().option("save", "3600 1"));
    server.client().say("SAVE");
    server.client().say("LOCK.ACQUIRE later me 60000");
    server.shutdown("NOSAVE");
    server.start_again();
    assert_guarded(&server, token);
    // The server ended with a snapshot, and starts with the AOF newly switched on, so nothing is loaded.
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
fn a_lowered_max_ttl_still_honours_the_old_one() {
    let (mut server, token) = held(Setup::new());
    server.kill();
    server.start_again_with(|setup| setup.module_arguments(&SHORT));
    assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k you 100")) > 30_000, "leases of the old limit may run");
    server.lift();
    assert!(server.client().insist("LOCK.ACQUIRE k you 100").as_int() > token);
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
    // A folder is in the place of the snapshot.
    let snapshot = server.dir().join("dump.rdb");
    fs::create_dir(&snapshot).unwrap();
    assert!(error(server.client().say("SHUTDOWN SAVE")).contains("Errors trying to SHUTDOWN"));
    assert_eq!(server.client().say("LOCK.EXTEND k me 60000"), int(token), "it goes on");
    server.kill();
    fs::remove_dir(&snapshot).unwrap();
    server.start_again();
    assert_guarded(&server, token);
}

/// The AOF may have been switched on just before, and may still be waiting for its first rewrite, which the module
/// cannot know. So such an AOF proves nothing after a crash, and the node is guarded.
#[test]
fn a_module_loaded_into_a_running_server_does_not_trust_its_aof() {
    let mut server = Setup::new().aof().module_later().start();
    let mut client = server.client();
    let module = crate::harness::module();
    assert_eq!(client.say(&format!("MODULE LOAD {}", module.display())), text("OK"));
    assert!(guarded_ms(client.say("LOCK.ACQUIRE k me 60000")) > 30_000);
    client.lift();
    let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
    drop(client);
    server.kill();
    server.start_again_with(Setup::module_now);
    assert_guarded(&server, token);
}

/// A transaction's grant is written to the AOF at its end, when the AOF may already be off. So the grant does not count
/// as remembered.
#[test]
fn a_grant_in_the_transaction_that_turns_the_aof_off_is_not_taken_for_remembered() {
    for last in ["CONFIG SET appendonly no", "CONFIG SET appendfsync no"] {
        let mut server = Setup::new().aof().start();
        let mut client = server.client();
        client.say("MULTI");
        client.say("LOCK.ACQUIRE k me 60000");
        client.say(last);
        let token = client.say("EXEC").as_list()[0].as_int();
        drop(client);
        server.kill();
        server.start_again();
        assert_guarded(&server, token);
    }
}

#[test]
fn setting_the_aof_to_what_it_is_changes_nothing_and_moving_it_does() {
    let (mut server, token) = held(Setup::new().aof().option("enable-protected-configs", "yes"));
    for line in ["CONFIG SET appendfsync always", "CONFIG SET appendonly yes no-appendfsync-on-rewrite no"] {
        assert_eq!(server.client().say(line), text("OK"));
    }
    server.kill();
    server.start_again();
    assert_remembers(&server, token);
    let elsewhere = server.dir().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    assert_eq!(server.client().say(&format!("CONFIG SET dir {}", elsewhere.display())), text("OK"));
    server.kill();
    server.start_again();
    assert_guarded(&server, token);
}

/// A lock from an incarnation that was not proved stays suspect. It used to be suspect for that incarnation only: after
/// a clean restart the node vouched for a holder that may have lost it.
#[test]
fn a_suspect_lock_is_suspect_in_the_next_life_too() {
    let (mut server, token) = held(Setup::new().option("save", "3600 1"));
    let mut client = server.client();
    client.say("SAVE");
    client.say("LOCK.RELEASE k me");
    assert!(client.say("LOCK.ACQUIRE k you 60000").as_int() > token);
    drop(client);
    server.kill();
    for _ in 0..2 {
        server.start_again();
        server.lift();
        let mut client = server.client();
        assert_eq!(client.say("LOCK.INFO k").field("token"), int(token));
        for line in [format!("LOCK.CHECK k {token}"), "LOCK.EXTEND k me 60000".to_owned()] {
            assert!(guarded_ms(client.say(&line)) > 1_000, "{line}");
        }
        drop(client);
        server.shutdown("SAVE");
    }
}
