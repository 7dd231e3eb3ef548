//! The cost of answering thousands of clients that one command releases: readers behind a writer. It is compared with
//! the server's own cost for the same number of clients that wait for a stream or a message. It is also compared with
//! Redisson's way, whose readers receive a message and then ask.
//!
//! All of them use the same connections to one server, in turns. Waiting and cleaning up afterwards are not measured.

use std::path::Path;
use std::time::{Duration, Instant};

use redis::Value;

use crate::expiry::{BystanderTimes, bystand};
use crate::raw::{Raw, request};
use crate::results::{Budget, Table};
use crate::server::Server;
use crate::server_cost::{median, middle_half};
use crate::workloads::script;

/// A lease that outlasts the measurement.
const TTL_MS: &str = "3600000";

/// The pause before and after a turn, so that no turn pays for the previous one.
const REST: Duration = Duration::from_millis(100);

/// The event for which thousands of clients wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The release of a lock by a writer, for which readers wait.
    Readers,
    /// An entry of a stream, with XREAD BLOCK.
    Stream,
    /// A message, with SUBSCRIBE.
    Message,
    /// Redisson's pattern: a message says that the writer is gone, and each reader then asks for the lock.
    Redisson,
}

const WAYS: [Way; 4] = [Way::Readers, Way::Stream, Way::Message, Way::Redisson];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Readers => "ACQUIRE SHARED WAIT, a writer's RELEASE",
            Self::Stream => "XREAD BLOCK, an XADD",
            Self::Message => "SUBSCRIBE, a PUBLISH",
            Self::Redisson => "Redisson's readers: a message, then a script each",
        }
    }

    /// Returns the number of lines of the first answer to each client. A reader's answer has a token and the time
    /// waited; one from a stream has the stream, an entry and its fields; a message has a kind, a channel and a text.
    fn lines(self) -> usize {
        match self {
            Self::Readers => 3,
            Self::Stream => 12,
            Self::Message | Self::Redisson => 7,
        }
    }
}

/// The measurement of one turn.
struct Turn {
    /// Milliseconds until the last client has read its answer.
    ms: f64,
    /// CPU time of the server's main thread for each waiting client, in microseconds.
    cpu_us: f64,
}

/// A server, thousands of its clients, and the client that releases them.
struct Crowd {
    server: Server,
    waiting: Vec<Raw>,
    one: Raw,
    /// The hashes of the scripts of Redisson's way.
    unlock: String,
    lock: String,
}

/// Measures each way in which clients wait, `times` times with `waiting` clients.
pub fn measure(server: &Path, module: &Path, waiting: usize, times: u32, budgets: &mut Vec<Budget>) -> Table {
    let mut table = Table::new("crowd", format!("{waiting} clients that one command sets free"))
        .words("they wait with, set free by")
        .numbers("until the last had its answer", "ms", 1)
        .words("half of the turns within")
        .numbers("server CPU of each", "us", 2)
        .numbers("beside XREAD", "times", 2)
        .words("half of the turns within")
        .numbers("longest time of a bystander", "ms", 2)
        .numbers("in the second before", "ms", 2);
    let mut crowd = Crowd::gather(server, module, waiting);
    let mut turns: [Vec<Turn>; WAYS.len()] = Default::default();
    let mut longest: [Vec<f64>; WAYS.len()] = Default::default();
    let mut before: [Vec<f64>; WAYS.len()] = Default::default();
    for time in 0..times as usize {
        eprintln!("together: crowd, {} of {times}", time + 1);
        for n in 0..WAYS.len() {
            let n = (n + time) % WAYS.len();
            turns[n].push(crowd.turn(WAYS[n]));
            let seen = crowd.seen_by_a_bystander(WAYS[n]);
            longest[n].push(seen.longest_us() / 1_000.0);
            before[n].push(seen.longest_before_us() / 1_000.0);
        }
    }
    let of = |n: usize, figure: fn(&Turn) -> f64| turns[n].iter().map(figure).collect::<Vec<_>>();
    let stream = WAYS.iter().position(|way| *way == Way::Stream).expect("one of the ways");
    let beside_stream = |n: usize, figure: fn(&Turn) -> f64| {
        let ratios = of(n, figure).into_iter().zip(of(stream, figure)).map(|(own, stream)| own / stream);
        ratios.collect::<Vec<_>>()
    };
    for (n, way) in WAYS.iter().enumerate() {
        let ms = of(n, |turn| turn.ms);
        let cpu = of(n, |turn| turn.cpu_us);
        let beside = beside_stream(n, |turn| turn.cpu_us);
        table.row([
            way.name().into(),
            median(&ms).into(),
            middle_half(&ms).into(),
            median(&cpu).into(),
            median(&beside).into(),
            middle_half(&beside).into(),
            median(&longest[n]).into(),
            median(&before[n]).into(),
        ]);
        if *way == Way::Readers {
            let what = format!("{waiting} readers that wait for one writer");
            let ratio = median(&beside_stream(n, |turn| turn.ms));
            budgets.push(Budget::at_most(format!("{what}, all served / as many with XREAD"), ratio, 1.0));
            budgets.push(Budget::at_most(format!("{what}, longest time of a bystander, ms"), median(&longest[n]), 2.0));
        }
    }
    table.note(format!(
        "A connection for each client; the libraries take turns on one server, {times} turns each. Figures are medians of \
         the turns; ratios are medians of the ratios within a round. Time runs from sending the one command to reading the last \
         answer, by one thread, which needs a core of its own."
    ));
    table.note(
        "The bystander has turns of its own, in which the waiting clients do not read their answers. It sends a GET \
         every 200 us; the time runs from when the GET was due. Only Redisson's clients read: each needs its message \
         to ask for the lock.",
    );
    table.note(
        "The clients that imitate Redisson's readers receive messages and ask over one connection, in RESP3; real ones \
         have a second connection for messages.",
    );
    table
}

