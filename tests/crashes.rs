//! Crashes at random moments under load, many in a row: no token repeats, and nothing is granted while an acknowledged
//! lock can still be valid. If the node can prove what it granted, it is not guarded.
//!
//! `PALISADE_ROUNDS` sets the number of crashes of each kind (default 3; `make crash` runs 100).

use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{Client, Reply, Server, Setup, seed, state_file};

/// Settings with a longest lease short enough for a short guard: 200 ms × 1.01 + 50 ms.
const SHORT: [&str; 4] = ["max-ttl", "200", "max-clock-skew", "50"];
const KEYS: usize = 12;
const WORKERS: usize = 4;

/// The acknowledged answers about one key, over all incarnations.
#[derive(Clone, Copy)]
struct Told {
    /// The largest acknowledged token.
    token: i64,
    /// The end of validity of the key's last acknowledged holder, counted from before the request.
    valid_until: Instant,
}

#[derive(Default)]
struct History(Mutex<HashMap<usize, Told>>);

impl History {
    fn granted(&self, key: usize, token: i64, sent: Instant, ttl_ms: u64) {
        let mut told = self.0.lock().unwrap();
        let last = told.get(&key).map_or(0, |told| told.token);
        assert!(token > last, "key {key}: token {token} after {last}");
        told.insert(key, Told { token, valid_until: sent + Duration::from_millis(ttl_ms) });
    }

    fn extended(&self, key: usize, sent: Instant, ttl_ms: u64) {
        let mut told = self.0.lock().unwrap();
        let told = told.get_mut(&key).unwrap();
        told.valid_until = told.valid_until.max(sent + Duration::from_millis(ttl_ms));
    }

    fn gave_back(&self, key: usize) {
        self.0.lock().unwrap().get_mut(&key).unwrap().valid_until = Instant::now();
    }
}

/// Sends requests about the worker's own keys until the server is gone. Each key has only one worker.
fn work(worker: usize, mut random: StdRng, mut client: Client, ttl_ms: u64, history: &History, over: &AtomicBool) {
    let mut serial = 0;
    while !over.load(Ordering::Relaxed) {
        let key = random.random_range(0..KEYS / WORKERS) * WORKERS + worker;
        serial += 1;
        let owner = format!("w{worker}-{serial}-{}", random.random::<u32>());
        let sent = Instant::now();
        match client.try_say(&format!("LOCK.ACQUIRE k{key} {owner} {ttl_ms}")) {
            Some(Reply::Int(token)) => history.granted(key, token, sent, ttl_ms),
            Some(_) => continue,
            None => return,
        }
        if random.random_range(0..3) == 0 {
            let sent = Instant::now();
            match client.try_say(&format!("LOCK.EXTEND k{key} {owner} {ttl_ms}")) {
                Some(Reply::Int(_)) => history.extended(key, sent, ttl_ms),
                Some(_) => continue,
                None => return,
            }
        }
        if random.random_range(0..2) == 0 {
            // From the moment of sending on, the lock may be free.
            history.gave_back(key);
            if client.try_say(&format!("LOCK.RELEASE k{key} {owner}")).is_none() {
                return;
            }
        }
    }
}

/// The action of a test between a crash and the next start.
type Between = fn(&mut Server, usize);

