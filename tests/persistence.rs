//! Locks after a crash, a restart or a rewrite. Every grant is there with its owner, token, mode, holds and note and,
//! within one boot, its exact deadline. Grants that have ended are not there.

use std::fs;
use std::io::Write;

use crate::harness::{Client, Reply, Server, Setup, error, grants, int, let_leases_run, null, text, wait_until};

/// Makes locks of every kind, after every kind of change, in two databases.
pub fn fill(client: &mut Client) {
    client.send(&[b"LOCK.ACQUIRE", b"bin\0\xFF", b"\0\xFF\r\n", b"60000", b"NOTE", b"\0\xFF\r\n"]);
    for line in [
        "LOCK.ACQUIRE plain me 60000",
        "LOCK.ACQUIRE deep me 60000 NOTE nightly-job",
        "LOCK.REENTER deep me LEVEL 3",
        "LOCK.ACQUIRE extended me 1000",
        "LOCK.EXTEND extended me 60000",
        "LOCK.ACQUIRE released me 60000",
        "LOCK.ACQUIRE taken me 60000",
        "LOCK.BREAK taken",
        "LOCK.ACQUIRE old me 60000",
        "RENAME old new",
        "LOCK.ACQUIRE read a 60000 SHARED NOTE first",
        "LOCK.ACQUIRE read b 60000 SHARED",
        "LOCK.ACQUIRE read gone 60000 SHARED",
        "LOCK.REENTER read b LEVEL 3",
        "LOCK.NOTE read b second SEQ 12",
        "LOCK.RELEASE read gone",
        "LOCK.ACQUIRE jobs a 60000 LIMIT 5",
        "LOCK.ACQUIRE jobs b 60000 LIMIT 5 PERMIT 4",
        "LOCK.ACQUIRE jobs c 1000 LIMIT 4",
        "LOCK.EXTEND jobs c 60000",
        "LOCK.ACQUIRE downgraded w 60000",
        "LOCK.CONVERT downgraded w SHARED",
        "LOCK.ACQUIRE downgraded r 60000 SHARED",
        "LOCK.ACQUIRE upgraded w 60000 SHARED",
        "LOCK.ACQUIRE upgraded r 60000 SHARED",
        "LOCK.RELEASE upgraded r",
        "LOCK.CONVERT upgraded w EXCLUSIVE",
        "LOCK.NOTE upgraded w alone",
        "LOCK.ACQUIRE broken a 60000 SHARED",
        "LOCK.ACQUIRE broken b 60000 SHARED",
        "LOCK.BREAK broken",
        "LOCK.ACQUIRE alone a 60000 SHARED",
        "LOCK.ACQUIRE old-name a 60000 LIMIT 3",
        "RENAME old-name new-name",
        "LOCK.ACQUIRE new-name b 60000 LIMIT 3",
        "SELECT 5",
        "LOCK.ACQUIRE plain you 60000",
        "LOCK.ACQUIRE read elsewhere 60000 SHARED",
        "LOCK.ACQUIRE read there 60000 SHARED",
        "SELECT 0",
    ] {
        let reply = client.insist(line);
        assert!(!matches!(reply, Reply::Error(_) | Reply::Null), "{line}: {reply:?}");
    }
    assert_eq!(client.say("LOCK.RELEASE released me"), int(0));
    let broken = client.say("LOCK.ACQUIRE broken-one a 60000 SHARED").as_int();
    client.say("LOCK.ACQUIRE broken-one b 60000 SHARED");
    assert_eq!(client.say(&format!("LOCK.BREAK broken-one TOKEN {broken}")), int(broken));
}

const KEYS: [&[u8]; 15] = [
    b"plain",
    b"deep",
    b"bin\0\xFF",
    b"extended",
    b"released",
    b"taken",
    b"new",
    b"read",
    b"jobs",
    b"downgraded",
    b"upgraded",
    b"broken",
    b"alone",
    b"new-name",
    b"broken-one",
];

