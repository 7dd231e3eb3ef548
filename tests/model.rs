//! Ten thousand random commands from eight connections, each reply checked against a naive model.

use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{Reply, Server, error, int, null, seed, wait_until};

const COMMANDS: usize = 10_000;
const CONNECTIONS: usize = 8;
const KEYS: usize = 6;
const OWNERS: usize = 4;
/// So long that no lease of it ends during the test.
const LONG_MS: u32 = 60_000;

struct Held {
    owner: usize,
    token: i64,
    holds: i64,
}

/// What the locks are, by the plainest reading of the contract. Leases that may end in the test do so at one place,
/// where the server is waited for.
#[derive(Default)]
struct Model {
    locks: HashMap<usize, Held>,
    last: HashMap<usize, i64>,
}

impl Model {
    fn of(&mut self, key: usize, owner: usize) -> Option<&mut Held> {
        self.locks.get_mut(&key).filter(|held| held.owner == owner)
    }

    fn granted(&mut self, key: usize, owner: usize, reply: &Reply) {
        let token = reply.as_int();
        let last = self.last.insert(key, token).unwrap_or(0);
        assert!(token > last, "{token} after {last}");
        self.locks.insert(key, Held { owner, token, holds: 1 });
    }
}

#[test]
fn random_commands_against_a_naive_model() {
    run(seed());
}

fn run(seed: u64) {
    let server = Server::start();
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| server.client()).collect();
    let mut random = StdRng::seed_from_u64(seed);
    let mut model = Model::default();
    for step in 0..COMMANDS {
        let client = &mut clients[random.random_range(0..CONNECTIONS)];
        let (key, owner) = (random.random_range(0..KEYS), random.random_range(0..OWNERS));
        let level: i64 = random.random_range(1..5);
        let what = random.random_range(0..100);
        let mut say = |line: String| (client.say(&line), format!("step {step}: {line}"));
        match what {
            0..30 => {
                let retry = if what < 10 { " RETRY" } else { "" };
                let (reply, line) = say(format!("LOCK.ACQUIRE k{key} o{owner} {LONG_MS}{retry}"));
                match model.locks.get(&key) {
                    None => model.granted(key, owner, &reply),
                    Some(held) if held.owner != owner => assert_eq!(reply, null(), "{line}"),
                    Some(held) if !retry.is_empty() => assert_eq!(reply, int(held.token), "{line}"),
                    Some(_) => assert!(error(reply).starts_with("OWNED"), "{line}"),
                }
            }
            30..50 => {
                let token = model.last.get(&key).copied().unwrap_or(2) - what % 2;
                let option = match what {
                    30..35 => format!(" LEVEL {level}"),
                    35..40 => format!(" TOKEN {token}"),
                    _ => String::new(),
                };
                let (reply, line) = say(format!("LOCK.RELEASE k{key} o{owner}{option}"));
                let by_token = (35..40).contains(&what);
                let expected = match model.of(key, owner) {
                    Some(held) if !by_token || held.token == token => {
                        held.holds = if what < 35 { held.holds.min(level - 1) } else { held.holds - 1 };
                        int(held.holds)
                    }
                    _ => null(),
                };
                assert_eq!(reply, expected, "{line}");
                if reply == int(0) {
                    model.locks.remove(&key);
                }
            }
            50..65 => {
                let (reply, line) = if what < 55 {
                    say(format!("LOCK.REENTER k{key} o{owner} TTL {LONG_MS} LEVEL {level}"))
                } else {
                    say(format!("LOCK.REENTER k{key} o{owner}"))
                };
                let expected = model.of(key, owner).map_or(null(), |held| {
                    held.holds = if what < 55 { held.holds.max(level) } else { held.holds + 1 };
                    int(held.holds)
                });
                assert_eq!(reply, expected, "{line}");
            }
            65..75 => {
                let (reply, line) = say(format!("LOCK.EXTEND k{key} o{owner} {LONG_MS}"));
                assert_eq!(reply, model.of(key, owner).map_or(null(), |held| int(held.token)), "{line}");
            }
            75..80 => {
                let token = model.last.get(&key).copied().unwrap_or(1);
                let (reply, line) = say(format!("LOCK.CHECK k{key} {token}"));
                let current = model.locks.get(&key).is_some_and(|held| held.token == token);
                assert_eq!(reply != null(), current, "{line}");
            }
            80..90 => {
                let (reply, line) = say(format!("LOCK.INFO k{key}"));
                match model.locks.get(&key) {
                    None => assert_eq!(reply, null(), "{line}"),
                    Some(held) => {
                        assert_eq!(reply.field("owner").as_text(), format!("o{}", held.owner), "{line}");
                        assert_eq!(reply.field("token"), int(held.token), "{line}");
                        assert_eq!(reply.field("holds"), int(held.holds), "{line}");
                    }
                }
            }
            90..93 => {
                let (reply, line) = say(format!("LOCK.BREAK k{key}"));
                assert_eq!(reply, model.locks.remove(&key).map_or(null(), |held| int(held.token)), "{line}");
            }
            93..95 => {
                let (reply, line) = say(format!("DEL k{key}"));
                assert_eq!(reply, int(model.locks.remove(&key).is_some().into()), "{line}");
            }
            95..97 => {
                // A short lease, waited for to its end.
                if !model.locks.contains_key(&key) {
                    let (reply, line) = say(format!("LOCK.ACQUIRE k{key} o{owner} 3"));
                    model.granted(key, owner, &reply);
                    // Until it is out of memory too: RENAME moves an expired lock like any key.
                    wait_until(&line, || say(format!("EXISTS k{key}")).0 == int(0));
                    model.locks.remove(&key);
                }
            }
            97..99 => {
                let to = random.random_range(0..KEYS);
                let (reply, line) = say(format!("RENAME k{key} k{to}"));
                if let Some(held) = model.locks.remove(&key) {
                    let last = model.last.entry(to).or_insert(0);
                    *last = (*last).max(held.token);
                    model.locks.insert(to, held);
                    assert_eq!(reply.as_text(), "OK", "{line}");
                } else {
                    assert!(error(reply).contains("no such key"), "{line}");
                }
            }
            _ => {
                client.say("FLUSHALL");
                client.lift();
                model.locks.clear();
            }
        }
    }
    wait_until("only held locks are in memory", || {
        (server.info("held"), server.info("deadlines")) == (model.locks.len() as u64, model.locks.len() as u64)
    });
}
