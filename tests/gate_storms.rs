//! Holders that are stopped for longer than their leases continue and write through a gate, while servers fail. No such
//! write succeeds after that of a newer holder.
//!
//! Each write appends its token to a list, in one step with the gate. So whatever survives of the list shows which
//! writes succeeded, in their order, and a token smaller than the one before it is a late write.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{Client, Member, Reply, Server, Setup, follow, joined, not_here, seed, text, wait_until};

/// The number of holders that want the lock.
const HOLDERS: u64 = 6;

/// The length of a lease, in milliseconds.
const TTL_MS: u64 = 8;

/// The number of writes that must succeed, and that must be refused, before and after each fault.
const ENOUGH: u64 = 10;

/// The key of the gate.
const GATE: &str = "{invoices}:gate";

/// The list to which each write appends its token. It has the slot of the gate.
const LIST: &str = "{invoices}:landed";

/// The sockets of the servers with the data, and the numbers of writes that landed and that were refused.
#[derive(Default)]
struct Data {
    sockets: Mutex<Vec<PathBuf>>,
    is_over: AtomicBool,
    landed: AtomicU64,
    refused: AtomicU64,
}

impl Data {
    fn on(servers: &[&Server]) -> Self {
        let data = Self::default();
        data.is_now_on(servers);
        data
    }

    fn is_now_on(&self, servers: &[&Server]) {
        *self.sockets.lock().unwrap() = servers.iter().map(|server| server.socket()).collect();
    }

    /// Sends the line to each server, also to one to which the slot migrates. Returns the first answer that is neither
    /// a redirection nor a temporary error.
    fn say(&self, line: &str) -> Option<Reply> {
        let sockets = self.sockets.lock().unwrap().clone();
        for socket in sockets {
            let Some(mut client) = Client::try_connect(&socket, false) else { continue };
            // Only a member that imports the slot acts on this.
            client.try_say("ASKING");
            match client.try_say(line) {
                Some(Reply::Error(text)) if !text.starts_with("FENCED") => {}
                Some(reply) => return Some(reply),
                None => {}
            }
        }
        None
    }

    /// Writes with this token through the gate, if a server can be reached.
    fn write(&self, token: i64) {
        match self.say(&format!("LOCK.GATE {GATE} {token} COMMAND RPUSH {LIST} {token}")) {
            Some(Reply::Error(_)) => self.refused.fetch_add(1, Relaxed),
            Some(_) => self.landed.fetch_add(1, Relaxed),
            None => 0,
        };
    }

    /// Takes the lock and writes, half of the time stops for longer than the lease, and writes again.
    fn hold(&self, locks: &Path, number: u64, mut random: StdRng) {
        let mut client = Client::connect(locks, false);
        while !self.is_over.load(Relaxed) {
            let reply = client.say(&format!("LOCK.ACQUIRE invoices {number} {TTL_MS} WAIT 1000"));
            let Reply::List(granted) = reply else { continue };
            let token = granted[0].as_int();
            self.write(token);
            if random.random() {
                sleep(Duration::from_millis(random.random_range(TTL_MS..4 * TTL_MS)));
            }
            self.write(token);
            client.say(&format!("LOCK.RELEASE invoices {number}"));
        }
    }

    /// Waits until [`ENOUGH`] writes have succeeded, and as many have been refused.
    fn wait_for_writes(&self) {
        let counts = || [&self.landed, &self.refused].map(|count| count.load(Relaxed));
        let before = counts();
        wait_until("writes land, and late ones are refused", || {
            counts().iter().zip(before).all(|(count, before)| count - before >= ENOUGH)
        });
    }

    /// Checks that no write succeeded after that of a newer holder.
    fn assert_in_order(&self) {
        let mut landed = None;
        wait_until("a server has the list", || {
            landed = self.say(&format!("LRANGE {LIST} 0 -1"));
            landed.is_some()
        });
        let landed = landed.unwrap().as_list();
        let tokens: Vec<u64> = landed.iter().map(|token| token.as_text().parse().unwrap()).collect();
        assert!(!tokens.is_empty());
        let late = tokens.windows(2).position(|two| two[1] < two[0]);
        assert_eq!(late.map(|at| &tokens[at..at + 2]), None, "a late write landed");
    }
}

/// Runs holders that write while the faults happen.
fn during(data: &Data, faults: impl FnOnce()) {
    let seed = seed();
    let locks = Server::start();
    let socket = locks.socket();
    thread::scope(|scope| {
        for number in 0..HOLDERS {
            let random = StdRng::seed_from_u64(seed.wrapping_add(number));
            let socket = &socket;
            scope.spawn(move || data.hold(socket, number, random));
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            data.wait_for_writes();
            faults();
        }));
        data.is_over.store(true, Relaxed);
        // This check comes first: a late write that succeeded was not refused, so the wait would fail too.
        data.assert_in_order();
        ended.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
}

/// Servers are killed, fail over, and replace their data by full synchronisations. No late write succeeds.
#[test]
fn no_late_write_lands_while_servers_die_and_follow_each_other() {
    let start = || Setup::new().aof().replication().option("repl-diskless-sync-delay", "0").start();
    let (mut one, mut other) = (start(), start());
    let data = Data::on(&[&one]);
    during(&data, || {
        for _ in 0..2 {
            one.kill();
            one.start_again();
            data.wait_for_writes();
            data.assert_in_order();
            follow(&other, &one);
            data.wait_for_writes();
            // The replica takes over from a master that dies, which then gets all data from it.
            one.kill();
            assert_eq!(other.client().say("REPLICAOF NO ONE"), text("OK"));
            data.is_now_on(&[&other]);
            data.wait_for_writes();
            data.assert_in_order();
            one.start_again();
            std::mem::swap(&mut one, &mut other);
        }
    });
}

/// The slot migrates back and forth, key by key, and in one step if the server supports that. No late write succeeds.
#[test]
fn no_late_write_lands_while_a_slot_moves() {
    // Both masters keep slots: one that gives its last slot away becomes a replica.
    let [one, other] = joined(["0 8191", "8192 16383"]);
    let data = Data::on(&[&one.server, &other.server]);
    let slot = one.client().say(&format!("CLUSTER KEYSLOT {GATE}")).as_int();
    let serves = |member: &Member| !member.client().say(&format!("EXISTS {GATE}")).is_error("MOVED");
    during(&data, || {
        let (mut from, mut to) = (&other, &one);
        for _ in 0..4 {
            to.client().say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id));
            let mut client = from.client();
            client.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id));
            for key in client.say(&format!("CLUSTER GETKEYSINSLOT {slot} 10")).as_list() {
                // Between the two moves, the gate and the list are on two servers.
                sleep(Duration::from_millis(4 * TTL_MS));
                let line = format!("MIGRATE 127.0.0.1 {} {} 0 60000", to.server.port(), key.as_text());
                assert_eq!(client.say(&line), text("OK"));
            }
            for member in [to, from] {
                assert_eq!(member.client().say(&format!("CLUSTER SETSLOT {slot} NODE {}", to.id)), text("OK"));
            }
            data.wait_for_writes();
            data.assert_in_order();
            (from, to) = (to, from);
        }
        for _ in 0..2 {
            let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", to.id);
            match from.client().say(&line) {
                Reply::Error(why) if why.to_lowercase().contains("unknown subcommand") => {
                    return not_here("this server does not move slots in one step");
                }
                reply => assert_eq!(reply, text("OK")),
            }
            wait_until("the slot has moved", || serves(to) && !serves(from));
            data.wait_for_writes();
            data.assert_in_order();
            (from, to) = (to, from);
        }
    });
}
