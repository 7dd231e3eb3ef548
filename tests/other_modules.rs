//! Commands that another module of the server sends.

use std::process::Command;

use std::path::Path;

use crate::harness::{Server, Setup, error, int, not_here, text};

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
