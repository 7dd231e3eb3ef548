//! ACQUIRE … KEEPALIVE: a lease lasts as long as its holder's connection is open, and ends some time after it, however
//! the connection ends.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::harness::{
    Client, Reply, Server, Setup, cluster, error, follow, free_port, in_step, int, null, pair, token, wait_until,
};

/// The ttl in milliseconds: short enough for a test to wait, and long enough not to end just because a machine is busy.
const TTL: u64 = 1_000;

/// Returns a client that holds `k` with KEEPALIVE, and its token.
fn keeps(server: &Server) -> (Client, i64) {
    let mut client = server.client();
    let token = client.insist(&format!("LOCK.ACQUIRE k me {TTL} KEEPALIVE 3600000")).as_int();
    (client, token)
}

/// Checks that the lease is renewed: the lock is held for longer than its ttl, with the same token.
fn is_kept(server: &Server, token: i64) {
    let renewals = server.info("renewals");
    wait_until("it is prolonged", || server.info("renewals") >= renewals + 4);
    assert_eq!(server.client().say("LOCK.INFO k").field("token"), int(token));
}

/// Waits until the lease ends by itself.
fn ends(server: &Server) {
    let mut client = server.client();
    wait_until("it ends", || client.say("LOCK.INFO k") == null());
    wait_until("it is gone", || (server.info("keepalives"), server.info("expiries")) == (0, 1));
}

#[test]
fn a_lease_lasts_as_long_as_its_connection() {
    let server = Server::start();
    let (mut me, token) = keeps(&server);
    is_kept(&server, token);
    let info = me.say("LOCK.INFO k HOLDERS 1");
    let kept = info.field("keepalive").as_int();
    assert!((3_590_000..=3_600_000).contains(&kept), "{kept}");
    assert!((1..=TTL as i64).contains(&info.field("ttl").as_int()));
    assert_eq!(info.field("grants").as_list()[0].field("keepalive").as_int() / 60_000, kept / 60_000);
    assert!((1..=TTL as i64).contains(&me.say(&format!("LOCK.CHECK k {token}")).as_int()));
    assert_eq!(server.client().say("LOCK.ACQUIRE k you 1000"), null());
    drop(me);
    let mut next = server.client();
    let granted = next.say("LOCK.ACQUIRE k you 60000 WAIT 60000");
    assert!(granted.as_list()[0].as_int() > token);
    assert_eq!(server.info("keepalives"), 0);
}

/// The lease ends however the connection ends: by its client, by an operator, or by the server.
#[test]
fn however_the_connection_ends() {
    let ends_it: [fn(&Server, Client); 5] = [
        |_, me| drop(me),
        |server, mut me| {
            let id = me.say("CLIENT ID").as_int();
            assert_eq!(server.client().say(&format!("CLIENT KILL ID {id}")), int(1));
        },
        // The connection is idle for longer than the server allows.
        |server, me| {
            server.client().say("CONFIG SET timeout 1");
            wait_until("it is cut off", || server.client().info_field("connected_clients") == 1);
            drop(me);
        },
        // The client does not read its output.
        |server, mut me| {
            server.client().send(&[b"CONFIG", b"SET", b"client-output-buffer-limit", b"normal 200000 0 0"]);
            server.client().send(&[b"SET", b"large", &vec![b'x'; 100_000]]);
            me.ask(&format!("MGET{}", " large".repeat(100)));
            wait_until("it is cut off", || server.client().info_field("connected_clients") == 1);
            drop(me);
        },
        |_, mut me| {
            me.say("QUIT");
        },
    ];
    for end in ends_it {
        let server = Server::start();
        let (me, token) = keeps(&server);
        is_kept(&server, token);
        end(&server, me);
        ends(&server);
    }
}

