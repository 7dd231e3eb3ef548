//! Workloads for a server: Palisade's commands and their alternatives, each as an operation of one or two commands,
//! pipelined.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Value;

use crate::raw::{Raw, lines, request};
use crate::server::field;

/// The number of commands sent before waiting for the first answer.
pub const PIPELINED: usize = 32;

/// The text in a request that is replaced by a larger token each time it is sent.
const RISING: &str = "1000000000000000";

/// An operation. Its commands contain `{key}` (12 bytes, unique for each operation in a pipeline), `{owner}` and
/// `{other}` (20 bytes), `{token}` (the last answer of `before`), `{rising}` (a token that the node has not issued
/// yet), and, for the hash of a script, its name in [`SCRIPTS`] in braces.
pub struct Workload {
    pub name: &'static str,
    /// A command that the operation needs, and that not every server has.
    needs: Option<&'static str>,
    /// Commands that run once, before the measurement.
    before: &'static [&'static str],
    commands: &'static [(&'static str, Answer)],
    /// True if a client waits for another lock during the measurement.
    beside_waiter: bool,
}

/// The expected answer of a command, so that errors are not measured.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Okay,
    Null,
    Is(i64),
    Token,
    Permit,
    Map,
}

impl Answer {
    fn fits(self, answer: &Value) -> bool {
        match (self, answer) {
            (Self::Okay, Value::Okay) | (Self::Null, Value::Nil) | (Self::Map, Value::Array(_)) => true,
            (Self::Permit, Value::Array(parts)) => parts.len() == 3,
            (Self::Okay, Value::SimpleString(words)) => words == "PONG",
            (Self::Is(number), Value::Int(answer)) => number == *answer,
            (Self::Token, Value::Int(token)) => *token > 0,
            _ => false,
        }
    }
}

/// Two PINGs: the cost of any pair of commands.
pub const PINGS: &str = "PING x 2";
/// The cost of any pair of a module's commands that store and delete a value: those of `bench/floor`, which do nothing
/// else.
pub const FLOOR: &str = "module value stored + deleted";
/// The method of most clients of a Redis lock.
pub const SCRIPTED: &str = "SET NX PX + EVALSHA compare-and-delete";
/// The alternatives to the script on newer servers.
pub const NATIVE: [&str; 2] = ["SET NX PX + DELIFEQ", "SET NX PX + DELEX IFEQ"];
/// The pair of commands that takes and releases a lock of Palisade.
pub const OURS: &str = "ACQUIRE + RELEASE";
/// Palisade's two commands while one client waits for another lock of the node.
pub const OURS_BESIDE_WAITER: &str = "ACQUIRE + RELEASE beside one waiter for another lock";
/// Palisade's two commands as clients of several nodes send them: with a proposal, which the node accepts.
pub const OURS_WITH_FENCE: &str = "ACQUIRE FENCE + RELEASE";
/// An ordinary key, which the server itself writes and deletes.
pub const SET_AND_DEL: &str = "SET + DEL";
/// A write without a fence.
pub const SET: &str = "SET";
/// A write behind a gate.
pub const GATED: &str = "LOCK.GATE COMMAND SET";
/// A write behind the script of docs/modes.md that does what a gate does.
pub const FENCED_BY_SCRIPT: &str = "EVALSHA of a fence, with SET";
/// The extension of a lease.
pub const EXTEND: &str = "EXTEND";
/// One more hold, and its release.
pub const REENTER: &str = "REENTER + RELEASE";

const PAIR: &[(&str, Answer)] =
    &[("LOCK.ACQUIRE {key} {owner} 60000", Answer::Token), ("LOCK.RELEASE {key} {owner}", Answer::Is(0))];
const HOLD: &[&str] = &["LOCK.ACQUIRE {key} {owner} 60000"];
const HOLD_BY_OTHER: &[&str] = &["LOCK.ACQUIRE {key} {other} 60000"];

