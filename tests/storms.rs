//! Many waiters: they are served in order, each gets an answer, and nothing is left behind.

use std::collections::HashSet;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::harness::{Client, Reply, Server, Setup, error, int, null, seed, wait_until};

/// Raises the limit on open files as far as the system allows, because connections of clients need files.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

fn crowd(server: &Server, count: usize, line: impl Fn(usize) -> String) -> Vec<Client> {
    let before = server.info("waiters");
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.ask(&line(n));
        // Now and then the loop waits until all of them are queued, so that they arrive in this order.
        if n % 50 == 49 {
            wait_until("they wait", || server.info("waiters") == before + n as u64 + 1);
        }
    }
    wait_until("all wait", || server.info("waiters") == before + count as u64);
    clients
}

fn assert_nothing_is_left(server: &Server) {
    wait_until("nothing is left", || {
        (server.info("held"), server.info("deadlines"), server.info("waiters")) == (0, 0, 0)
    });
    assert_eq!(server.info("poisoned"), 0);
}

#[test]
fn a_thousand_on_one_key_are_served_in_order() {
    const COUNT: usize = 1_000;
    allow_many_files();
    let server = Server::start();
    let mut me = server.client();
    let mut last = me.say("LOCK.ACQUIRE k me 60000").as_int();
    // Each request is sent once the one before it waits, so that they arrive in this order.
    let mut clients: Vec<Client> = Vec::new();
    for n in 0..COUNT {
        let mut client = server.client();
        client.ask(&format!("LOCK.ACQUIRE k o{n} 60000 WAIT 60000"));
        wait_until("it waits", || me.say("LOCK.INFO k").field("waiters") == int(n as i64 + 1));
        clients.push(client);
    }
    let mut owner = "me".to_owned();
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(me.say(&format!("LOCK.RELEASE k {owner}")), int(0));
        let token = client.hear().as_list()[0].as_int();
        assert!(token > last, "waiter {n}");
        last = token;
        owner = format!("o{n}");
    }
    me.say(&format!("LOCK.RELEASE k {owner}"));
    assert_nothing_is_left(&server);
    assert_eq!((server.info("hand_overs"), server.info("waiters_most")), (COUNT as u64, COUNT as u64));
}

/// When a whole queue has to be answered, the server returns to its other clients after each slice of the answers.
#[test]
fn a_queue_that_is_sent_away_is_answered_in_slices() {
    const COUNT: usize = 1_000;
    allow_many_files();
    let server = Server::start();
    let mut me = server.client();
    let line = |n| format!("LOCK.ACQUIRE k o{n} 60000 WAIT 60000");
    // Another client overwrites the key, or the guard is armed for longer than the waits.
    for (away, code) in [("SET k v", "WRONGTYPE"), ("LOCK.GUARD ARM 3600000", "GUARDED")] {
        me.say("LOCK.ACQUIRE k me 60000");
        let mut clients = crowd(&server, COUNT, line);
        me.say(away);
        for client in &mut clients {
            assert!(client.hear().is_error(code), "{away}");
        }
        me.say("DEL k");
        me.say("LOCK.GUARD LIFT");
    }
    assert_nothing_is_left(&server);
    assert_eq!(server.info("answers_most"), 50);
}

/// A grant answers all requests of its owner in one step, so their number is small.
#[test]
fn an_owner_has_few_requests_in_a_queue() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut clients = crowd(&server, 32, |_| "LOCK.ACQUIRE k same 60000 WAIT 60000".to_owned());
    for line in ["LOCK.ACQUIRE k same 60000 WAIT 60000", "LOCK.WAIT k same 60000 TICKET 1"] {
        assert!(error(me.say(line)).starts_with("QUEUEFULL this owner has 32 requests in this lock's queue"), "{line}");
    }
    assert_eq!(me.say("LOCK.RELEASE k me"), int(0));
    let tokens: HashSet<_> = clients.iter_mut().map(|client| client.hear().as_list()[0].as_int()).collect();
    assert_eq!(tokens.len(), 1);
    assert_eq!(server.info("waiters"), 0);
}

#[test]
fn a_thousand_keys_with_a_queue_each() {
    const KEYS: usize = 1_000;
    allow_many_files();
    let server = Server::start();
    let mut me = server.client();
    let lines: Vec<_> = (0..KEYS).map(|n| format!("LOCK.ACQUIRE k{n} me {}", 30_000 + n)).collect();
    me.pipeline(&lines);
    let mut first = crowd(&server, KEYS, |n| format!("LOCK.ACQUIRE k{n} first 60000 WAIT 60000"));
    let mut second = crowd(&server, KEYS, |n| format!("LOCK.ACQUIRE k{n} second 60000 WAIT 60000"));
    let release = |owner: &str| (0..KEYS).map(|n| format!("LOCK.RELEASE k{n} {owner}")).collect::<Vec<_>>();
    assert!(me.pipeline(&release("me")).iter().all(|reply| *reply == int(0)));
    first.iter_mut().for_each(|client| assert_eq!(client.hear().as_list().len(), 2));
    assert_eq!(server.info("waiters"), KEYS as u64);
    me.pipeline(&release("first"));
    second.iter_mut().for_each(|client| assert_eq!(client.hear().as_list().len(), 2));
    me.pipeline(&release("second"));
    assert_nothing_is_left(&server);
}

