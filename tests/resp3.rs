//! RESP3: maps and Null have types of their own, and clients with cached copies receive invalidations.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::harness::{Server, patience};

/// A connection that shows the bytes of replies.
struct Raw(UnixStream);

impl Raw {
    fn new(server: &Server) -> Self {
        let stream = UnixStream::connect(server.socket()).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        let mut raw = Self(stream);
        assert!(raw.say("HELLO 3").starts_with('%'));
        // Reads the rest of the answer.
        raw.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        while raw.0.read(&mut [0; 4096]).is_ok_and(|count| count == 4096) {}
        raw.0.set_read_timeout(Some(patience())).unwrap();
        raw
    }

    /// Sends a line. Returns the bytes that arrive at once.
    fn say(&mut self, line: &str) -> String {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.hear()
    }

    fn hear(&mut self) -> String {
        let mut buffer = [0; 1 << 16];
        let count = self.0.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }
}

/// A subscribed client may send commands that wait. Valkey 9.1 gives no handle for such a client when it is to be
/// blocked, and the server used to crash.
#[test]
fn a_subscriber_may_ask_for_what_waits() {
    let server = Server::start();
    assert!(server.client().say("LOCK.ACQUIRE k me 60000").as_int() > 0);
    for subscribes in ["SUBSCRIBE channel", "PSUBSCRIBE c*", "SSUBSCRIBE channel"] {
        for (waits, answer) in [
            ("LOCK.ACQUIRE k you 1000 WAIT 20", "_"),
            ("LOCK.WAIT k you 20", ":0"),
            ("LOCK.WATCH free 20", "_"),
            ("LOCK.HEAR drawn-at-random-1 20", "*0"),
        ] {
            let mut raw = Raw::new(&server);
            assert!(raw.say(subscribes).starts_with('>'));
            assert_eq!(raw.say(waits), format!("{answer}\r\n"), "{subscribes}, {waits}");
        }
    }
}

#[test]
fn every_reply_has_its_own_kind() {
    let server = Server::start();
    let mut me = Raw::new(&server);
    let (number, null) = (|reply: &str| reply.starts_with(':') && reply.ends_with("\r\n"), "_\r\n");
    let token = me.say("LOCK.ACQUIRE k me 60000");
    assert!(number(&token), "{token:?}");
    assert_eq!(me.say("LOCK.ACQUIRE k me 60000 WAIT 5 RETRY"), format!("*2\r\n{token}:0\r\n"));
    assert_eq!(me.say("LOCK.ACQUIRE k you 60000"), null);
    assert_eq!(me.say("LOCK.ACQUIRE k you 60000 WAIT 5"), null, "after a wait");
    assert_eq!(me.say("LOCK.WAIT k you 5"), ":0\r\n");
    assert_eq!(me.say("LOCK.EXTEND k me 1000"), token);
    assert_eq!(me.say("LOCK.REENTER k me"), ":2\r\n");
    assert_eq!(me.say("LOCK.FENCE k me 1"), token);
    assert!(number(&me.say(&format!("LOCK.CHECK k {}", token[1..].trim_end()))));
    assert_eq!(me.say("LOCK.CONVERT k me EXCLUSIVE"), token);
    assert!(me.say("LOCK.ACQUIRE l me 60000 LIMIT 3").starts_with("*3\r\n:"));
    assert_eq!(me.say("LOCK.CONVERT l me SHARED"), null);
    let grants = me.say("LOCK.INFO l HOLDERS 3");
    assert!(grants.contains("$6\r\ngrants\r\n*1\r\n%13\r\n$5\r\nowner\r\n$2\r\nme\r\n"), "{grants:?}");
    assert_eq!(me.say("LOCK.NOTE l me text SEQ 7"), ":7\r\n");
    let info = me.say("LOCK.INFO k WAITERS 3");
    assert!(info.starts_with("%16\r\n$5\r\nowner\r\n$2\r\nme\r\n$5\r\ntoken\r\n:"), "{info:?}");
    assert_eq!(me.say("LOCK.RELEASE k me LEVEL 1"), ":0\r\n");
    for line in [
        "LOCK.RELEASE k me",
        "LOCK.EXTEND k me 5",
        "LOCK.REENTER k me",
        "LOCK.FENCE k me 5",
        "LOCK.CHECK k 5",
        "LOCK.NOTE k me t",
    ] {
        assert_eq!(me.say(line), null, "{line}");
    }
    assert_eq!((me.say("LOCK.INFO k"), me.say("LOCK.BREAK k")), (null.to_owned(), null.to_owned()));
    assert!(me.say("LOCK.NODE").starts_with("%11\r\n$2\r\nid\r\n$32\r\n"));
    assert_eq!(me.say("LOCK.GUARD"), ":0\r\n");
    assert!(me.say("LOCK.HELP").starts_with('*'));
    assert!(me.say("LOCK.ACQUIRE k me 0").starts_with("-ERR ttl must be"));
}

/// With client-side caching, a client that has read a lock is notified once when it changes, whichever client changes
/// it, and in whatever way.
#[test]
fn who_keeps_a_copy_is_told_of_changes() {
    let server = Server::start();
    let mut operator = server.client();
    let mut me = Raw::new(&server);
    assert_eq!(me.say("CLIENT TRACKING on"), "+OK\r\n");
    let told = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
    let changes = [
        "LOCK.ACQUIRE k you 60000",
        "LOCK.EXTEND k you 60000",
        "LOCK.REENTER k you",
        "LOCK.RELEASE k you LEVEL 1",
        "LOCK.ACQUIRE k you 60000",
        "LOCK.BREAK k",
    ];
    for change in changes {
        me.say("LOCK.INFO k");
        operator.say(change);
        assert_eq!(me.hear(), told, "{change}");
    }
    // The end of a lease is a change, too. (The client has to read the lock before that.)
    while !me.say("LOCK.INFO k").starts_with('%') {
        operator.say("LOCK.ACQUIRE k you 300");
        assert_eq!(me.hear(), told);
    }
    assert_eq!(me.hear(), told);
}
