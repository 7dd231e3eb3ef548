//! Sends ten thousand random commands over eight connections, in all modes, and compares each reply with a simple
//! model.

use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{Client, Reply, Server, error, int, null, seed, text, wait_until};

const COMMANDS: usize = 10_000;
const CONNECTIONS: usize = 8;
const KEYS: usize = 6;
const OWNERS: usize = 5;
/// A lease longer than the test.
const LONG_MS: u32 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Exclusive,
    Shared,
    Permit { number: i64, limit: i64 },
}

impl Mode {
    /// Returns true if two grants may hold one lock. This is the rule alone, without the data structures of the module.
    fn goes_with(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Permit { number: n, limit: k }, Mode::Permit { number: m, limit: l }) => n != m && n <= l && m <= k,
            _ => false,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
            Mode::Permit { .. } => "permit",
        }
    }
}

/// The mode that an ACQUIRE asks for.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Exclusive,
    Shared,
    Limit { limit: i64, number: Option<i64> },
}

impl Wanted {
    fn random(random: &mut StdRng) -> Self {
        let limit = random.random_range(1..5);
        match random.random_range(0..10) {
            0..2 => Wanted::Exclusive,
            2..5 => Wanted::Shared,
            5..8 => Wanted::Limit { limit, number: None },
            _ => Wanted::Limit { limit, number: Some(random.random_range(1..=limit)) },
        }
    }

    /// Returns the options of ACQUIRE that ask for this mode.
    fn options(self) -> String {
        match self {
            Wanted::Exclusive => String::new(),
            Wanted::Shared => " SHARED".to_owned(),
            Wanted::Limit { limit, number: None } => format!(" LIMIT {limit}"),
            Wanted::Limit { limit, number: Some(number) } => format!(" PERMIT {number} LIMIT {limit}"),
        }
    }

    /// Returns the acceptable modes, the preferred one first.
    fn modes(self) -> Vec<Mode> {
        match self {
            Wanted::Exclusive | Wanted::Limit { limit: 1, .. } => vec![Mode::Exclusive],
            Wanted::Shared => vec![Mode::Shared],
            Wanted::Limit { limit, number } => {
                let numbers = number.map_or(1..=limit, |number| number..=number);
                numbers.map(|number| Mode::Permit { number, limit }).collect()
            }
        }
    }
}

#[derive(Clone)]
struct Held {
    owner: usize,
    token: i64,
    holds: i64,
    mode: Mode,
    /// The note's sequence number, and its text.
    note: (i64, String),
}

/// The locks, in the simplest implementation of the documented behaviour. Leases that may end during the test do so
/// only where the test waits for it.
#[derive(Default)]
struct Model {
    /// The grants by key, oldest first; none is empty.
    locks: HashMap<usize, Vec<Held>>,
    last: HashMap<usize, i64>,
}

impl Model {
    fn held(&self, key: usize) -> &[Held] {
        self.locks.get(&key).map_or(&[], Vec::as_slice)
    }

    fn of(&mut self, key: usize, owner: usize) -> Option<&mut Held> {
        self.locks.get_mut(&key)?.iter_mut().find(|held| held.owner == owner)
    }

    /// Returns the mode in which a request for `wanted` gets the lock.
    fn admits(&self, key: usize, wanted: Wanted) -> Option<Mode> {
        wanted.modes().into_iter().find(|&mode| self.held(key).iter().all(|held| held.mode.goes_with(mode)))
    }

    fn saw(&mut self, key: usize, token: i64) {
        let last = self.last.insert(key, token).unwrap_or(0);
        assert!(token > last, "{token} after {last}");
    }

    /// Checks that `reply` is the answer to a grant in `mode`, and records the grant.
    fn granted(&mut self, key: usize, owner: usize, (wanted, mode): (Wanted, Mode), reply: &Reply) {
        let token = match reply {
            Reply::List(list) => list[0].as_int(),
            reply => reply.as_int(),
        };
        assert_eq!(*reply, answer(wanted, mode, token));
        self.saw(key, token);
        self.locks.entry(key).or_default().push(Held { owner, token, holds: 1, mode, note: (0, String::new()) });
    }

    /// Ends the grants for which `which` returns true. Returns their number.
    fn end(&mut self, key: usize, which: impl Fn(&Held) -> bool) -> usize {
        let before = self.held(key).len();
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.retain(|held| !which(held));
            if lock.is_empty() {
                self.locks.remove(&key);
            }
        }
        before - self.held(key).len()
    }
}

