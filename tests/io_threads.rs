//! Servers that read and write in threads, which also handle the replies to waiters.

use crate::harness::{Client, Frozen, Server, Setup, int, wait_until};
use crate::storms::random_storm;

fn threaded() -> Server {
    // Before Redis 8 and Valkey 8, the threads only wrote by default.
    let server = Setup::new().option("io-threads", "4").option("io-threads-do-reads", "yes").start();
    // By default, a Valkey 9 uses its threads only when its main thread is busy. Other servers do not know this
    // parameter.
    server.client().say("CONFIG SET io-threads-always-active yes");
    server
}

/// Returns the number of replies or requests that threads have handled so far.
fn by_threads(client: &mut Client) -> u64 {
    client.info_field("io_threaded_reads_processed") + client.info_field("io_threaded_writes_processed")
}

#[test]
fn threads_take_part_and_the_queue_stays_in_order() {
    const COUNT: usize = 64;
    let server = threaded();
    let mut me = server.client();
    let mut crowd: Vec<Client> = (0..COUNT).map(|_| server.client()).collect();
    // Servers use threads when there is much to do at once: everything that arrived while the server was stopped.
    wait_until("threads have something to do", || {
        let frozen = Frozen::new(&server);
        crowd
            .iter_mut()
            .enumerate()
            .for_each(|(n, client)| client.ask(&format!("LOCK.ACQUIRE own{n} o{n} 60000 RETRY")));
        drop(frozen);
        crowd.iter_mut().for_each(|client| assert!(client.hear().as_int() > 0));
        by_threads(&mut me) > 0
    });
    let mut last = me.say("LOCK.ACQUIRE k me 60000").as_int();
    for (n, client) in crowd.iter_mut().enumerate() {
        client.ask(&format!("LOCK.ACQUIRE k o{n} 60000 WAIT 60000"));
        wait_until("it waits", || me.say("LOCK.INFO k").field("waiters") == int(n as i64 + 1));
    }
    let mut owner = "me".to_owned();
    for (n, client) in crowd.iter_mut().enumerate() {
        assert_eq!(me.say(&format!("LOCK.RELEASE k {owner}")), int(0));
        let token = client.hear().as_list()[0].as_int();
        assert!(token > last, "waiter {n}");
        (last, owner) = (token, format!("o{n}"));
    }
    // All are served at once, each for its own lock, in one pass of the event loop.
    let mut waiters: Vec<Client> = (0..COUNT).map(|_| server.client()).collect();
    for (n, client) in waiters.iter_mut().enumerate() {
        client.ask(&format!("LOCK.ACQUIRE own{n} w{n} 60000 WAIT 60000"));
    }
    wait_until("all wait", || server.info("waiters") == COUNT as u64);
    let lines: Vec<_> = (0..COUNT).map(|n| format!("LOCK.RELEASE own{n} o{n}")).collect();
    assert!(me.pipeline(&lines).iter().all(|reply| *reply == int(0)));
    waiters.iter_mut().for_each(|client| assert_eq!(client.hear().as_list().len(), 2));
}

#[test]
fn a_random_storm_through_threads() {
    random_storm(&threaded());
}
