//! A grant to a waiter is in the AOF and on the replica, in order, after the command that caused it.

use crate::harness::{Reply, Server, Setup, in_step, int, pair, queues, text};

fn token(reply: &Reply) -> i64 {
    reply.as_list()[0].as_int()
}

/// Returns the names of the commands in the AOF, in order, without SELECT.
fn aof(server: &Server) -> Vec<String> {
    let dir = server.dir().join("appendonlydir");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().contains(".incr."));
    files.sort();
    let mut names = vec![];
    for file in files {
        let bytes = std::fs::read(file).unwrap();
        let mut at = 0;
        let line = |at: &mut usize| {
            let end = *at + bytes[*at..].iter().position(|&byte| byte == b'\n').unwrap();
            let line = String::from_utf8_lossy(&bytes[*at..end]).trim().to_owned();
            *at = end + 1;
            line
        };
        while at < bytes.len() {
            let head = line(&mut at);
            if !head.starts_with('*') {
                continue;
            }
            for n in 0..head[1..].parse::<usize>().unwrap() {
                let len: usize = line(&mut at)[1..].parse().unwrap();
                if n == 0 {
                    names.push(String::from_utf8_lossy(&bytes[at..at + len]).to_uppercase());
                }
                at += len + 2;
            }
        }
    }
    names.retain(|name| name != "SELECT");
    names
}

#[test]
fn a_crash_right_after_a_hand_over_forgets_nothing_that_was_told() {
    let mut server = Setup::new().aof().start();
    let mut holder = server.client();
    let mut last = holder.say("LOCK.ACQUIRE k o0 60000").as_int();
    // Causes that free the lock; each is in the AOF before the answer is sent.
    for (n, cause) in ["LOCK.RELEASE k o0", "DEL k", "LOCK.BREAK k", "PEXPIRE k 1", "UNLINK k"].iter().enumerate() {
        let owner = format!("o{}", n + 1);
        let (mut next, _) = queues(&server, &owner);
        let (_after, _) = queues(&server, "after");
        holder.ask(cause);
        let granted = token(&next.hear());
        server.kill();
        server.start_again();
        holder = server.client();
        assert!(granted > last, "{cause}");
        last = granted;
        let info = holder.say("LOCK.INFO k");
        assert_eq!((info.field("owner"), info.field("token")), (text(&owner), int(granted)), "{cause}");
        assert_eq!(holder.insist(&format!("LOCK.EXTEND k {owner} 60000")), int(granted), "{cause}");
    }
}

#[test]
fn a_hand_over_stands_after_its_cause() {
    // (the commands, the end of the AOF after them)
    let cases: [(&[&str], &[&str]); 6] = [
        (&["LOCK.RELEASE k me"], &["LOCK.EFFECT"]),
        (&["DEL k"], &["DEL", "LOCK.EFFECT"]),
        (&["PEXPIRE k 20"], &["PEXPIREAT", "DEL", "LOCK.EFFECT"]),
        (&["MULTI", "SET k x", "DEL k", "EXEC"], &["MULTI", "SET", "DEL", "EXEC", "LOCK.EFFECT"]),
        (&["EVAL redis.call('SET','k','x');redis.call('DEL','k') 0"], &["MULTI", "SET", "DEL", "EXEC", "LOCK.EFFECT"]),
        (&["RENAME k away"], &["RENAME", "LOCK.EFFECT"]),
    ];
    for (cause, expected) in cases {
        let server = Setup::new().aof().start();
        let mut me = server.client();
        me.say("LOCK.ACQUIRE k me 60000");
        let (mut next, _) = queues(&server, "next");
        let before = aof(&server).len();
        cause.iter().for_each(|line| {
            me.say(line);
        });
        token(&next.hear());
        // The form in which an expiry is written differs between servers.
        let mut written: Vec<_> = aof(&server)[before..].to_vec();
        written.iter_mut().filter(|name| *name == "UNLINK").for_each(|name| *name = "DEL".to_owned());
        assert_eq!(written, expected, "{cause:?}");
    }
}

#[test]
fn what_sends_a_waiter_away_is_not_in_the_aof() {
    let server = Setup::new().aof().start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let (_killed, id) = queues(&server, "a");
    let (_unblocked, other) = queues(&server, "b");
    let (_sent_away, _) = queues(&server, "c");
    me.say(&format!("CLIENT KILL ID {id}"));
    me.say(&format!("CLIENT UNBLOCK {other} ERROR"));
    me.say("REPLICAOF 127.0.0.1 1");
    assert_eq!(server.info("waiters"), 0);
    me.say("REPLICAOF NO ONE");
    me.say("SET mark x");
    let names = aof(&server);
    assert!(names.contains(&"LOCK.EFFECT".to_owned()));
    for name in ["CLIENT", "REPLICAOF", "SLAVEOF"] {
        assert!(!names.contains(&name.to_owned()), "{names:?}");
    }
}

#[test]
fn a_replica_follows_hand_overs_of_every_cause() {
    let (server, replica) = pair();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k o0 1500");
    let causes = ["", "LOCK.RELEASE k o1", "DEL k", "LOCK.BREAK k", "PEXPIRE k 1", "RENAME k away"];
    for (n, cause) in causes.iter().enumerate() {
        let owner = format!("o{}", n + 1);
        let (mut next, _) = queues(&server, &owner);
        if !cause.is_empty() {
            me.say(cause);
        }
        let granted = token(&next.hear());
        in_step(&mut next);
        let info = replica.client().say("LOCK.INFO k");
        assert_eq!((info.field("owner"), info.field("token")), (text(&owner), int(granted)), "{cause}");
        assert_eq!(me.say("DEBUG DIGEST"), replica.client().say("DEBUG DIGEST"), "{cause}");
    }
    assert_eq!(replica.info("waiters"), 0);
}