/// Returns the expected answer to a grant.
fn answer(wanted: Wanted, mode: Mode, token: i64) -> Reply {
    match (wanted, mode) {
        (Wanted::Limit { .. }, Mode::Permit { number, .. }) => Reply::List([token, 0, number].map(int).to_vec()),
        (Wanted::Limit { .. }, _) => Reply::List([token, 0, 1].map(int).to_vec()),
        _ => int(token),
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
    let (mut joined, mut converted, mut noted) = (0, 0, 0);
    for step in 0..COMMANDS {
        let client = &mut clients[random.random_range(0..CONNECTIONS)];
        let (key, owner) = (random.random_range(0..KEYS), random.random_range(0..OWNERS));
        let level: i64 = random.random_range(1..5);
        let wanted = Wanted::random(&mut random);
        // A token of the key that is held, one that was held, or one that never existed.
        let held = model.held(key);
        let token = match random.random_range(0..held.len() + 2) {
            n if n < held.len() => held[n].token,
            n => model.last.get(&key).copied().unwrap_or(2) - (n - held.len()) as i64,
        };
        let what = random.random_range(0..100);
        let mut say = |line: String| (client.say(&line), format!("step {step}: {line}"));
        match what {
            0..34 => {
                let retry = if what < 12 { " RETRY" } else { "" };
                let (reply, line) = say(format!("LOCK.ACQUIRE k{key} o{owner} {LONG_MS}{retry}{}", wanted.options()));
                let admitted = model.admits(key, wanted);
                match (model.of(key, owner).cloned(), admitted) {
                    (Some(held), _) if !retry.is_empty() && wanted.modes().contains(&held.mode) => {
                        assert_eq!(reply, answer(wanted, held.mode, held.token), "{line}");
                    }
                    (Some(_), _) => assert!(error(reply).starts_with("OWNED"), "{line}"),
                    (None, None) => assert_eq!(reply, null(), "{line}"),
                    (None, Some(mode)) => {
                        joined += usize::from(!model.held(key).is_empty());
                        model.granted(key, owner, (wanted, mode), &reply);
                    }
                }
            }
            34..50 => {
                let option = match what {
                    34..38 => format!(" LEVEL {level}"),
                    38..42 => format!(" TOKEN {token}"),
                    _ => String::new(),
                };
                let (reply, line) = say(format!("LOCK.RELEASE k{key} o{owner}{option}"));
                let by_token = (38..42).contains(&what);
                let expected = match model.of(key, owner) {
                    Some(held) if !by_token || held.token == token => {
                        held.holds = if what < 38 { held.holds.min(level - 1) } else { held.holds - 1 };
                        int(held.holds)
                    }
                    _ => null(),
                };
                assert_eq!(reply, expected, "{line}");
                model.end(key, |held| held.holds == 0);
            }
            50..58 => {
                let (reply, line) = if what < 54 {
                    say(format!("LOCK.REENTER k{key} o{owner} TTL {LONG_MS} LEVEL {level}"))
                } else {
                    say(format!("LOCK.REENTER k{key} o{owner}"))
                };
                let expected = model.of(key, owner).map_or(null(), |held| {
                    held.holds = if what < 54 { held.holds.max(level) } else { held.holds + 1 };
                    int(held.holds)
                });
                assert_eq!(reply, expected, "{line}");
            }
            58..60 => {
                // Half of the time, the owner's own token, if it has a grant.
                let own = model.of(key, owner).filter(|_| random.random()).map(|held| held.token);
                let token = own.unwrap_or(token);
                // An equal or smaller number changes nothing.
                let number: Option<i64> = (level > 1).then_some(level * 3);
                let option = number.map_or(String::new(), |number| format!(" SEQ {number}"));
                let (reply, line) = say(format!("LOCK.NOTE k{key} o{owner} text{step} TOKEN {token}{option}"));
                let expected = match model.of(key, owner) {
                    Some(held) if held.token == token => {
                        let number = number.unwrap_or(held.note.0 + 1);
                        if number > held.note.0 {
                            held.note = (number, format!("text{step}"));
                            noted += 1;
                        }
                        int(held.note.0)
                    }
                    _ => null(),
                };
                assert_eq!(reply, expected, "{line}");
            }
            60..66 => {
                let to = if what < 63 { Mode::Shared } else { Mode::Exclusive };
                let (reply, line) = say(format!("LOCK.CONVERT k{key} o{owner} {}", to.word()));
                let alone = model.held(key).len() == 1;
                match model.of(key, owner).map(|held| held.mode) {
                    Some(mode) if mode == to => {
                        assert_eq!(reply, int(model.of(key, owner).unwrap().token), "{line}");
                    }
                    Some(Mode::Exclusive) => {
                        let held = model.of(key, owner).unwrap();
                        held.mode = to;
                        assert_eq!(reply, int(held.token), "{line}");
                        converted += 1;
                    }
                    Some(Mode::Shared) if alone => {
                        model.saw(key, reply.as_int());
                        let held = model.of(key, owner).unwrap();
                        (held.mode, held.token) = (to, reply.as_int());
                        converted += 1;
                    }
                    _ => assert_eq!(reply, null(), "{line}"),
                }
            }
            66..72 => {
                let (reply, line) = say(format!("LOCK.EXTEND k{key} o{owner} {LONG_MS}"));
                assert_eq!(reply, model.of(key, owner).map_or(null(), |held| int(held.token)), "{line}");
            }
            72..78 => {
                let (reply, line) = say(format!("LOCK.CHECK k{key} {token}"));
                let current = model.held(key).iter().any(|held| held.token == token);
                assert_eq!(reply != null(), current, "{line}");
            }
            78..88 => {
                let (reply, line) = say(format!("LOCK.INFO k{key} HOLDERS 10"));
                assert_is_told(&reply, model.held(key), &line);
            }
            88..90 => {
                let (reply, line) = say(format!("LOCK.BREAK k{key}"));
                let largest = model.held(key).iter().map(|held| held.token).max();
                assert_eq!(reply, largest.map_or(null(), int), "{line}");
                model.end(key, |_| true);
            }
            90..93 => {
                let (reply, line) = say(format!("LOCK.BREAK k{key} TOKEN {token}"));
                let ended = model.end(key, |held| held.token == token);
                assert_eq!(reply, if ended > 0 { int(token) } else { null() }, "{line}");
            }
            93..95 => {
                let (reply, line) = say(format!("DEL k{key}"));
                assert_eq!(reply, int((model.end(key, |_| true) > 0).into()), "{line}");
            }
            95..97 => {
                // A grant with a short lease, and a wait for its end.
                if let Some(mode) = model.admits(key, wanted).filter(|_| model.of(key, owner).is_none()) {
                    let before = server.info("expiries");
                    let (reply, line) = say(format!("LOCK.ACQUIRE k{key} o{owner} 3{}", wanted.options()));
                    model.granted(key, owner, (wanted, mode), &reply);
                    // Waits until the lock is also out of memory, because RENAME moves an expired lock like any key.
                    wait_until(&line, || server.info("expiries") == before + 1);
                    model.end(key, |held| held.owner == owner);
                }
            }
            97..99 => {
                let to = random.random_range(0..KEYS);
                let (reply, line) = say(format!("RENAME k{key} k{to}"));
                if let Some(lock) = model.locks.remove(&key) {
                    let last = model.last.entry(to).or_insert(0);
                    *last = lock.iter().map(|held| held.token).fold(*last, i64::max);
                    model.locks.insert(to, lock);
                    assert_eq!(reply.as_text(), "OK", "{line}");
                } else {
                    assert!(error(reply).contains("no such key"), "{line}");
                }
            }
            _ => flush(client, &mut model),
        }
    }
    assert!(joined > COMMANDS / 100 && converted > COMMANDS / 2000, "{joined} joined, {converted} converted");
    assert!(noted > 5, "{noted} notes");
    wait_until("only held locks are in memory", || {
        (server.info("held"), server.info("deadlines")) == (model.locks.len() as u64, model.locks.len() as u64)
    });
}

fn flush(client: &mut Client, model: &mut Model) {
    client.say("FLUSHALL");
    client.lift();
    model.locks.clear();
}

/// Checks that LOCK.INFO shows these grants, in this order.
#[track_caller]
fn assert_is_told(reply: &Reply, held: &[Held], line: &str) {
    let Some(first) = held.first() else { return assert_eq!(*reply, null(), "{line}") };
    assert_eq!(reply.field("owner").as_text(), format!("o{}", first.owner), "{line}");
    assert_eq!((reply.field("token"), reply.field("holds")), (int(first.token), int(first.holds)), "{line}");
    assert_eq!(
        (reply.field("mode"), reply.field("holders")),
        (text(first.mode.word()), int(held.len() as i64)),
        "{line}"
    );
    let told = reply.field("grants").as_list();
    assert_eq!(told.len(), held.len(), "{line}");
    for (told, held) in told.iter().zip(held) {
        let (number, limit) = match held.mode {
            Mode::Permit { number, limit } => (number, limit),
            _ => (0, 0),
        };
        let told = ["owner", "token", "holds", "mode", "permit", "limit"].map(|name| told.field(name));
        let owner = text(&format!("o{}", held.owner));
        let expected = [owner, int(held.token), int(held.holds), text(held.mode.word()), int(number), int(limit)];
        assert_eq!(told, expected, "{line}");
    }
}