fn campaign(what: &str, setup: Setup, remembers: bool, between: Between) {
    let rounds = std::env::var("PALISADE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    // The random choices can be repeated, but not the moments of the server's work at which they happen.
    let mut random = StdRng::seed_from_u64(seed());
    let history = History::default();
    let mut server = setup.start();
    let (mut held, mut proved, mut guarded) = (0, 0, 0);
    for round in 0..rounds {
        server.client().outlast_guard("LOCK.ACQUIRE ready me 1");
        let ttl_ms = server.info("max_ttl_ms");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (client, history, over) = (server.client(), &history, &over);
                let random = StdRng::from_rng(&mut random);
                scope.spawn(move || work(worker, random, client, ttl_ms, history, over));
            }
            sleep(Duration::from_millis(random.random_range(5..120)));
            server.kill();
            over.store(true, Ordering::Relaxed);
        });
        between(&mut server, round);
        server.start_again();

        let ttl_ms = server.info("max_ttl_ms");
        let mut client = server.client();
        let fresh = client.insist("LOCK.ACQUIRE fresh me 1");
        // The node's own verdict is in its log. (A short guard may end before a busy machine can ask for it.)
        let log = server.log();
        let verdict = log.lines().rfind(|line| line.ends_with("of its last incarnation")).unwrap();
        assert_eq!(verdict.contains(", remembers every grant "), remembers, "{what}, round {round}:\n{log}");
        let refused = matches!(&fresh, Reply::Error(text) if text.starts_with("GUARDED "));
        assert!(!(remembers && refused), "{what}, round {round}: {fresh:?}\n{log}");
        guarded += usize::from(!remembers);
        proved += usize::from(remembers);
        // Every key is requested until it is granted.
        let told = history.0.lock().unwrap().clone();
        held += told.values().filter(|told| told.valid_until > Instant::now()).count();
        for (key, told) in told {
            let (token, answered, sent) = loop {
                let sent = Instant::now();
                let reply = client.say(&format!("LOCK.ACQUIRE k{key} after-{round} {ttl_ms}"));
                match reply {
                    Reply::Int(token) => break (token, Instant::now(), sent),
                    Reply::Null => {}
                    Reply::Error(text) => {
                        assert!(text.starts_with("GUARDED ") || text.starts_with("NOTYET "), "{text}")
                    }
                    other => panic!("{other:?}"),
                }
            };
            assert!(
                answered >= told.valid_until,
                "{what}, round {round}: key {key} was granted {:?} before its holder's lease ended\n{}",
                told.valid_until - answered,
                server.log()
            );
            history.granted(key, token, sent, ttl_ms);
            history.gave_back(key);
            client.say(&format!("LOCK.RELEASE k{key} after-{round}"));
        }
    }
    println!("{what}: {rounds} crashes, {held} locks held then, {proved} proved, {guarded} guarded");
}

fn short() -> Setup {
    Setup::new().module_arguments(&SHORT)
}

fn nothing(_server: &mut Server, _round: usize) {}

#[test]
fn crashes_without_persistence_break_nothing() {
    campaign("no persistence", short(), false, nothing);
}

#[test]
fn with_snapshots_only() {
    campaign("RDB only", short().option("save", "1 1"), false, nothing);
}

#[test]
fn with_the_aof_every_second() {
    campaign("AOF everysec", short().option("appendonly", "yes").option("appendfsync", "everysec"), false, nothing);
}

#[test]
fn with_the_aof_always() {
    campaign("AOF always", short().aof(), true, nothing);
}

#[test]
fn with_the_state_file_deleted() {
    campaign("state file deleted", short().aof(), false, |server, _| fs::remove_file(state_file(server)).unwrap());
}

#[test]
fn with_the_state_file_cut_short() {
    campaign("state file cut short", short().aof(), false, |server, round| {
        let text = fs::read(state_file(server)).unwrap();
        // A different length each round: over a hundred rounds, every third byte.
        fs::write(state_file(server), &text[..(round * 3) % text.len()]).unwrap();
    });
}

#[test]
fn with_a_state_file_of_the_future() {
    campaign("state file of the future", short().aof(), false, |server, _| {
        let text = fs::read_to_string(state_file(server)).unwrap();
        fs::write(state_file(server), text.replace("palisade-node 2", "palisade-node 3")).unwrap();
    });
}

#[test]
fn with_the_clock_set_back_an_hour_or_a_day() {
    campaign("clock set back", short().wall_clock(), false, |server, round| {
        server.wall_clock().set(if round % 2 == 0 { -3_600 } else { -86_400 });
    });
}

#[test]
fn with_the_clock_set_back_and_the_aof_always() {
    campaign("clock set back, AOF always", short().aof().wall_clock(), true, |server, round| {
        server.wall_clock().set(if round % 2 == 0 { -3_600 } else { -86_400 });
    });
}

#[test]
fn with_max_ttl_lowered_and_raised() {
    campaign("max-ttl lowered and raised", short(), false, |server, round| {
        let max_ttl = if round % 2 == 0 { "60" } else { "200" };
        server.change(|setup| setup.module_arguments(&["max-ttl", max_ttl, "max-clock-skew", "50"]));
    });
}