#[test]
fn a_random_half_of_many_goes_away_and_the_others_are_served_in_order() {
    let count: usize = std::env::var("PALISADE_WAITERS").map_or(3_000, |count| count.parse().unwrap());
    allow_many_files();
    let mut random = StdRng::seed_from_u64(seed());
    let server = Setup::new().option("maxclients", "15000").start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let memory = me.info_field("used_memory");
    let clients = crowd(&server, count, |n| format!("LOCK.ACQUIRE k o{n} 60000 WAIT 60000 NOTE n{n}"));
    let mut stays: Vec<bool> = (0..count).map(|n| n % 2 == 0).collect();
    stays.shuffle(&mut random);
    // Some clients disconnect before the first hand-over, some during the hand-overs.
    let mut left: Vec<(usize, Client)> = clients.into_iter().enumerate().collect();
    let early = count / 4;
    let mut gone = 0;
    left.retain(|(n, _)| {
        let goes = !stays[*n] && gone < early;
        gone += usize::from(goes);
        !goes
    });
    wait_until("they are gone", || server.info("waiters") == (count - gone) as u64);
    let mut owner = "me".to_owned();
    let mut served = HashSet::new();
    while server.info("waiters") > 0 {
        let Some(next) = left.iter().position(|(n, _)| stays[*n]) else { break };
        // The clients before the next one that stays disconnect right before that one is served.
        let before = server.info("waiters");
        drop(left.drain(..next).collect::<Vec<_>>());
        wait_until("they are gone", || server.info("waiters") == before - next as u64);
        assert_eq!(me.say(&format!("LOCK.RELEASE k {owner}")), int(0));
        let (n, mut client) = left.remove(0);
        assert_eq!(client.hear().as_list().len(), 2, "o{n} is next");
        served.insert(n);
        owner = format!("o{n}");
        assert_eq!(me.say("LOCK.INFO k").field("owner").as_text(), owner);
    }
    // Otherwise one that has disconnected could be granted the lock before the server notices, and hold it for its lease.
    drop(left);
    wait_until("the last are gone", || server.info("waiters") == 0);
    me.say(&format!("LOCK.RELEASE k {owner}"));
    assert_nothing_is_left(&server);
    assert_eq!(served.len(), stays.iter().filter(|&&stays| stays).count());
    wait_until("memory is given back", || me.info_field("used_memory") < memory + (2 << 20));
}

/// Does everything at once, on few keys. Checks that nothing is left, and that the node counts at least as many grants
/// as its clients received.
pub fn random_storm(server: &Server) {
    let seed = seed();
    let grants: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..16)
            .map(|worker| {
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed.wrapping_add(worker));
                    let mut client = server.client();
                    let mut grants = 0;
                    for n in 0..200 {
                        let (key, owner) = (random.random_range(0..3), format!("w{worker}-{n}"));
                        let (ttl, wait) = (random.random_range(1..40), random.random_range(0..60));
                        if random.random_range(0..4) == 0 {
                            let ticket = random.random_range(0..100);
                            client.say(&format!("LOCK.WAIT k{key} {owner} {wait} TICKET {ticket}")).as_int();
                        }
                        if random.random_range(0..10) == 0 {
                            // The client disconnects in the middle of its wait.
                            client.ask(&format!("LOCK.ACQUIRE k{key} {owner} {ttl} WAIT {wait}"));
                            client = server.client();
                            continue;
                        }
                        match client.say(&format!("LOCK.ACQUIRE k{key} {owner} {ttl} WAIT {wait}")) {
                            Reply::List(list) => {
                                assert!(list[1].as_int() <= wait, "{list:?} after a wait of {wait}");
                                grants += 1;
                            }
                            reply => assert_eq!(reply, null()),
                        }
                        match random.random_range(0..20) {
                            0 => drop(client.say(&format!("DEL k{key}"))),
                            1 => drop(client.say(&format!("LOCK.BREAK k{key}"))),
                            2 => drop(client.say(&format!("RENAMENX k{key} k{}", (key + 1) % 3))),
                            3 => drop(client.say(&format!("PEXPIRE k{key} 1"))),
                            _ => drop(client.say(&format!("LOCK.RELEASE k{key} {owner} LEVEL 1"))),
                        }
                    }
                    grants
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_nothing_is_left(server);
    assert!(server.info("grants") >= grants && grants > 100, "{grants} of {}", server.info("grants"));
    assert_eq!(server.client().say("DBSIZE"), int(0));
    assert_eq!(server.client().info_field("blocked_clients"), 0);
}

#[test]
fn a_random_storm_leaves_nothing_behind() {
    random_storm(&Setup::new().option("notify-keyspace-events", "Ed").start());
}