pub const WORKLOADS: &[Workload] = &[
    plain(PINGS, &[], &[("PING", Answer::Okay), ("PING", Answer::Okay)]),
    Workload {
        needs: Some("FLOOR.STORE"),
        ..plain(
            FLOOR,
            &[],
            &[("FLOOR.STORE {key} {owner} 60000", Answer::Token), ("FLOOR.DELETE {key} {owner}", Answer::Is(0))],
        )
    },
    plain(SET_AND_DEL, &[], &[("SET {key} {owner}", Answer::Okay), ("DEL {key}", Answer::Is(1))]),
    plain(
        SCRIPTED,
        &[],
        &[
            ("SET {key} {owner} NX PX 60000", Answer::Okay),
            ("EVALSHA {compare-and-delete} 1 {key} {owner}", Answer::Is(1)),
        ],
    ),
    Workload {
        needs: Some("DELIFEQ"),
        ..plain(
            NATIVE[0],
            &[],
            &[("SET {key} {owner} NX PX 60000", Answer::Okay), ("DELIFEQ {key} {owner}", Answer::Is(1))],
        )
    },
    Workload {
        needs: Some("DELEX"),
        ..plain(
            NATIVE[1],
            &[],
            &[("SET {key} {owner} NX PX 60000", Answer::Okay), ("DELEX {key} IFEQ {owner}", Answer::Is(1))],
        )
    },
    plain(OURS, &[], PAIR),
    Workload { beside_waiter: true, ..plain(OURS_BESIDE_WAITER, &[], PAIR) },
    plain(
        OURS_WITH_FENCE,
        &[],
        &[
            ("LOCK.ACQUIRE {key} {owner} 60000 FENCE {rising}", Answer::Token),
            ("LOCK.RELEASE {key} {owner}", Answer::Is(0)),
        ],
    ),
    plain(
        "Redisson lock + unlock",
        &[],
        &[
            ("EVALSHA {redisson-lock} 1 {key} 60000 {owner}", Answer::Null),
            ("EVALSHA {redisson-unlock} 2 {key} {key}:channel 60000 {owner}", Answer::Is(1)),
        ],
    ),
    plain(
        "Redisson fenced lock + unlock",
        &[],
        &[
            ("EVALSHA {redisson-fenced-lock} 2 {key} {key}:token 60000 {owner}", Answer::Token),
            ("EVALSHA {redisson-unlock} 2 {key} {key}:channel 60000 {owner}", Answer::Is(1)),
        ],
    ),
    plain("SET NX PX, refused", &["SET {key} {other} NX PX 60000"], &[("SET {key} {owner} NX PX 60000", Answer::Null)]),
    plain("ACQUIRE, refused", HOLD_BY_OTHER, &[("LOCK.ACQUIRE {key} {owner} 60000", Answer::Null)]),
    plain(
        "EVALSHA compare-and-PEXPIRE",
        &["SET {key} {owner} NX PX 60000"],
        &[("EVALSHA {compare-and-extend} 1 {key} {owner} 60000", Answer::Is(1))],
    ),
    plain(EXTEND, HOLD, &[("LOCK.EXTEND {key} {owner} 60000", Answer::Token)]),
    plain(
        "Redisson re-entry + unlock",
        &["EVALSHA {redisson-lock} 1 {key} 60000 {owner}"],
        &[
            ("EVALSHA {redisson-lock} 1 {key} 60000 {owner}", Answer::Null),
            ("EVALSHA {redisson-unlock} 2 {key} {key}:channel 60000 {owner}", Answer::Is(0)),
        ],
    ),
    plain(
        REENTER,
        HOLD,
        &[("LOCK.REENTER {key} {owner}", Answer::Is(2)), ("LOCK.RELEASE {key} {owner}", Answer::Is(1))],
    ),
    plain("CHECK", HOLD, &[("LOCK.CHECK {key} {token}", Answer::Token)]),
    plain(
        "CHECK x 2",
        HOLD,
        &[("LOCK.CHECK {key} {token}", Answer::Token), ("LOCK.CHECK {key} {token}", Answer::Token)],
    ),
    plain("INFO", HOLD, &[("LOCK.INFO {key}", Answer::Map)]),
    plain(SET, &[], &[("SET {key} {owner}", Answer::Okay)]),
    plain(GATED, &[], &[("LOCK.GATE {key}:gate 7 COMMAND SET {key} {owner}", Answer::Okay)]),
    plain(FENCED_BY_SCRIPT, &[], &[("EVALSHA {fenced-write} 2 {key}:gate {key} write 7 {owner}", Answer::Okay)]),
];

