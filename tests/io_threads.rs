//! Servers that read and write in threads, which also handle the replies to waiters.

use std::thread;

use crate::harness::{
    Client, Frozen, Server, Setup, assert_guarded, assert_remembers, held, int, joined_with, wait_until,
};
use crate::storms::random_storm;

/// Returns the setup of a server with threads.
fn with_threads(setup: Setup) -> Setup {
    // Before Redis 8 and Valkey 8, the threads only wrote by default.
    setup.option("io-threads", "4").option("io-threads-do-reads", "yes")
}

fn threaded() -> Server {
    let server = with_threads(Setup::new()).start();
    keep_threads_busy(&server);
    server
}

/// Makes a Valkey use its threads although its main thread is idle. Other servers do not know this parameter.
fn keep_threads_busy(server: &Server) {
    server.client().say("CONFIG SET io-threads-always-active yes");
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

/// Regression: in a cluster, the threads of Redis 8.2 and Valkey 9 find out in which slot a command's keys are. They
/// called LOCK.GATE for its keys while the main thread ran other commands, and the server crashed within a second.
#[test]
fn threads_of_a_cluster_find_the_slot_of_each_command() {
    const CLIENTS: usize = 16;
    const ROUNDS: usize = 200;
    let [node] = joined_with(["0 16383"], |setup| with_threads(setup.aof()));
    keep_threads_busy(&node.server);
    let token = node.client().say("LOCK.ACQUIRE {a}lock me 60000").as_int();
    let write = |n: usize| {
        let mut client = node.client();
        let lines = if n.is_multiple_of(2) {
            let gate = format!("LOCK.GATE {{a}}gate {token} COMMAND INCR {{a}}number");
            vec![gate; 8]
        } else {
            let of = |command: &str, rest: &str| format!("LOCK.{command} {{a}}{n} o{n}{rest}");
            vec![of("ACQUIRE", " 60000"), of("NOTE", " note"), of("RELEASE", "")]
        };
        for _ in 0..ROUNDS {
            assert!(client.pipeline(&lines).iter().all(|reply| reply.as_int() >= 0), "{lines:?}");
        }
    };
    thread::scope(|scope| (0..CLIENTS).for_each(|n| drop(scope.spawn(move || write(n)))));
    let written = CLIENTS / 2 * ROUNDS * 8;
    assert_eq!(node.client().say("GET {a}number").as_text(), written.to_string());
}

/// I/O threads of Redis 8 send an answer before the command is in the AOF, so after a crash the node cannot prove that it
/// remembers every grant.
#[test]
fn threads_that_answer_before_the_aof_is_written_prove_nothing() {
    let (mut server, token) = held(with_threads(Setup::new().aof()));
    let info = server.client().say("INFO server").as_text();
    let major = |name| info.lines().find_map(|line| line.strip_prefix(name)?.split('.').next()?.parse::<u32>().ok());
    let answer_early = major("valkey_version:").is_none() && major("redis_version:") >= Some(8);
    server.kill();
    server.start_again();
    if answer_early { assert_guarded(&server, token) } else { assert_remembers(&server, token) }
}

#[test]
fn a_random_storm_through_threads() {
    random_storm(&threaded());
}
