//! No step of the wall clock frees a lock early, or keeps others from a free one.

use crate::harness::{Client, Server, Setup, int, not_here, null, wait_until};

const DAY: i64 = 86_400;

fn start() -> Server {
    let server = Setup::new().wall_clock().start();
    // The preloaded library works: the server's own clock shows the step.
    let mut client = server.client();
    let before = client.say("TIME").as_list()[0].as_text().parse::<i64>().unwrap();
    server.wall_clock().set(DAY);
    wait_until("the server sees the step", || {
        client.say("TIME").as_list()[0].as_text().parse::<i64>().unwrap() >= before + DAY
    });
    server.wall_clock().set(0);
    server
}

fn left(client: &mut Client, key: &str) -> i64 {
    client.say(&format!("LOCK.INFO {key}")).field("ttl").as_int()
}

#[test]
fn a_held_lock_neither_ends_early_nor_stays_late() {
    for step in [DAY, -DAY, 3_600, -3_600] {
        let server = start();
        let mut client = server.client();
        let token = client.say("LOCK.ACQUIRE long me 60000").as_int();
        client.say("LOCK.ACQUIRE short me 500");
        let before = left(&mut client, "long");
        server.wall_clock().set(step);
        assert_eq!(client.say("LOCK.ACQUIRE long you 1000"), null(), "step {step}");
        // The lease ends and the lock is deleted, though the server's own timers are delayed or early.
        wait_until("the short lease ends and is cleaned up", || client.say("EXISTS short") == int(0));
        assert!(before - left(&mut client, "long") < 30_000, "step {step}");
        assert_eq!(client.say("LOCK.EXTEND long me 60000"), int(token), "step {step}");
        assert!(client.say("LOCK.ACQUIRE short you 300").as_int() > 0);
        wait_until("and again, after the step", || client.say("EXISTS short") == int(0));
    }
}

#[test]
fn tokens_grow_whichever_way_the_clock_goes() {
    let server = start();
    let mut client = server.client();
    let mut last = 0;
    for step in [0, DAY, -DAY, 0, -3_600, 3_600, -DAY] {
        server.wall_clock().set(step);
        for _ in 0..3 {
            // A step that moves tokens above the ceiling on disk makes a request wait, and has no other effect.
            let token = client.insist("LOCK.ACQUIRE k me 60000").as_int();
            assert!(token > last, "{token} after {last} at {step}");
            last = token;
            client.say("LOCK.RELEASE k me");
        }
    }
}

/// A date far in the future does not move the node's tokens. It used to move them there for good, so far that no other
/// node raised its tokens to them.
#[test]
fn a_moment_in_a_far_future_takes_no_token_along() {
    let mut server = Setup::new().aof().wall_clock().start();
    let mut client = server.client();
    let true_us = client.say("LOCK.NODE").field("clock_us").as_int();
    server.wall_clock().set(100 * 365 * DAY);
    if client.say("LOCK.NODE").field("clock_us").as_int() < true_us + DAY * 1_000_000 {
        // Servers that bind a module's symbols to the module's own libraries first (RTLD_DEEPBIND) do not let the
        // preloaded library reach the module.
        return not_here("the shim of the wall clock does not reach modules on this server");
    }
    wait_until("the node sees it", || server.log().contains("the wall clock has jumped ahead by 36"));
    for end in ["", "kill", "SHUTDOWN"] {
        let mut client = server.client();
        let token = client.insist("LOCK.ACQUIRE k me 60000").as_int();
        assert!(token < true_us + DAY * 1_000_000, "{token} {end}");
        client.say("LOCK.RELEASE k me");
        match end {
            "kill" => server.kill(),
            "SHUTDOWN" => server.shutdown(""),
            _ => continue,
        }
        // The clock is wrong from the start on.
        server.start_again();
    }
    server.wall_clock().set(0);
    wait_until("the clock is right again", || server.log().contains("tokens follow the wall clock again"));
    let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
    assert!(token < true_us + DAY * 1_000_000);
}