/// Returns all facts about the locks except times, and for each grant the time of its end on this machine's boot clock.
pub fn picture(client: &mut Client) -> (Vec<Reply>, Vec<i64>) {
    let (mut told, mut ends) = (vec![], vec![]);
    for key in KEYS {
        let info = client.send(&[b"LOCK.INFO", key, b"HOLDERS", b"1000"]);
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = boot.tv_sec * 1000 + boot.tv_nsec / 1_000_000;
        if info == null() {
            told.push(info);
            continue;
        }
        for grant in info.field("grants").as_list() {
            let fields = ["owner", "token", "mode", "permit", "limit", "holds", "note", "seq"];
            told.extend(fields.map(|name| grant.field(name)));
            ends.push(now + grant.field("ttl").as_int());
        }
    }
    told.push(client.say("DEBUG DIGEST"));
    (told, ends)
}

#[track_caller]
pub fn assert_same((told, ends): &(Vec<Reply>, Vec<i64>), client: &mut Client) {
    let (now_told, now_ends) = picture(client);
    assert_eq!(&now_told, told);
    assert_eq!(now_ends.len(), ends.len());
    for (now, before) in now_ends.iter().zip(ends) {
        // The machine may be busy between reading a ttl and reading the clock. A lease that started over would be off
        // by as long as the server was down.
        assert!((now - before).abs() < 250, "a deadline moved by {} ms", now - before);
    }
}

/// Checks that each holder can continue with its grant, and that others are kept out as before.
fn assert_goes_on(server: &Server) {
    let mut client = server.client();
    let infos = KEYS.map(|key| client.send(&[b"LOCK.INFO", key]));
    assert!(infos.iter().all(|info| *info == null() || info.field("suspect") == int(0)));
    let before = grants(&mut client, "jobs");
    for (owner, grant) in ["a", "b", "c"].iter().zip(&before) {
        assert_eq!(client.insist(&format!("LOCK.EXTEND jobs {owner} 60000")), grant.field("token"), "{owner}");
    }
    assert_eq!(client.say("LOCK.ACQUIRE jobs d 1000 LIMIT 3"), null(), "4 is held");
    let joined = client.say("LOCK.ACQUIRE jobs d 60000 LIMIT 4").as_list();
    assert_eq!(joined[2], int(3));
    assert!(before.iter().all(|grant| grant.field("token").as_int() < joined[0].as_int()));
    assert_eq!(client.say("LOCK.ACQUIRE read w 1000"), null());
    assert_eq!((client.say("LOCK.RELEASE read a"), client.say("LOCK.RELEASE read b LEVEL 1")), (int(0), int(0)));
    assert_eq!(client.say("EXISTS read"), int(0));
    let deep = client.say("LOCK.INFO deep").field("token");
    assert_eq!(client.say("LOCK.EXTEND deep me 60000"), deep);
    assert_eq!(client.say("LOCK.RELEASE deep me LEVEL 1"), int(0));
    let (held, deadlines) = (server.info("held"), server.info("deadlines"));
    assert_eq!((held, deadlines), (12, 12), "ten here, two in database 5");
}

#[test]
fn kill_nine_loses_nothing_with_the_aof_always() {
    let mut server = Setup::new().aof().start();
    fill(&mut server.client());
    let before = picture(&mut server.client());
    let_leases_run();
    server.kill();
    server.start_again();
    assert_same(&before, &mut server.client());
    assert_goes_on(&server);
}

#[test]
fn a_rewritten_aof_holds_the_same() {
    for preamble in ["yes", "no"] {
        let mut server = Setup::new().aof().option("aof-use-rdb-preamble", preamble).start();
        let mut client = server.client();
        fill(&mut client);
        wait_until("the rewrite starts", || {
            !matches!(client.say("BGREWRITEAOF"), Reply::Error(_)) || client.info_field("aof_rewrite_in_progress") == 1
        });
        wait_until("the rewrite ends", || {
            client.info_field("aof_rewrite_in_progress") == 0 && client.info_field("aof_rewrite_scheduled") == 0
        });
        // Changes of locks that the rewritten file contains as a whole.
        client.say("LOCK.ACQUIRE read late 60000 SHARED");
        client.say("LOCK.RELEASE read late");
        let before = picture(&mut client);
        let_leases_run();
        server.kill();
        server.start_again();
        assert_same(&before, &mut server.client());
        assert_goes_on(&server);
    }
}

