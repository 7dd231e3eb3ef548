//! Commands that another module of the server sends.

use std::process::Command;

use std::path::Path;

use crate::harness::{Reply, Server, Setup, error, int, not_here, null, text, wait_until};

/// Starts a server that also has the module `other_module.c`, which is built in `dir`.
fn beside_another(dir: &Path) -> Server {
    let (module, source) = (dir.join("other.so"), dir.join("other.c"));
    std::fs::write(&source, include_str!("harness/other_module.c")).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&module).arg(&source).status();
    assert!(status.expect("a C compiler is installed").success());
    Setup::new().option("loadmodule", module.to_str().unwrap()).start()
}

/// Another module can run commands without a user and without a connection. Asking the server for that user's name
/// crashed it, and Valkey named a client that never closes as the connection.
#[test]
fn a_command_that_another_module_sends_does_not_crash_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = beside_another(dir.path());
    let mut me = server.client();
    assert!(me.say("OTHER.CALL LOCK.ACQUIRE k me 60000").as_int() > 0);
    assert_eq!(me.say("OTHER.CALL LOCK.RELEASE k me"), int(0));
    let told = me.try_say("OTHER.CALL LOCK.WAIT k me 100 HEARD a-name-of-a-listener");
    let script = "return(redis.pcall('LOCK.WAIT','k','me','0','HEARD','a-name-of-a-listener'))";
    let in_script = me.try_say(&format!("OTHER.CALL EVAL {script} 0"));
    assert!(!server.log().contains("crashed by signal"), "{told:?}");
    assert!(error(told.unwrap()).starts_with("NOLISTENER"));
    assert!(error(in_script.unwrap()).starts_with("NOLISTENER"));
    for line in ["LOCK.ACQUIRE k me 60000 KEEPALIVE 60000", "LOCK.HEAR a-name-of-a-listener 0", "LOCK.MEMBERS JOIN 0"] {
        assert!(error(me.say(&format!("OTHER.CALL {line}"))).contains("outside of scripts"), "{line}");
    }
    assert_eq!(me.say("PING"), text("PONG"));
}

/// From Redis 7.2 on another module may let a command block (`K` in RedisModule_Call). Such a command has neither a user
/// nor a connection, and yet the server says that its client may be blocked.
#[test]
fn a_command_that_another_module_lets_block_does_not_crash_the_server() {
    for line in ["LOCK.ACQUIRE k me 60000 WAIT 60000", "LOCK.WAIT k me 60000", "LOCK.WATCH k 60000 TOKEN 1"] {
        let dir = tempfile::tempdir().unwrap();
        let server = beside_another(dir.path());
        let mut me = server.client();
        if me.say("INFO server").as_text().contains("valkey_version") {
            return not_here("Valkey 9.1 crashes when a module asks about a client without a connection");
        }
        me.say("LOCK.ACQUIRE k you 60000");
        let told = me.try_say(&format!("OTHER.WAIT {line}"));
        assert!(!server.log().contains("crashed by signal"), "{line}: {told:?}");
        assert_eq!(me.say("PING"), text("PONG"), "{line}");
    }
}

/// Another module that reacts to a key event runs its commands inside the command that published it. A lock that such a
/// command finds granted, or grants, stays granted.
#[test]
fn a_lock_that_is_granted_in_the_callback_of_a_key_event_stays() {
    for waits in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let server = beside_another(dir.path());
        let (mut me, mut waiting) = (server.client(), server.client());
        me.say("OTHER.REACT");
        me.say("LOCK.ACQUIRE k me 300");
        if waits {
            waiting.ask("LOCK.ACQUIRE k waiting 60000 WAIT 60000");
            let token = waiting.hear().as_list()[0].as_int();
            let held = me.say(&format!("LOCK.CHECK k {token}"));
            assert!(matches!(held, Reply::Int(_)), "the client that waited lost its lock: {held:?}");
        } else {
            wait_until("the lease is over", || server.info("expiries") == 1);
            assert_eq!(server.info("grants"), 2, "the other module was granted the lock");
            assert_eq!(me.say("LOCK.ACQUIRE k me 300"), null(), "two hold the lock");
        }
    }
}

/// Another module breaks every lock that is released, inside the RELEASE. If nobody waits, there is nothing to break.
/// Otherwise it breaks the grant of the first client that waited, and the second client has the lock.
#[test]
fn a_lock_that_is_broken_in_the_callback_of_a_key_event_passes_on_once() {
    for waiters in 0..=2 {
        let dir = tempfile::tempdir().unwrap();
        let server = beside_another(dir.path());
        let mut me = server.client();
        me.say("OTHER.REACT");
        me.say("LOCK.ACQUIRE k me 60000");
        let mut waiting: Vec<_> = (0..waiters).map(|_| server.client()).collect();
        for (n, client) in waiting.iter_mut().enumerate() {
            client.ask(&format!("LOCK.ACQUIRE k waiting{n} 60000 WAIT 60000"));
            wait_until("the client waits", || server.info("waiters") == n as u64 + 1);
        }
        assert_eq!(me.say("LOCK.RELEASE k me"), int(0));
        let tokens: Vec<_> = waiting.iter_mut().map(|client| client.hear().as_list()[0].as_int()).collect();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        assert_eq!(server.info("grants"), 1 + waiters);
        assert_eq!(server.info("breaks"), waiters.min(1), "{waiters} clients waited");
        let held = tokens.iter().map(|token| me.say(&format!("LOCK.CHECK k {token}")));
        let held: Vec<_> = held.map(|told| matches!(told, Reply::Int(_))).collect();
        assert_eq!(held, [false, true][..tokens.len()]);
    }
}
