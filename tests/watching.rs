//! The commands as an operator sees them in SLOWLOG, MONITOR, LATENCY and the log. An owner's bytes are enough to
//! release a lock, so the module's log lines never contain them.

use std::fs;

use crate::harness::{Reply, Server, Setup, error, int, queues, text, wait_until};
use crate::storms::random_storm;

/// Returns the commands in SLOWLOG, newest first, each with its arguments.
fn slowlog(client: &mut crate::harness::Client) -> Vec<Vec<String>> {
    let entries = client.say("SLOWLOG GET 100").as_list();
    entries.iter().map(|entry| entry.as_list()[3].as_list().iter().map(Reply::as_text).collect()).collect()
}

#[test]
fn slowlog_shows_commands_with_their_arguments() {
    let server = Server::start();
    let mut me = server.client();
    assert_eq!(me.say("CONFIG SET slowlog-log-slower-than 0"), text("OK"));
    me.say("LOCK.ACQUIRE k me 60000 NOTE nightly");
    let mut next = queues(&server, "next").0;
    me.say("LOCK.RELEASE k me");
    next.hear();
    let entries = slowlog(&mut me);
    for line in ["LOCK.ACQUIRE k me 60000 NOTE nightly", "LOCK.ACQUIRE k next 60000 WAIT 60000", "LOCK.RELEASE k me"] {
        let times = entries.iter().filter(|entry| entry.join(" ") == line).count();
        assert_eq!(times, 1, "{line} in {entries:?}");
    }
}

/// Time in the queue does not count as time for which the server was busy.
#[test]
fn a_long_wait_is_not_slow() {
    let server = Server::start();
    let mut me = server.client();
    let limit_us = 200_000;
    assert_eq!(me.say(&format!("CONFIG SET slowlog-log-slower-than {limit_us}")), text("OK"));
    // Earlier slow writes on a busy disk, such as the end of the guard, do not count.
    me.say("SLOWLOG RESET");
    me.say("CONFIG SET latency-monitor-threshold 200");
    me.say("LOCK.ACQUIRE k me 60000");
    let mut next = queues(&server, "next").0;
    wait_until("a while has passed", || {
        let queue = me.say("LOCK.INFO k WAITERS 1").field("queue").as_list();
        queue[0].field("waited").as_int() > 2 * limit_us / 1_000
    });
    me.say("LOCK.RELEASE k me");
    assert_eq!(next.hear().as_list().len(), 2);
    let entries = slowlog(&mut me);
    assert!(!entries.iter().any(|entry| entry[0].starts_with("LOCK.")), "{entries:?}");
    // LATENCY records commands under events of the server's thread.
    let events = me.say("LATENCY LATEST").as_list();
    assert!(!events.iter().any(|event| event.as_list()[0] == text("command")), "{events:?}");
}

#[test]
fn latency_counts_each_command_by_name() {
    let server = Server::start();
    let mut me = server.client();
    for _ in 0..3 {
        me.say("LOCK.ACQUIRE k me 60000");
        me.say("LOCK.RELEASE k me");
    }
    let histogram = me.say("LATENCY HISTOGRAM LOCK.ACQUIRE LOCK.RELEASE");
    for name in ["LOCK.ACQUIRE", "LOCK.RELEASE"] {
        assert_eq!(histogram.field(name).field("calls"), int(3));
    }
    let stats = me.say("INFO commandstats").as_text();
    assert!(stats.contains("cmdstat_LOCK.ACQUIRE:calls=3,"), "{stats}");
    me.say("LOCK.ACQUIRE k me 60000");
    me.say("LOCK.ACQUIRE k me 60000");
    let stats = me.say("INFO errorstats").as_text();
    assert!(stats.contains("errorstat_OWNED:count=1"), "errors are counted by their code: {stats}");
}

#[test]
fn monitor_shows_what_clients_ask_and_nothing_internal() {
    let server = Server::start();
    let mut me = server.client();
    let mut monitor = server.client();
    assert_eq!(monitor.say("MONITOR"), text("OK"));
    me.say("LOCK.ACQUIRE k me 60000");
    let mut next = queues(&server, "next").0;
    me.say("LOCK.RELEASE k me");
    next.hear();
    me.say("ECHO end");
    let mut seen = vec![];
    loop {
        let line = monitor.hear().as_text();
        if line.contains("\"ECHO\" \"end\"") {
            break;
        }
        seen.extend(line.split_once("] ").map(|(_, command)| command.to_owned()));
    }
    seen.retain(|line| line.contains("LOCK.") || line.contains("DEL"));
    assert_eq!(
        seen,
        [
            r#""LOCK.ACQUIRE" "k" "me" "60000""#,
            r#""LOCK.ACQUIRE" "k" "next" "60000" "WAIT" "60000""#,
            r#""LOCK.RELEASE" "k" "me""#
        ]
    );
}

#[test]
fn the_acl_log_has_keys_and_commands_but_no_owners() {
    let server = Server::start();
    let mut operator = server.client();
    operator.say("ACL SETUSER app on nopass ~orders:* +lock.acquire");
    let mut app = server.client();
    app.say("AUTH app x");
    assert!(error(app.say("LOCK.ACQUIRE users:1 SECRET 1000")).starts_with("NOPERM"));
    assert!(error(app.say("LOCK.BREAK orders:1")).starts_with("NOPERM"));
    let log = format!("{:?}", operator.say("ACL LOG"));
    let bytes = |text: &str| format!("{:?}", Reply::Text(text.into()));
    assert!(log.contains(&bytes("users:1")) && log.contains(&bytes("LOCK.BREAK")), "{log}");
    assert!(!log.contains(&bytes("SECRET")));
}

/// Log lines at `debug`, and those of a crash in a command, contain neither owners nor notes.
#[test]
fn no_owner_is_ever_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.state");
    let mut server = Setup::new()
        .aof()
        .option("loglevel", "debug")
        .module_arguments(&["state-file", path.to_str().unwrap()])
        .start();
    random_storm(&server);
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k OWNER-SECRET 60000 NOTE NOTE-SECRET");
    let dump = me.say("DUMP k");
    me.say("LOCK.RELEASE k OWNER-SECRET");
    // Refusals of every kind: invalid arguments and payloads, full queues, other types, evictions, flushes, guards.
    let mut torn = dump.as_bytes().to_vec();
    let middle = torn.len() / 2;
    torn[middle] ^= 1;
    me.send(&[b"RESTORE", b"torn", b"0", &torn]);
    me.send(&[b"RESTORE", b"whole", b"0", dump.as_bytes()]);
    me.say("LOCK.ACQUIRE whole OWNER-SECRET 0");
    me.say("LOCK.EFFECT k OWNER-SECRET");
    me.say("CONFIG SET lock.max-waiters 0");
    me.say("LOCK.ACQUIRE whole OWNER-SECRET2 1000 WAIT 1000");
    me.say("FLUSHALL");
    me.say("LOCK.GUARD ARM 10");
    #[cfg(debug_assertions)]
    me.say("LOCK.PANIC");
    server.shutdown("");
    server.start_again();
    let log = server.log();
    assert!(log.contains("<lock> "), "it logs");
    for secret in ["SECRET", "w0-", "w1-", "w15-"] {
        assert!(!log.contains(secret), "{secret} in the log:\n{log}");
    }
    assert!(!fs::read_to_string(path).unwrap().contains("SECRET"), "nor in the state file");
}