#[test]
fn a_snapshot_holds_the_same() {
    let mut server = Setup::new().option("save", "3600 1").start();
    fill(&mut server.client());
    let before = picture(&mut server.client());
    let_leases_run();
    server.shutdown("SAVE");
    server.start_again();
    assert_same(&before, &mut server.client());
    assert_goes_on(&server);
}

#[test]
fn a_lease_that_ends_while_the_server_is_down_is_over() {
    for setup in [Setup::new().aof(), Setup::new().option("save", "3600 1")] {
        let mut server = setup.start();
        let mut client = server.client();
        client.say("LOCK.ACQUIRE short me 300");
        client.say("LOCK.ACQUIRE long me 60000");
        drop(client);
        server.shutdown("");
        let_leases_run();
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.say("LOCK.INFO short"), null());
        assert_eq!(client.say("LOCK.EXTEND short me 1000"), null());
        wait_until("it is deleted in the background", || client.say("EXISTS short") == int(0));
        assert_eq!(client.say("LOCK.INFO long").field("owner"), text("me"));
    }
}

/// Returns the names of the commands in the AOF's incremental files, without the server's own commands.
fn commands_in_aof(server: &Server) -> Vec<String> {
    let mut commands = vec![];
    for entry in fs::read_dir(server.dir().join("appendonlydir")).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_str().unwrap().contains(".incr.") {
            continue;
        }
        let bytes = fs::read(path).unwrap();
        let mut rest = &bytes[..];
        let number = |rest: &mut &[u8]| {
            let end = rest.iter().position(|&b| b == b'\n').unwrap();
            let number: usize = std::str::from_utf8(&rest[1..end - 1]).unwrap().parse().unwrap();
            *rest = &rest[end + 1..];
            number
        };
        while !rest.is_empty() {
            if rest[0] == b'#' {
                let end = rest.iter().position(|&b| b == b'\n').unwrap();
                rest = &rest[end + 1..];
                continue;
            }
            let count = number(&mut rest);
            for n in 0..count {
                let len = number(&mut rest);
                if n == 0 {
                    commands.push(String::from_utf8_lossy(&rest[..len]).to_uppercase());
                }
                rest = &rest[len + 2..];
            }
        }
    }
    commands.retain(|command| !["SELECT", "MULTI", "EXEC"].contains(&command.as_str()));
    commands
}

#[test]
fn the_aof_shows_only_effects_and_deletions() {
    let server = Setup::new().aof().start();
    let mut client = server.client();
    for line in [
        "LOCK.ACQUIRE k me 60000",       // LOCK.EFFECT
        "LOCK.ACQUIRE k me 60000",       // refused
        "LOCK.ACQUIRE k me 1000 RETRY",  // unchanged
        "LOCK.ACQUIRE k me 60000 RETRY", // LOCK.EFFECT: it lasts longer
        "LOCK.ACQUIRE k you 60000",      // contended
        "LOCK.REENTER k me",             // LOCK.EFFECT
        "LOCK.REENTER k me LEVEL 2",     // unchanged
        "LOCK.EXTEND k me 60000",        // LOCK.EFFECT
        "LOCK.EXTEND k me 1",            // unchanged
        "LOCK.RELEASE k you",            // not held
        "LOCK.RELEASE k me",             // LOCK.EFFECT
        "LOCK.RELEASE k me LEVEL 2",     // unchanged
        "LOCK.INFO k",
        "LOCK.CHECK k 1",
        "LOCK.RELEASE k me",       // LOCK.RELEASE: the last hold
        "LOCK.ACQUIRE k me 60000", // LOCK.EFFECT
        "LOCK.BREAK k",            // DEL
        "LOCK.BREAK k",            // free
        "LOCK.ACQUIRE k me 5",     // LOCK.EFFECT, and DEL when it expires
    ] {
        client.say(line);
    }
    wait_until("the last lock expires", || client.say("EXISTS k") == int(0));
    let (e, r, d) = ("LOCK.EFFECT", "LOCK.RELEASE", "DEL");
    assert_eq!(commands_in_aof(&server), [e, e, e, e, e, r, e, d, e, d]);
}