/// A process that holds the lock over TCP is killed, and a connection is reset.
#[test]
fn a_process_that_is_killed_and_a_connection_that_is_reset() {
    let server = Setup::new().option("port", "0").start();
    for signal in [true, false] {
        let mut me = server.client();
        me.say(&format!("CONFIG SET port {}", free_port()));
        let port: u16 = me.say("CONFIG GET port").as_list()[1].as_text().parse().unwrap();
        let line = format!("LOCK.ACQUIRE k me {TTL} KEEPALIVE 60000\r\n");
        let expired = server.info("expiries");
        if signal {
            let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{line}' >&3; exec sleep 600 <&3");
            let mut process = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
            wait_until("it is prolonged", || server.info("renewals") >= 4);
            process.kill().unwrap();
            process.wait().unwrap();
        } else {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            wait_until("it holds", || me.say("LOCK.INFO k") != null());
            // Closing a socket with an unread answer resets the connection.
            drop(stream);
        }
        wait_until("it ends", || server.info("expiries") == expired + 1);
        assert_eq!(server.info("keepalives"), 0);
    }
}

/// A lease with KEEPALIVE ends at the time that its holder named, while the connection is still open. The test has to
/// pass on a slow machine too, so it compares with its own clock, read before and after each command.
#[test]
fn it_ends_at_the_time_that_its_holder_named() {
    const KEPT: i64 = 3_000;
    let server = Server::start();
    let mut me = server.client();
    let began = Instant::now();
    let passed = || began.elapsed().as_millis() as i64;
    let granted = me.say(&format!("LOCK.ACQUIRE k me {TTL} KEEPALIVE {KEPT}")).as_int();
    let latest_grant = passed() + 1;
    let mut latest_end = 0;
    wait_until("its last prolongation is over", || {
        let asked = passed();
        let held = me.say("LOCK.INFO k");
        if held == null() {
            return true;
        }
        let ttl = held.field("ttl").as_int();
        assert!(asked + ttl <= latest_grant + KEPT, "asked {asked}, ttl {ttl}, granted by {latest_grant}");
        latest_end = latest_end.max(passed() + 1 + ttl);
        false
    });
    assert!(latest_end >= KEPT, "{latest_end}");
    assert!(passed() + 1 >= KEPT);
    assert_eq!(me.say("LOCK.EXTEND k me 1000"), null());
    assert!(me.say("LOCK.ACQUIRE k you 60000").as_int() > granted);
    assert_eq!(server.info("keepalives"), 0);
}

#[test]
fn what_its_holder_does_meanwhile() {
    let server = Server::start();
    let (mut me, token) = keeps(&server);
    // None of these commands ends the KEEPALIVE.
    for line in ["RESET", "SELECT 1", "SELECT 0", "LOCK.REENTER k me", "LOCK.RELEASE k me", "LOCK.NOTE k me text"] {
        assert!(!matches!(me.say(line), Reply::Error(_)), "{line}");
    }
    is_kept(&server, token);
    // The owner may extend the lease further, and the token may be raised.
    me.say("LOCK.EXTEND k me 5000");
    let raised = me.say(&format!("LOCK.FENCE k me {}", token + 1_000)).as_int();
    wait_until("the long lease has gone", || me.say("LOCK.INFO k").field("ttl").as_int() <= TTL as i64);
    is_kept(&server, raised);
    me.say("LOCK.CONVERT k me SHARED");
    assert!(server.client().say("LOCK.ACQUIRE k other 60000 SHARED").as_int() > 0);
    let kept = |server: &Server| server.client().say("LOCK.INFO k HOLDERS 9").field("grants").as_list();
    is_kept(&server, raised);
    assert_eq!(kept(&server)[1].field("keepalive"), int(0));
    // Another connection releases the lock.
    assert_eq!(server.client().say("LOCK.RELEASE k me"), int(0));
    assert_eq!((server.info("keepalives"), kept(&server).len()), (0, 1));
}