/// Workloads of locks with several holders. Each operation is a pair of commands: one adds a holder, the other removes
/// it. `readers-1000` and `readers-100000` are locks with this number of other readers.
pub const TOGETHER: &[Workload] = &[
    plain(OURS, &[], PAIR),
    plain(
        "shared pair, free",
        &[],
        &[("LOCK.ACQUIRE {key} {owner} 60000 SHARED", Answer::Token), ("LOCK.RELEASE {key} {owner}", Answer::Is(0))],
    ),
    plain(
        "shared pair beside 1000 others",
        &[],
        &[
            ("LOCK.ACQUIRE readers-1000 {key}-of-20-b 60000 SHARED", Answer::Token),
            ("LOCK.RELEASE readers-1000 {key}-of-20-b", Answer::Is(0)),
        ],
    ),
    plain(
        "shared pair beside 100000 others",
        &[],
        &[
            ("LOCK.ACQUIRE readers-100000 {key}-of-20-b 60000 SHARED", Answer::Token),
            ("LOCK.RELEASE readers-100000 {key}-of-20-b", Answer::Is(0)),
        ],
    ),
    plain(
        "permit of 8",
        &["LOCK.ACQUIRE {key} {other} 60000 LIMIT 8"],
        &[("LOCK.ACQUIRE {key} {owner} 60000 LIMIT 8", Answer::Permit), ("LOCK.RELEASE {key} {owner}", Answer::Is(0))],
    ),
    plain(
        "Redisson read lock + unlock",
        &["EVALSHA {redisson-read-lock} 2 {key} {key}:timeout 60000 {other}"],
        &[
            ("EVALSHA {redisson-read-lock} 2 {key} {key}:timeout 60000 {owner}", Answer::Null),
            ("EVALSHA {redisson-read-unlock} 3 {key} {key}:channel {key}:timeout 0 {owner}", Answer::Is(0)),
        ],
    ),
    plain(
        "Redisson semaphore",
        &["SET {key} 8"],
        &[
            ("EVALSHA {redisson-semaphore-acquire} 1 {key} 1", Answer::Is(1)),
            ("EVALSHA {redisson-semaphore-release} 2 {key} {key}:channel 1", Answer::Is(8)),
        ],
    ),
    plain(
        "Redisson permit that expires",
        &["SET {key} 8"],
        &[
            (
                "EVALSHA {redisson-permit-acquire} 3 {key} {key}:token {key}:channel 1 99999999999999 {owner} 1",
                Answer::Is(1),
            ),
            ("EVALSHA {redisson-permit-release} 3 {key} {key}:channel {key}:token {owner} 1", Answer::Is(1)),
        ],
    ),
];

const fn plain(
    name: &'static str,
    before: &'static [&'static str],
    commands: &'static [(&'static str, Answer)],
) -> Workload {
    Workload { name, needs: None, before, commands, beside_waiter: false }
}

