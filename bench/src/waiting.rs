//! The server's memory per waiting request. It is compared with three other clients: one that is only connected, one
//! that waits for a list with the server's own BLPOP, and one that a module only blocks (bench/floor). That module
//! stores nothing about the client.

use std::path::Path;
use std::time::Duration;

use redis::Value;

use crate::raw::{Raw, request};
use crate::results::Table;
use crate::server::{Server, field, settled, with_floor};

/// Waits and leases that outlast the measurement.
const LONG_MS: &str = "3600000";
const SETTINGS: &[&str] = &["--lock.max-ttl", LONG_MS];

/// The listener's name.
const LISTENER: &str = "listener-of-the-benchmark";

/// The number of requests in one batch over one connection.
const BATCH: usize = 1_000;

/// The time after which a server's housekeeping reclaims excess buffers of an idle connection: for requests after 2
/// seconds, for answers after 5.
const IDLE: Duration = Duration::from_secs(7);

/// A way to wait. Each waiter has its own connection, except in the last way: there, one connection sends all requests,
/// and a listener's connection serves all waiters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Does not wait: the client has sent one request and received the answer.
    Connected,
    /// Waits for an entry of a list.
    List,
    /// Waits because a module blocks the client, without keeping anything about it.
    Blocked,
    /// Waits for a lock, with LOCK.ACQUIRE.
    Lock,
    /// Waits for a turn, which is announced to a listener.
    Heard,
}

/// The ways to wait that are measured for one key. Those with which the others are compared come first.
const FOR_ONE_KEY: &[Way] = &[Way::Connected, Way::List, Way::Blocked, Way::Lock, Way::Heard];
const FOR_A_KEY_EACH: &[Way] = &[Way::List, Way::Lock, Way::Heard];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Connected => "merely connected",
            Self::List => "BLPOP",
            Self::Blocked => "a module that only blocks",
            Self::Lock => "ACQUIRE WAIT",
            Self::Heard => "LOCK.WAIT HEARD",
        }
    }

    fn request(self, n: usize, key: &str) -> Vec<u8> {
        // As long as the owner names of the client crate.
        let owner = format!("waiter-{n:013}");
        match self {
            Self::Connected => request(&["GET", key]),
            Self::List => request(&["BLPOP", key, "0"]),
            Self::Blocked => request(&["FLOOR.BLOCK", key]),
            Self::Lock => request(&["LOCK.ACQUIRE", key, &owner, LONG_MS, "WAIT", LONG_MS]),
            Self::Heard => request(&["LOCK.WAIT", key, &owner, LONG_MS, "HEARD", LISTENER]),
        }
    }
}

/// Measures the memory of waiting requests, for each of `counts`.
pub fn measure(server: &Path, module: &Path, counts: &[usize]) -> Table {
    let mut table = Table::new("waiting", "Memory of a request that waits: key of 12 bytes, owner of 20")
        .numbers("requests", "", 0)
        .words("they wait with")
        .words("for")
        .numbers("each", "bytes", 0)
        .numbers("beside a client that is merely connected", "bytes", 0)
        .numbers("beside one that a module only blocks", "bytes", 0)
        .numbers("each, resident", "bytes", 0);
    let floor = with_floor(module);
    let settings: Vec<&str> = SETTINGS.iter().copied().chain(floor.iter().map(String::as_str)).collect();
    for &count in counts {
        let (mut connected, mut blocked) = (None, None);
        for (ways, what) in [(FOR_ONE_KEY, "one key"), (FOR_A_KEY_EACH, "a key each")] {
            for &way in ways {
                eprintln!("memory: {count} requests that wait, {}, {what}", way.name());
                let server = Server::start_as(&[], server, module, &settings);
                let (used, resident) = fill(&server, way, what == "one key", count);
                table.row([
                    count.into(),
                    way.name().into(),
                    if way == Way::Connected { "nothing" } else { what }.into(),
                    used.into(),
                    // A listener's requests have no connections to compare with.
                    connected.filter(|_| way != Way::Heard).map(|connected: f64| used - connected).into(),
                    blocked.filter(|_| way == Way::Lock).map(|blocked: f64| used - blocked).into(),
                    resident.into(),
                ]);
                match way {
                    Way::Connected => connected = Some(used),
                    Way::Blocked => blocked = Some(used),
                    Way::List | Way::Lock | Way::Heard => {}
                }
            }
        }
    }
    table.note(format!(
        "Growth of used_memory, divided by the number of requests, once all have waited for {} seconds; resident: \
         growth of used_memory_rss. A server for each row. The locks themselves are not counted.",
        IDLE.as_secs()
    ));
    table.note(
        "Each request has a connection of its own, whose buffers count. LOCK.WAIT HEARD is the exception: one \
         connection sends all requests, and another receives the answers. The kernel's memory for sockets is not \
         included.",
    );
    table
}

/// Returns the bytes per waiter on `server`, used and resident.
fn fill(server: &Server, way: Way, is_one_key: bool, count: usize) -> (f64, f64) {
    let mut monitor = Raw::connect(server.port());
    let key = |n: usize| format!("lock{:08}", if is_one_key { 0 } else { n });
    if matches!(way, Way::Lock | Way::Heard) {
        let mut holder = Raw::connect(server.port());
        in_batches(&mut holder, if is_one_key { 1 } else { count }, |n| {
            request(&["LOCK.ACQUIRE", &key(n), "holder", LONG_MS])
        });
    }
    let mut listener = Raw::connect(server.port());
    if way == Way::Heard {
        assert_eq!(listener.ask(&format!("LOCK.HEAR {LISTENER} 0")), Value::Array(vec![]));
    }
    std::thread::sleep(IDLE);
    let before = settled(&mut monitor);
    let mut waiting = Vec::new();
    if way == Way::Heard {
        in_batches(&mut Raw::connect(server.port()), count, |n| way.request(n, &key(n)));
    } else {
        for n in 0..count {
            let mut client = Raw::connect(server.port());
            client.send(&way.request(n, &key(n)));
            if way == Way::Connected {
                client.answer();
            }
            waiting.push(client);
        }
    }
    let (section, name) = match way {
        Way::Connected => ("clients", "connected_clients"),
        Way::List | Way::Blocked => ("clients", "blocked_clients"),
        Way::Lock | Way::Heard => ("lock", "lock_waiters"),
    };
    while field(&mut monitor, section, name) < count as u64 {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(IDLE);
    let now = settled(&mut monitor);
    let each = |now: u64, before: u64| now.saturating_sub(before) as f64 / count as f64;
    (each(now.0, before.0), each(now.1, before.1))
}

/// Sends `count` requests over one connection, each answered in one line.
fn in_batches(connection: &mut Raw, count: usize, request: impl Fn(usize) -> Vec<u8>) {
    for from in (0..count).step_by(BATCH) {
        let until = count.min(from + BATCH);
        connection.send(&(from..until).flat_map(&request).collect::<Vec<_>>());
        connection.skip_lines(until - from);
    }
}
