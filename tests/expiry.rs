//! Leases end by themselves, and even many that end at once do not delay other clients.

use std::time::{Duration, Instant};

use crate::harness::{Server, Setup, beside_a_bystander, int, null, wait_until};

#[test]
fn a_lease_ends_after_its_ttl_and_not_before() {
    let server = Server::start();
    let mut client = server.client();
    for ms in [1, 10, 100, 500] {
        let sent = Instant::now();
        client.say(&format!("LOCK.ACQUIRE k me {ms}"));
        let answered = Instant::now();
        while client.say("LOCK.ACQUIRE k you 60000") == null() {}
        assert!(sent.elapsed() >= Duration::from_millis(ms), "granted to another after {:?}", sent.elapsed());
        println!("ttl {ms} ms: free {:?} after the answer", answered.elapsed());
        client.say("LOCK.RELEASE k you");
    }
}

#[test]
fn expired_locks_are_deleted_in_the_background_in_every_database() {
    let server = Server::start();
    let mut client = server.client();
    for db in 0..16 {
        client.say(&format!("SELECT {db}"));
        for n in 0..20 {
            // The deadlines are in no particular order.
            client.say(&format!("LOCK.ACQUIRE k{n} me {}", 20 + (n * 37 + db * 11) % 100));
        }
    }
    wait_until("all are deleted", || (server.info("held"), server.info("deadlines")) == (0, 0));
    assert_eq!(server.info("expiries"), 320);
}

#[test]
fn an_extended_lock_outlives_its_first_deadline() {
    let server = Server::start();
    let mut client = server.client();
    let token = client.say("LOCK.ACQUIRE k me 30").as_int();
    assert_eq!(client.say("LOCK.EXTEND k me 60000"), int(token));
    client.say("LOCK.ACQUIRE later me 200");
    wait_until("a later lease ends", || client.say("EXISTS later") == int(0));
    assert_eq!(client.say("LOCK.EXTEND k me 100"), int(token));
    assert_eq!((server.info("held"), server.info("deadlines")), (1, 1));
}

#[test]
fn bookkeeping_is_that_of_live_locks_however_many_were_released() {
    let server = Server::start();
    let mut client = server.client();
    for round in 0..20 {
        let lines: Vec<_> = (0..1_000)
            .flat_map(|n| [format!("LOCK.ACQUIRE k{n} o{round} 60000"), format!("LOCK.RELEASE k{n} o{round}")])
            .collect();
        client.pipeline(&lines);
        assert_eq!(server.info("deadlines"), 0);
    }
    client.say("LOCK.ACQUIRE k me 60000");
    for _ in 0..1_000 {
        client.say("LOCK.EXTEND k me 60000");
    }
    assert_eq!((server.info("held"), server.info("deadlines")), (1, 1));
}

#[test]
fn two_hundred_thousand_leases_end_at_once() {
    const LOCKS: usize = 200_000;
    let server = Setup::new().option("appendonly", "yes").option("appendfsync", "no").start();
    let mut client = server.client();
    let started = Instant::now();
    for batch in 0..LOCKS / 10_000 {
        // All deadlines are within a few milliseconds, far enough ahead that none passes while the locks are taken.
        let lines: Vec<_> = (0..10_000)
            .map(|n| {
                let ms = 15_000_u128.saturating_sub(started.elapsed().as_millis()).max(1);
                format!("LOCK.ACQUIRE k{} me {ms}", batch * 10_000 + n)
            })
            .collect();
        client.pipeline(&lines);
    }
    println!("{LOCKS} locks taken in {:?}", started.elapsed());
    beside_a_bystander(&server, || wait_until("all are deleted", || server.info("held") == 0));
    assert_eq!(server.info("deadlines"), 0);
    assert_eq!(client.say("DBSIZE"), int(0));
    assert_eq!(server.info("expiries"), LOCKS as u64);
}

/// The server sleeps while the next deadline is an hour away. On Redis 7.0 it did not; see `SLEEP_MS_MAX` in
/// `src/driver/timer.rs`.
#[test]
fn a_server_sleeps_while_what_is_due_is_an_hour_away() {
    let server = Setup::new().option("lock.max-ttl", "3600000").start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE long me 3600000");
    client.say("LOCK.ACQUIRE short me 20");
    wait_until("a timer has run", || server.info("expiries") == 1);
    let status = format!("/proc/{}/status", client.info_field("process_id"));
    let slept = || -> u64 {
        let status = std::fs::read_to_string(&status).unwrap();
        let times = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        times.trim().parse().unwrap()
    };
    let before = slept();
    wait_until("the server sleeps now and then", || slept() >= before + 10);
}

#[test]
fn paused_writes_delay_the_clean_up_and_nothing_else() {
    let server = Setup::new().aof().start();
    let mut client = server.client();
    for n in 0..1_000 {
        client.say(&format!("LOCK.ACQUIRE k{n} me {}", 10 + n % 50));
    }
    client.say("CLIENT PAUSE 100000 WRITE");
    wait_until("every lease ends", || (0..1_000).all(|n| client.say(&format!("LOCK.INFO k{n}")) == null()));
    // The cron event and the timer run meanwhile, and must not touch the locks.
    let ticks = |client: &mut crate::harness::Client| client.info_field("uptime_in_seconds");
    let before = ticks(&mut client);
    wait_until("some time passes", || ticks(&mut client) >= before + 2);
    assert!(server.info("held") > 0, "nothing is written while writes are paused");
    client.say("CLIENT UNPAUSE");
    wait_until("expiry catches up", || (server.info("held"), server.info("deadlines")) == (0, 0));
    assert_eq!(client.say("DBSIZE"), int(0));
}