#[test]
fn a_repeated_request_binds_it_to_another_connection() {
    let server = Server::start();
    let (first, token) = keeps(&server);
    let mut second = server.client();
    assert_eq!(second.say(&format!("LOCK.ACQUIRE k me {TTL} RETRY KEEPALIVE 3600000")), int(token));
    drop(first);
    is_kept(&server, token);
    // An ACQUIRE without KEEPALIVE does not end the KEEPALIVE of the second connection.
    assert_eq!(server.client().say(&format!("LOCK.ACQUIRE k me {TTL} RETRY")), int(token));
    is_kept(&server, token);
    drop(second);
    ends(&server);
}

#[test]
fn one_who_waited_is_kept_from_its_grant_on() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k first 60000");
    let mut next = server.client();
    next.ask(&format!("LOCK.ACQUIRE k next {TTL} KEEPALIVE 3600000 WAIT 60000 LIMIT 3"));
    wait_until("it waits", || server.info("waiters") == 1);
    assert_eq!(server.info("keepalives"), 0);
    me.say("LOCK.RELEASE k first");
    let granted = next.hear().as_list();
    assert_eq!(granted[2], int(1));
    is_kept(&server, granted[0].as_int());
    // If a client disconnects while it waits, its later lease is not kept alive.
    let mut gone = server.client();
    gone.ask(&format!("LOCK.ACQUIRE k gone {TTL} KEEPALIVE 3600000 WAIT 60000"));
    wait_until("it waits", || server.info("waiters") == 1);
    drop(gone);
    wait_until("it left", || server.info("waiters") == 0);
    drop(next);
    ends(&server);
}

#[test]
fn whatever_takes_the_lock_away_ends_it() {
    let server = Server::start();
    for line in ["LOCK.BREAK k", "DEL k", "RENAME k away", "MOVE k 5", "FLUSHALL", "SET k x"] {
        let (mut me, _) = keeps(&server);
        assert!(!matches!(me.say(line), Reply::Error(_)), "{line}");
        wait_until(&format!("it is kept no more: {line}"), || server.info("keepalives") == 0);
        me.say("FLUSHALL");
        me.insist("LOCK.GUARD LIFT");
    }
    assert_eq!(server.info("renewals"), 0, "nothing was prolonged that is gone");
}

/// A lock that has its old name back when the next renewal is due is still kept alive, as docs/keepalive.md says.
#[test]
fn a_lock_that_is_renamed_and_back_is_kept() {
    let server = Server::start();
    let (mut me, token) = keeps(&server);
    me.pipeline(&["RENAME k away", "RENAME away k"].map(str::to_owned));
    is_kept(&server, token);
}

/// A renewal is a change of the key, as docs/keepalive.md says.
#[test]
fn a_prolongation_aborts_transactions_that_watch_the_lock() {
    let server = Server::start();
    let (_me, token) = keeps(&server);
    let mut watcher = server.client();
    watcher.say("WATCH k");
    is_kept(&server, token);
    watcher.say("MULTI");
    watcher.say("SET x 1");
    assert_eq!(watcher.say("EXEC"), null());
}

#[test]
fn in_transactions_but_not_in_scripts() {
    let server = Server::start();
    let mut me = server.client();
    me.say("MULTI");
    me.say(&format!("LOCK.ACQUIRE k me {TTL} KEEPALIVE 60000"));
    let token = me.say("EXEC").as_list()[0].as_int();
    is_kept(&server, token);
    let script = "EVAL return(redis.call('LOCK.ACQUIRE','s','me','1000','KEEPALIVE','60000')) 0";
    let refused = error(server.client().say(script));
    assert!(refused.contains("KEEPALIVE follows the connection"), "{refused}");
    assert_eq!(me.say("EXISTS s"), int(0));
    drop(me);
    ends(&server);
}

