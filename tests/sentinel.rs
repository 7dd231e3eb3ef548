//! Sentinel makes the replica take over, and turns the old master into a replica when it returns.

use std::time::{Duration, Instant};

use crate::harness::{
    Client, Frozen, Reply, Sentinel, Server, Setup, error, follow, guarded_ms, has_heard, int, null, text, wait_until,
};

/// A lease that a promoted replica must wait out, in milliseconds: longer than Sentinel takes to promote it.
const LEASE_MS: u64 = 10_000;

fn member(max_ttl_ms: u64) -> Setup {
    options(Setup::new().aof().replication().option("repl-diskless-sync-delay", "0"), max_ttl_ms)
}

/// Returns a setup in which all starts are guarded. A master that was replaced while it was down starts as a master,
/// until Sentinel makes it a replica within 20 s. By its AOF it would prove that it remembers all its grants, but it
/// knows none of its successor's.
fn options(setup: Setup, max_ttl_ms: u64) -> Setup {
    setup.module_arguments(&["max-ttl", &max_ttl_ms.to_string(), "max-clock-skew", "100", "restart-guard", "always"])
}

/// Returns a server's answer; `None` if the connection ends first, since Sentinel ends all connections of a server
/// whose role it changes.
fn ask(server: &Server, line: &str) -> Option<Reply> {
    Client::try_connect(&server.socket(), false)?.try_say(line)
}

fn wait_promoted(server: &Server) {
    wait_until("the replica is promoted", || {
        ask(server, "INFO replication").is_some_and(|reply| reply.as_text().contains("role:master"))
    });
}

#[test]
fn a_master_that_dies_is_replaced_and_comes_back_as_a_replica() {
    let (mut old, new) = (member(LEASE_MS).start(), member(LEASE_MS).start());
    follow(&new, &old);
    let sentinel = Sentinel::watching(&old, 3_000);
    let mut client = old.client();
    let known = client.insist("LOCK.ACQUIRE known me 10000").as_int();
    assert_eq!(client.say("WAIT 1 60000"), int(1));
    // The replica does not receive this grant.
    let replica = Frozen::new(&new);
    let sent = Instant::now();
    let unknown = client.say(&format!("LOCK.ACQUIRE unknown me {LEASE_MS}")).as_int();
    drop(client);
    old.kill();
    drop(replica);

    wait_promoted(&new);
    let mut client = new.client();
    assert!(guarded_ms(client.say("LOCK.ACQUIRE unknown you 1000")) > 0, "its holder may go on");
    assert_eq!(client.say("LOCK.NODE").field("guard_reason"), text("promotion"));
    assert_eq!(client.say("LOCK.INFO known").field("token"), int(known));
    let newer = client.outlast_guard("LOCK.ACQUIRE unknown you 10000").as_int();
    assert!(sent.elapsed() >= Duration::from_millis(LEASE_MS), "granted after {:?}", sent.elapsed());
    assert!(newer > unknown, "{newer} after {unknown}");

    // The old master stays a master until Sentinel reaches it. It is guarded, for the default max-ttl here.
    old.start_again_with(|setup| options(setup, 60_000));
    wait_until("the old master follows", || {
        let reply = ask(&old, "LOCK.ACQUIRE unknown thief 1000");
        assert!(!matches!(reply, Some(Reply::Int(_))), "granted beside the new master: {reply:?}");
        reply.is_some_and(|reply| reply.is_error("READONLY"))
    });
    sentinel.wait_for_master(&new);
    let mut back = old.client();
    assert!(error(back.say("LOCK.ACQUIRE other me 10")).starts_with("READONLY"));
    let token = client.say("LOCK.ACQUIRE after me 10000").as_int();
    wait_until("it has what the new one grants", || {
        let info = back.say("LOCK.INFO after");
        info != null() && info.field("token") == int(token)
    });
    assert_eq!(back.say("LOCK.NODE").field("role"), text("replica"));
}

#[test]
fn masters_that_take_turns_issue_growing_tokens() {
    let (one, other) = (member(LEASE_MS).start(), member(LEASE_MS).start());
    follow(&other, &one);
    let sentinel = Sentinel::watching(&one, 60_000);
    let mut last = one.client().insist("LOCK.ACQUIRE k me 10000").as_int();
    for (from, to) in [(&one, &other), (&other, &one)] {
        let mut waiter = from.client();
        waiter.ask("LOCK.ACQUIRE k next 10000 WAIT 60000");
        wait_until("it waits", || from.info("waiters") == 1);
        has_heard(to);
        sentinel.fail_over();
        // The replaced server stays a master until Sentinel makes it follow; then its waiters are redirected.
        let reply = waiter.hear();
        assert!(matches!(reply, Reply::Error(_) | Reply::List(_)), "told or hung up on, not forgotten: {reply:?}");
        sentinel.wait_for_master(to);
        assert_eq!(from.info("waiters"), 0);
        let mut client = to.client();
        let before = client.say("LOCK.INFO k");
        if before != null() {
            assert!(guarded_ms(client.say("LOCK.EXTEND k me 10000")) > 0, "only a promise of the old one");
        }
        client.say("LOCK.BREAK k");
        let newer = client.outlast_guard("LOCK.ACQUIRE k me 10000").as_int();
        assert!(newer > last, "{newer} after {last}");
        last = newer;
    }
}