/// Scripts by name. Those of Redisson are our own text with the commands that its locks run.
const SCRIPTS: &[(&str, &str)] = &[
    (
        "compare-and-delete",
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    ),
    (
        "compare-and-extend",
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end",
    ),
    (
        "fenced-write",
        "local token = tonumber(ARGV[2]) \
         local seen = redis.call('HMGET', KEYS[1], 'X', 'A') \
         local X, A = tonumber(seen[1] or 0), tonumber(seen[2] or 0) \
         if ARGV[1] == 'write' then \
           if token < A then return redis.error_reply('FENCED by a newer grant') end \
           redis.call('HSET', KEYS[1], 'X', ARGV[2], 'A', ARGV[2]) \
           return redis.call('SET', KEYS[2], ARGV[3]) end \
         if token < X then return redis.error_reply('FENCED by a newer writer') end \
         if token > A then redis.call('HSET', KEYS[1], 'A', ARGV[2]) end \
         return redis.call('GET', KEYS[2])",
    ),
    (
        "redisson-lock",
        "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
           redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
         return redis.call('pttl', KEYS[1])",
    ),
    (
        "redisson-fenced-lock",
        "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
           redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) \
           return redis.call('incr', KEYS[2]) end \
         return -redis.call('pttl', KEYS[1])",
    ),
    (
        "redisson-read-lock",
        "local mode = redis.call('hget', KEYS[1], 'mode') \
         if mode == false then \
           redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hset', KEYS[1], ARGV[2], 1) \
           redis.call('set', KEYS[2] .. ':' .. ARGV[2] .. ':1', 1) redis.call('pexpire', KEYS[2] .. ':' .. ARGV[2] .. ':1', ARGV[1]) \
           redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
         if mode == 'read' then \
           local ind = redis.call('hincrby', KEYS[1], ARGV[2], 1) local key = KEYS[2] .. ':' .. ARGV[2] .. ':' .. ind \
           redis.call('set', key, 1) redis.call('pexpire', key, ARGV[1]) \
           redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1])) return nil end \
         return redis.call('pttl', KEYS[1])",
    ),
    (
        "redisson-read-unlock",
        "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end \
         local counter = redis.call('hincrby', KEYS[1], ARGV[2], -1) \
         if counter == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end \
         redis.call('del', KEYS[3] .. ':' .. ARGV[2] .. ':' .. (counter + 1)) \
         if redis.call('hlen', KEYS[1]) > 1 then \
           local longest = -3 \
           for n, field in ipairs(redis.call('hkeys', KEYS[1])) do \
             local holds = tonumber(redis.call('hget', KEYS[1], field)) \
             if type(holds) == 'number' then for i = holds, 1, -1 do \
               longest = math.max(redis.call('pttl', KEYS[3] .. ':' .. field .. ':' .. i), longest) end end end \
           if longest > 0 then redis.call('pexpire', KEYS[1], longest) return 0 end end \
         redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], ARGV[1]) return 1",
    ),
    ("redisson-write-unlock", "redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '0') return 1"),
    (
        "redisson-semaphore-acquire",
        "local value = redis.call('get', KEYS[1]) \
         if value ~= false and tonumber(value) >= tonumber(ARGV[1]) then redis.call('decrby', KEYS[1], ARGV[1]) return 1 end \
         return 0",
    ),
    (
        "redisson-semaphore-release",
        "local value = redis.call('incrby', KEYS[1], ARGV[1]) redis.call('publish', KEYS[2], value) return value",
    ),
    (
        "redisson-permit-acquire",
        "local expired = redis.call('zrangebyscore', KEYS[2], 0, ARGV[4], 'limit', 0, ARGV[1]) \
         if #expired > 0 then redis.call('zrem', KEYS[2], unpack(expired)) redis.call('incrby', KEYS[1], #expired) end \
         local value = redis.call('get', KEYS[1]) \
         if value ~= false and tonumber(value) >= tonumber(ARGV[1]) then \
           redis.call('decrby', KEYS[1], ARGV[1]) redis.call('zadd', KEYS[2], ARGV[2], ARGV[3]) return 1 end \
         return 0",
    ),
    (
        "redisson-permit-release",
        "local removed = redis.call('zrem', KEYS[3], ARGV[1]) if removed ~= 1 then return 0 end \
         local value = redis.call('incrby', KEYS[1], ARGV[2]) redis.call('publish', KEYS[2], value) return 1",
    ),
    (
        "redisson-unlock",
        "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end \
         if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end \
         redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '0') return 1",
    ),
];

/// Returns the text of a script.
pub fn script(name: &str) -> &'static str {
    let script = SCRIPTS.iter().find(|(of, _)| *of == name);
    script.unwrap_or_else(|| panic!("there is no script {name}")).1
}