/// After a crash the lease is an ordinary one: a new process of the server renews nothing.
#[test]
fn after_a_crash_it_is_an_ordinary_lease() {
    let mut server = Setup::new().aof().option("appendfsync", "always").start();
    let (_me, token) = keeps(&server);
    is_kept(&server, token);
    server.kill();
    server.start_again();
    assert_eq!((server.info("keepalives"), server.info("held")), (0, 1));
    let mut next = server.client();
    assert_eq!(next.say("LOCK.INFO k").field("keepalive"), int(0));
    wait_until("it ends", || next.say("LOCK.INFO k") == null());
    // The owner may request KEEPALIVE again while the lease lasts.
    let (_me, token) = keeps(&server);
    is_kept(&server, token);
}

#[test]
fn replicas_hear_of_each_prolongation_and_keep_nothing_alive() {
    let (master, replica) = pair();
    let (me, token) = keeps(&master);
    is_kept(&master, token);
    in_step(&mut master.client());
    let seen = replica.client().say("LOCK.INFO k");
    assert_eq!((seen.field("token"), seen.field("keepalive")), (int(token), int(0)));
    assert!(seen.field("ttl").as_int() > 0, "it has not ended there");
    // After the promotion, the lease continues until its known end.
    let mut next = replica.client();
    next.say("REPLICAOF NO ONE");
    wait_until("it ends", || next.say("LOCK.INFO k") == null());
    // The former master renews its own leases until it becomes a replica; then it renews none.
    is_kept(&master, token);
    follow(&master, &replica);
    wait_until("it follows", || master.info("keepalives") == 0);
    drop(me);
}

/// A master that too few replicas follow does not renew a lease, for the same reason for which it refuses the holder's
/// EXTEND.
#[test]
fn a_master_without_enough_replicas_prolongs_nothing() {
    let server = Server::start();
    let (mut me, token) = keeps(&server);
    is_kept(&server, token);
    me.say("CONFIG SET min-replicas-to-write 1");
    assert!(me.say(&format!("LOCK.EXTEND k me {TTL}")).is_error("NOREPLICAS"));
    ends(&server);
}

#[test]
fn while_writes_are_paused_nothing_is_prolonged_and_nobody_gets_it() {
    let server = Server::start();
    let (_me, token) = keeps(&server);
    is_kept(&server, token);
    let mut operator = server.client();
    operator.say(&format!("CLIENT PAUSE {} WRITE", TTL / 4));
    is_kept(&server, token);
    let renewals = server.info("renewals");
    operator.say("CLIENT PAUSE 60000 WRITE");
    wait_until("its lease is over", || operator.say("LOCK.INFO k") == null());
    assert!(server.info("renewals") <= renewals + 1);
    operator.say("CLIENT UNPAUSE");
    ends(&server);
}

#[test]
fn a_guard_leaves_it_and_a_suspect_lease_is_not_prolonged() {
    let server = Server::start();
    let (mut me, _) = keeps(&server);
    me.say("LOCK.GUARD ARM 60000");
    // The lease is from before the guard, so it cannot be renewed or extended.
    let renewals = server.info("renewals");
    wait_until("it ends", || me.say("LOCK.INFO k") == null());
    assert_eq!(server.info("renewals"), renewals);
}

#[test]
fn a_slot_that_leaves_takes_it_along() {
    let (one, other) = cluster();
    let mut me = one.client();
    let token = me.insist(&format!("LOCK.ACQUIRE k me {TTL} KEEPALIVE 3600000"));
    let (mut here, there) = (one.client(), other.client());
    drop(there);
    wait_until("it is prolonged", || here.info_field("lock_renewals") >= 4);
    assert_eq!(here.say("LOCK.INFO k").field("token"), token);
    drop(me);
    wait_until("it ends", || here.say("LOCK.INFO k") == null());
}

