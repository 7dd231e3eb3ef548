//! Tests of the commands that clients send before lock commands. The agent answers them although it can reach no node
//! here.

use palisade_agent::Password;

use crate::fixture::{Running, nowhere};

#[test]
fn both_versions_of_the_protocol() {
    let agent = Running::start(&nowhere(), |config| config);
    let mut me = agent.raw();
    assert!(
        me.say("HELLO")
            .starts_with("*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:2\r\n")
    );
    assert!(me.say("HELLO 3 SETNAME web-3").starts_with("%7\r\n"));
    assert_eq!(me.say("CLIENT GETNAME"), "$5\r\nweb-3\r\n");
    assert!(me.say("HELLO 2").starts_with("*14\r\n"));
    assert_eq!(me.say("HELLO 4"), "-NOPROTO unsupported protocol version\r\n");
    assert!(me.say("HELLO three").starts_with("-ERR Protocol version is not an integer"));
    assert!(me.say("HELLO 3 AUTH default").starts_with("-ERR Syntax error in HELLO option"));
    assert!(me.say("CLIENT GETNAME").starts_with("$5"), "a HELLO that is refused changes nothing");
    assert_eq!(me.say("RESET"), "+RESET\r\n");
    assert_eq!(me.say("CLIENT GETNAME"), "$-1\r\n");
    assert_eq!(me.say("QUIT"), "+OK\r\n");
    assert_eq!(me.rest(), "");
}

#[test]
fn what_libraries_send_at_their_start() {
    let agent = Running::start(&nowhere(), |config| config);
    let mut me = agent.raw();
    for line in [
        "CLIENT SETINFO LIB-NAME redis-py",
        "client setinfo lib-ver 5.0",
        "CLIENT SETNAME web",
        "CLIENT NO-EVICT on",
        "CLIENT NO-TOUCH on",
        "SELECT 0",
    ] {
        assert_eq!(me.say(line), "+OK\r\n", "{line}");
    }
    assert_eq!(
        (me.say("PING"), me.say("PING a"), me.say("ECHO b")),
        ("+PONG\r\n".into(), "$1\r\na\r\n".into(), "$1\r\nb\r\n".into())
    );
    assert!(me.say("CLIENT ID").starts_with(':'));
    let line = me.say("CLIENT INFO");
    assert!(line.contains("name=web") && line.contains("lib-name=redis-py lib-ver=5.0\n"), "{line}");
    assert_eq!(me.say("CONFIG GET save"), "*0\r\n");
    assert_eq!(me.say("COMMAND COUNT"), format!(":{}\r\n", 25));
    assert!(me.say("COMMAND").starts_with("*25\r\n*10\r\n$12\r\nlock.acquire\r\n:-4\r\n"));
    assert!(me.say("COMMAND INFO lock.check get").starts_with("*2\r\n*10\r\n$10\r\nlock.check\r\n:3\r\n"));
    assert!(me.say("COMMAND INFO get").ends_with("$-1\r\n"));
    assert!(me.say("COMMAND DOCS").starts_with("*50\r\n$12\r\nLOCK.ACQUIRE\r\n"));
    assert!(me.say("COMMAND LIST").contains("lock.watch"));
    assert!(
        me.say("LOCK.HELP")
            .contains("LOCK.ACQUIRE key owner ttl [SHARED] [LIMIT limit] [PERMIT number] [KEEPALIVE ms]")
    );
    let info = me.say("INFO server clients");
    assert!(info.contains("# Server\r\nredis_version:7.0.0\r\n") && info.contains("connected_clients:1\r\n"), "{info}");
    assert!(!info.contains("# Palisade"));
    assert!(me.say("INFO").contains("state:unreachable\r\n"));
}

#[test]
fn what_is_elsewhere() {
    let agent = Running::start(&nowhere(), |config| config);
    let mut me = agent.raw();
    for (line, answer) in [
        ("SELECT 1", "-ERR DB index is out of range"),
        ("CLIENT TRACKING on", "-ERR CLIENT TRACKING is for a node"),
        ("CLIENT KILL x", "-ERR unknown subcommand"),
        ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command"),
        ("CONFIG SET a b", "-ERR palisade agent has no parameters"),
        ("READONLY", "-ERR This instance has cluster support disabled"),
        ("GET a", "-ERR unknown command 'GET': this is palisade agent"),
        ("MULTI", "-ERR unknown command 'MULTI'"),
        ("LOCK.WAIT k me 5", "-ERR LOCK.WAIT is for a node, not for a quorum"),
        ("LOCK.GUARD", "-ERR LOCK.GUARD is for a node, not for a quorum"),
        ("LOCK.FLOOR", "-ERR LOCK.FLOOR is for a node, not for a quorum"),
        ("LOCK.FENCE k me 5", "-ERR LOCK.FENCE is for a node, not for a quorum"),
        ("LOCK.CONVERT k me EXCLUSIVE", "-ERR CONVERT to EXCLUSIVE is for a node"),
        ("LOCK.ACQUIRE k me 5 FENCE 5", "-ERR FENCE is for a node"),
        ("LOCK.ACQUIRE k me 5 WAIT 5 BEHIND 5", "-ERR BEHIND is for a node"),
        ("LOCK.REENTER k me ADOPT", "-ERR ADOPT is for a node"),
        ("AUTH secret", "-ERR AUTH <password> called without any password configured"),
    ] {
        let said = me.say(line);
        assert!(said.starts_with(answer), "{line}: {said}");
    }
    assert_eq!(me.say("PING"), "+PONG\r\n");
}

#[test]
fn a_password_comes_first() {
    let agent = Running::start(&nowhere(), |config| palisade_agent::Config {
        password: Some(Password::new(b"secret\n").unwrap()),
        ..config
    });
    let mut me = agent.raw();
    for line in ["PING", "LOCK.NODE", "GET a", "INFO", "COMMAND"] {
        assert_eq!(me.say(line), "-NOAUTH Authentication required.\r\n", "{line}");
    }
    assert!(me.say("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    for line in ["AUTH Secret", "AUTH me secret", "AUTH default", "HELLO 3 AUTH default wrong"] {
        assert!(me.say(line).starts_with("-WRONGPASS"), "{line}");
    }
    assert_eq!(me.say("AUTH secret"), "+OK\r\n");
    assert_eq!(me.say("PING"), "+PONG\r\n");
    assert_eq!(me.say("RESET"), "+RESET\r\n");
    assert!(me.say("PING").starts_with("-NOAUTH"));
    assert!(me.say("HELLO 3 AUTH default secret SETNAME web").starts_with("%7\r\n"));
    assert!(me.say("INFO stats").contains("acl_access_denied_auth:4\r\n"));
    // A client that has not given the password may send short requests only.
    let mut stranger = agent.raw();
    stranger.send(b"*2\r\n$4\r\nAUTH\r\n$100000\r\n");
    assert!(stranger.rest().starts_with("-ERR Protocol error: a request has up to 4096 bytes"));
}