impl Workload {
    /// Returns the workloads whose commands the server supports.
    pub fn all_on(connection: &mut Raw) -> Vec<&'static Self> {
        let mut has = |command: &str| match connection.ask(&format!("COMMAND INFO {command}")) {
            Value::Array(known) => !matches!(known[..], [Value::Nil]),
            _ => false,
        };
        WORKLOADS.iter().filter(|workload| workload.needs.is_none_or(&mut has)).collect()
    }

    /// Prepares `connection`, the `n`th, and runs one pipeline to check that each command has the expected answer.
    pub fn prepare(&self, connection: &mut Raw, n: usize) -> Pipeline {
        let scripts: Vec<(String, String)> = SCRIPTS
            .iter()
            .map(|(name, text)| {
                connection.send(&request(&["SCRIPT", "LOAD", text]));
                let Value::BulkString(hash) = connection.answer() else { panic!("{name} is no script") };
                (format!("{{{name}}}"), String::from_utf8(hash).unwrap())
            })
            .collect();
        let mut pipeline = Pipeline {
            bytes: Vec::new(),
            operations: PIPELINED / self.commands.len(),
            rising: vec![],
            lines: 0,
            keys: String::new(),
            // One connection has the waiter for all.
            waiter: (self.beside_waiter && n == 0).then(|| Waiter::begin(connection)),
        };
        for operation in 0..pipeline.operations {
            let key = format!("lock{n:04}{operation:04}");
            let mut token = String::new();
            let fill = |line: &str, token: &str| {
                let filled = line.replace("{key}", &key).replace("{token}", token).replace("{rising}", RISING);
                let filled =
                    filled.replace("{owner}", "owner-of-20-bytes-xx").replace("{other}", "other-of-20-bytes-xx");
                scripts.iter().fold(filled, |line, (name, hash)| line.replace(name, hash))
            };
            for line in self.before {
                if let Value::Int(answer) = connection.ask(&fill(line, &token)) {
                    token = answer.to_string();
                }
            }
            for (line, _) in self.commands {
                pipeline.bytes.extend(request(&fill(line, &token).split(' ').collect::<Vec<_>>()));
            }
            pipeline.keys += &format!(" {key} {key}:token {key}:gate");
        }
        let is_rising = |at: &usize| pipeline.bytes[*at..].starts_with(RISING.as_bytes());
        pipeline.rising = (0..pipeline.bytes.len()).filter(is_rising).collect();
        pipeline.send(connection);
        for (line, expected) in self.commands.iter().cycle().take(pipeline.operations * self.commands.len()) {
            let answer = connection.answer();
            assert!(expected.fits(&answer), "{}: {line} is answered {answer:?}, not {expected:?}", self.name);
            pipeline.lines += lines(&answer);
        }
        pipeline
    }
}

/// A workload's requests for one connection.
pub struct Pipeline {
    bytes: Vec<u8>,
    /// The number of operations.
    pub operations: usize,
    /// The offsets in `bytes` of tokens that rise: a larger one is written there each time the requests are sent.
    rising: Vec<usize>,
    lines: usize,
    keys: String,
    waiter: Option<Waiter>,
}

impl Pipeline {
    /// Sends the requests.
    pub fn send(&mut self, connection: &mut Raw) {
        // A node's tokens follow its clock, so the present time is a larger token.
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        for place in &self.rising {
            self.bytes[*place..][..RISING.len()].copy_from_slice(clock().to_string().as_bytes());
        }
        connection.send(&self.bytes);
    }

    /// Waits for all answers.
    pub fn finish(&self, connection: &mut Raw) {
        connection.skip_lines(self.lines);
    }

    /// Deletes everything that the workload left behind.
    pub fn clean(self, connection: &mut Raw) {
        connection.ask(&format!("DEL{}", self.keys));
        if let Some(waiter) = self.waiter {
            waiter.end(connection);
        }
    }
}

/// A client that waits for a lock that no workload uses, so that the server has a waiter while it is measured.
struct Waiter(Raw);

impl Waiter {
    /// Takes the lock, makes another client wait for it, and returns that client once the server counts it as a waiter.
    fn begin(connection: &mut Raw) -> Self {
        let held = connection.ask("LOCK.ACQUIRE waited-for holder 60000");
        assert!(Answer::Token.fits(&held), "the lock to be waited for is not free: {held:?}");
        let mut waiter = connection.another();
        waiter.send(&request(&["LOCK.ACQUIRE", "waited-for", "waiter", "60000", "WAIT", "60000"]));
        while field(connection, "lock", "lock_waiters") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self(waiter)
    }

    /// Ends the wait.
    fn end(mut self, connection: &mut Raw) {
        connection.ask("LOCK.RELEASE waited-for waiter");
        assert_eq!(self.0.answer(), Value::Nil, "it waited all the time");
        connection.ask("LOCK.RELEASE waited-for holder");
    }
}
