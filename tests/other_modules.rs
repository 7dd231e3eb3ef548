//! Commands that another module of the server sends.

use std::process::Command;

use crate::harness::{Setup, error, int, text};

/// Another module can run commands without a user and without a connection. Asking the server for that user's name
/// crashed it, and Valkey named a client that never closes as the connection.
#[test]
fn a_command_that_another_module_sends_does_not_crash_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let (module, source) = (dir.path().join("other.so"), dir.path().join("other.c"));
    std::fs::write(&source, include_str!("harness/other_module.c")).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&module).arg(&source).status();
    assert!(status.expect("a C compiler is installed").success());
    let server = Setup::new().option("loadmodule", module.to_str().unwrap()).start();
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