/// A connection that keeps twenty thousand leases alive ends, and so do all of these leases.
#[test]
fn one_connection_that_keeps_very_many() {
    let server = Server::start();
    let mut me = server.client();
    let lines: Vec<_> = (0..20_000).map(|n| format!("LOCK.ACQUIRE k{n} me 5000 KEEPALIVE 3600000")).collect();
    for lines in lines.chunks(1_000) {
        me.pipeline(lines);
    }
    assert_eq!((server.info("keepalives"), server.info("held")), (20_000, 20_000));
    wait_until("each is prolonged", || server.info("renewals") >= 40_000);
    assert_eq!((server.info("held"), server.info("expiries")), (20_000, 0));
    drop(me);
    wait_until("all end", || server.info("held") == 0);
    assert_eq!(server.info("keepalives"), 0);
}

#[test]
fn keepalive_has_its_bounds() {
    let server = Server::start();
    let mut me = server.client();
    for (line, says) in [
        ("1000 KEEPALIVE 999", "ERR KEEPALIVE must be an integer from the ttl to 2592000000 milliseconds"),
        ("1000 KEEPALIVE x", "ERR KEEPALIVE must be an integer"),
        ("1000 KEEPALIVE 2592000001", "ERR KEEPALIVE must be an integer"),
        ("999 KEEPALIVE 1000", "and the ttl at least 1000"),
        ("1000 KEEPALIVE", "ERR option KEEPALIVE needs a value"),
    ] {
        let refused = error(me.say(&format!("LOCK.ACQUIRE k me {line}")));
        assert!(refused.contains(says), "{line}: {refused}");
    }
    assert_eq!(me.say("EXISTS k"), int(0));
    assert_eq!(me.say("LOCK.INFO k"), null());
}

/// Regression: requests that waited for leases with names of a megabyte got all of them, twelve times the renewals that
/// a node takes on. A waiting request now counts like a lease.
#[test]
fn requests_that_wait_count_towards_the_maximum_of_renewals() {
    let server = Server::start();
    let name = "k".repeat(1 << 20);
    let mut holder = server.client();
    let waits = |n| {
        let mut client = server.client();
        client.ask(&format!("LOCK.ACQUIRE {name}{n} me {TTL} KEEPALIVE 3600000 WAIT 60000"));
        client
    };
    for n in 0..10 {
        holder.insist(&format!("LOCK.ACQUIRE {name}{n} first 60000"));
    }
    let mut waiting: Vec<_> = (0..8).map(waits).collect();
    wait_until("eight wait", || server.info("waiters") == 8);
    assert!(error(waits(8).hear()).starts_with("KEEPALIVEFULL "));
    // A request that leaves makes room.
    waiting.remove(0);
    wait_until("one left", || server.info("waiters") == 7);
    waiting.push(waits(9));
    wait_until("another waits", || server.info("waiters") == 8);
    for n in 0..10 {
        holder.insist(&format!("LOCK.RELEASE {name}{n} first"));
    }
    for client in &mut waiting {
        assert!(token(&client.hear()) > 0);
    }
    assert_eq!(server.info("keepalives"), 8);
    assert!(error(waits(8).hear()).starts_with("KEEPALIVEFULL "), "each counts once");
    drop(waiting);
    wait_until("all end", || server.info("keepalives") == 0);
    assert!(token(&waits(8).hear()) > 0);
}

/// RENAME moved a lock of the same owner without KEEPALIVE to the key: LOCK.INFO used to show it as kept alive, but
/// nothing renewed it.
#[test]
fn a_lock_that_was_renamed_over_a_kept_one_is_not_shown_as_kept() {
    let server = Server::start();
    let (_me, _) = keeps(&server);
    let mut client = server.client();
    let token = client.insist("LOCK.ACQUIRE z me 60000");
    client.say("RENAME z k");
    let info = client.say("LOCK.INFO k HOLDERS 1");
    assert_eq!((info.field("token"), info.field("keepalive")), (token, int(0)));
    assert_eq!(info.field("grants").as_list()[0].field("keepalive"), int(0));
}