impl Crowd {
    fn gather(server: &Path, module: &Path, count: usize) -> Self {
        let server = Server::start_as(&[], server, module, &["--lock.max-ttl", TTL_MS]);
        let mut one = Raw::connect(server.port());
        let mut load = |name| {
            one.send(&request(&["SCRIPT", "LOAD", script(name)]));
            let Value::BulkString(hash) = one.answer() else { panic!("{name} is no script") };
            String::from_utf8(hash).unwrap()
        };
        let (unlock, lock) = (load("redisson-write-unlock"), load("redisson-read-lock"));
        let mut waiting: Vec<Raw> = (0..count).map(|_| Raw::connect(server.port())).collect();
        for client in &mut waiting {
            client.send(&request(&["HELLO", "3"]));
            client.answer();
        }
        Self { server, waiting, one, unlock, lock }
    }

    /// Makes all clients wait in this way.
    fn queue(&mut self, way: Way) {
        match way {
            Way::Readers => drop(self.one.ask(&format!("LOCK.ACQUIRE crowd writer {TTL_MS}"))),
            Way::Redisson => drop(self.one.ask("HSET crowd mode write")),
            Way::Stream | Way::Message => {}
        }
        for (n, client) in self.waiting.iter_mut().enumerate() {
            let owner = owner(n);
            client.send(&match way {
                Way::Readers => request(&["LOCK.ACQUIRE", "crowd", &owner, TTL_MS, "SHARED", "WAIT", "600000"]),
                Way::Stream => request(&["XREAD", "BLOCK", "0", "STREAMS", "crowd", "$"]),
                Way::Message | Way::Redisson => request(&["SUBSCRIBE", "crowd:channel"]),
            });
        }
        match way {
            Way::Readers | Way::Stream => {
                while crate::server::field(&mut self.one, "clients", "blocked_clients") < self.waiting.len() as u64 {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            Way::Message | Way::Redisson => self.waiting.iter_mut().for_each(|client| client.skip_lines(6)),
        }
        std::thread::sleep(REST);
    }

    fn command(&self, way: Way) -> Vec<u8> {
        match way {
            Way::Readers => request(&["LOCK.RELEASE", "crowd", "writer"]),
            Way::Stream => request(&["XADD", "crowd", "*", "f", "v"]),
            Way::Message => request(&["PUBLISH", "crowd:channel", "0"]),
            Way::Redisson => request(&["EVALSHA", &self.unlock, "2", "crowd", "crowd:channel"]),
        }
    }

    /// Reads the answer to the command that released the clients, ends their subscriptions, and deletes the key.
    fn tidy(&mut self, way: Way) {
        self.one.answer();
        if matches!(way, Way::Message | Way::Redisson) {
            for client in &mut self.waiting {
                client.send(&request(&["UNSUBSCRIBE", "crowd:channel"]));
                client.skip_lines(6);
            }
        }
        self.one.ask("DEL crowd");
        std::thread::sleep(REST);
    }

    fn turn(&mut self, way: Way) -> Turn {
        self.queue(way);
        let cpu = self.server.cpu_of_main_thread();
        let start = Instant::now();
        self.one.send(&self.command(way));
        hear(&mut self.waiting, way, &self.lock);
        if way == Way::Redisson {
            self.waiting.iter_mut().for_each(|client| client.skip_lines(1));
        }
        let ms = start.elapsed().as_secs_f64() * 1_000.0;
        // The CPU time is exact while the server sleeps.
        std::thread::sleep(Duration::from_millis(5));
        let cpu_us = (self.server.cpu_of_main_thread() - cpu).as_secs_f64() * 1_000_000.0 / self.waiting.len() as f64;
        self.tidy(way);
        Turn { ms, cpu_us }
    }

    /// Measures how long a bystander, a client that sends GETs at even intervals, waits for its answers while the
    /// clients are released.
    fn seen_by_a_bystander(&mut self, way: Way) -> BystanderTimes {
        self.queue(way);
        let first = Instant::now() + Duration::from_millis(1_100);
        let (command, one) = (self.command(way), &mut self.one);
        let seen = std::thread::scope(|scope| {
            let bystander = scope.spawn(|| bystand(&self.server, first));
            std::thread::sleep(first.saturating_duration_since(Instant::now()));
            one.send(&command);
            if way == Way::Redisson {
                hear(&mut self.waiting, way, &self.lock);
            }
            bystander.join().unwrap()
        });
        if way == Way::Redisson {
            self.waiting.iter_mut().for_each(|client| client.skip_lines(1));
        } else {
            hear(&mut self.waiting, way, &self.lock);
        }
        self.tidy(way);
        seen
    }
}

/// Reads what each client receives first; Redisson's readers then ask for the lock, with the script `lock`.
fn hear(waiting: &mut [Raw], way: Way, lock: &str) {
    for (n, client) in waiting.iter_mut().enumerate() {
        client.skip_lines(way.lines());
        if way == Way::Redisson {
            client.send(&request(&["EVALSHA", lock, "2", "crowd", "crowd:timeout", TTL_MS, &owner(n)]));
        }
    }
}

/// Returns an owner of 20 bytes.
fn owner(n: usize) -> String {
    format!("reader-{n:013}")
}
