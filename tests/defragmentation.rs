//! A server that moves data in its memory: locks stay as they are.

use crate::harness::{Setup, int, not_here, text, wait_until};

/// The number of locks. Three out of four are broken, so that the rest are scattered in memory.
const LOCKS: usize = 20_000;

#[test]
fn locks_survive_active_defragmentation() {
    let server = Setup::new()
        .module_arguments(&["max-ttl", "86400000"])
        .option("active-defrag-ignore-bytes", "1mb")
        .option("active-defrag-threshold-lower", "1")
        .start();
    let mut client = server.client();
    if client.say("CONFIG SET activedefrag yes").is_error("ERR") {
        return not_here("this server was built without jemalloc of its own, and cannot move memory");
    }
    client.say("CONFIG SET activedefrag no");
    let name = |n: usize| format!("lock-{n:0>40}");
    let lines: Vec<_> = (0..LOCKS)
        .map(|n| format!("LOCK.ACQUIRE {} owner-{n} 60000000 NOTE {}", name(n), "note".repeat(1 + n % 20)))
        .collect();
    for lines in lines.chunks(1_000) {
        client.pipeline(lines).iter().for_each(|reply| assert!(reply.as_int() > 0));
    }
    let lines: Vec<_> = (0..LOCKS).filter(|n| n % 4 != 0).map(|n| format!("LOCK.BREAK {}", name(n))).collect();
    for lines in lines.chunks(1_000) {
        client.pipeline(lines);
    }
    let _waiter = crate::harness::waits(&server, &format!("LOCK.ACQUIRE {} next 60000 WAIT 60000", name(4)));
    let digest = client.say("DEBUG DIGEST");
    assert_eq!(client.say("CONFIG SET activedefrag yes"), text("OK"));
    // The server moves names and entries of its tables. It does not move locks, which live only for seconds.
    wait_until("every key was visited, and many were moved", || {
        let moved = client.info_field("active_defrag_key_hits");
        moved > 0 && moved + client.info_field("active_defrag_key_misses") > LOCKS as u64
    });
    client.say("CONFIG SET activedefrag no");
    assert_eq!(client.say("DEBUG DIGEST"), digest, "the same locks");
    assert_eq!(server.info("held"), LOCKS as u64 / 4);
    assert_eq!(server.info("deadlines"), LOCKS as u64 / 4);
    let token = client.say(&format!("LOCK.INFO {}", name(8))).field("token").as_int();
    assert_eq!(client.say(&format!("LOCK.EXTEND {} owner-8 60000000", name(8))), int(token));
    assert_eq!(client.say(&format!("LOCK.RELEASE {} owner-4", name(4))), int(0));
    assert_eq!(client.say(&format!("LOCK.INFO {}", name(4))).field("owner"), text("next"));
    let lines: Vec<_> =
        (0..LOCKS).step_by(4).filter(|&n| n != 4).map(|n| format!("LOCK.RELEASE {} owner-{n}", name(n))).collect();
    for lines in lines.chunks(1_000) {
        client.pipeline(lines).iter().for_each(|reply| assert_eq!(*reply, int(0)));
    }
}