/// In the AOF a RELEASE is the result of a command, not a request. Its token and level are ignored, and it ends the
/// lock whatever its holds, but only if this owner has the lock.
#[test]
fn a_release_in_the_aof_ends_the_lock_of_its_owner_and_no_other() {
    // (the end of the AOF, the holder then, whether the AOF can be believed)
    let cases: [(&[&str], Option<&str>, bool); 5] = [
        (&["LOCK.RELEASE", "k", "me"], None, true),
        (&["LOCK.RELEASE", "k", "me", "TOKEN", "1"], None, true),
        (&["lock.release", "k", "me", "LEVEL", "3"], None, true),
        (&["LOCK.RELEASE", "k", "you"], Some("me"), false),
        (&["LOCK.RELEASE", "free", "you"], Some("me"), true),
    ];
    for (written, holder, is_believed) in cases {
        let mut server = Setup::new().aof().start();
        let mut client = server.client();
        client.say("LOCK.ACQUIRE k me 60000");
        client.say("LOCK.REENTER k me LEVEL 3");
        drop(client);
        server.kill();
        let mut aof = fs::OpenOptions::new();
        let mut aof = aof.append(true).open(server.dir().join("appendonlydir/appendonly.aof.1.incr.aof")).unwrap();
        write!(aof, "*{}\r\n", written.len()).unwrap();
        written.iter().for_each(|word| write!(aof, "${}\r\n{word}\r\n", word.len()).unwrap());
        drop(aof);
        server.start_again();
        let mut client = server.client();
        let info = client.say("LOCK.INFO k");
        match holder {
            Some(holder) => {
                assert_eq!((info.field("owner"), info.field("holds")), (text(holder), int(3)), "{written:?}")
            }
            None => assert_eq!(info, null(), "{written:?}"),
        }
        match client.insist("LOCK.ACQUIRE other you 1000") {
            Reply::Error(why) => assert!(why.starts_with("GUARDED") && !is_believed, "{written:?}: {why}"),
            token => assert!(token.as_int() > 0 && is_believed, "{written:?}"),
        }
        let expected = i64::from(holder.is_some()) + i64::from(is_believed);
        assert_eq!(client.say("DBSIZE"), int(expected), "{written:?}");
    }
}

#[test]
fn effects_of_transactions_and_scripts_are_in_the_aof() {
    let mut server = Setup::new().aof().start();
    let mut client = server.client();
    client.say("MULTI");
    client.say("LOCK.ACQUIRE a me 60000");
    client.say("LOCK.ACQUIRE b me 60000");
    client.say("LOCK.RELEASE a me");
    client.say("EXEC");
    client.say("EVAL return(redis.call('LOCK.ACQUIRE',KEYS[1],'me',60000)) 1 c");
    let digest = client.say("DEBUG DIGEST");
    server.kill();
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.say("DEBUG DIGEST"), digest);
    assert_eq!((client.say("LOCK.INFO a"), client.say("LOCK.INFO c").field("owner")), (null(), text("me")));
}

#[test]
fn a_restored_lock_is_still_suspect_after_a_restart() {
    for setup in [Setup::new().aof(), Setup::new().option("save", "3600 1")] {
        let mut server = setup.start();
        let mut client = server.client();
        client.say("LOCK.ACQUIRE k me 60000");
        let dump = client.say("DUMP k");
        assert_eq!(client.send(&[b"RESTORE", b"copy", b"0", dump.as_bytes()]), text("OK"));
        drop(client);
        server.shutdown("");
        server.start_again();
        let mut client = server.client();
        assert!(error(client.say("LOCK.EXTEND copy me 1000")).starts_with("GUARDED"));
        assert!(client.say("LOCK.EXTEND k me 60000").as_int() > 0);
    }
}
