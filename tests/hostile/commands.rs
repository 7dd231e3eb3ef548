//! Random commands of a hostile client: every command of the module and every command that affects its keys, with
//! arguments that are valid, nearly valid, or arbitrary.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};

use crate::restore::signed;

/// A command and its arguments.
pub type Command = Vec<Vec<u8>>;

const KEYS: [&[u8]; 7] = [b"k1", b"k2", b"k3", b"k4", b"k5", b"", b"\0\r\n\xFF"];
const OWNERS: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"\0", b"%s%n"];
const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "2",
    "3",
    "20",
    "100",
    "1000",
    "60000",
    "60001",
    "-1",
    "+1",
    "01",
    "1.5",
    "1e3",
    "",
    "4503599627370496",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "18446744073709551616",
];
const OPTIONS: [&str; 20] = [
    "WAIT",
    "FENCE",
    "RETRY",
    "NOTE",
    "LEVEL",
    "TOKEN",
    "TTL",
    "TICKET",
    "WAITERS",
    "LIFT",
    "ARM",
    "wait",
    "\0",
    "SHARED",
    "LIMIT",
    "PERMIT",
    "HOLDERS",
    "EXCLUSIVE",
    "KEEP",
    "HELD",
];

/// The options without a value.
const ALONE: [&str; 4] = ["RETRY", "SHARED", "EXCLUSIVE", "HELD"];

/// The longest argument, in bytes: above every limit of the module.
const LONGEST: usize = 2_000;

/// A source of commands, which reuses values from earlier answers.
pub struct Source {
    random: StdRng,
    /// The payload that DUMP returned last.
    pub payload: Vec<u8>,
    /// The last token that was granted.
    pub token: i64,
    /// The id of the client that connected last.
    pub client: i64,
}

impl Source {
    pub fn new(random: StdRng) -> Self {
        Self { random, payload: vec![], token: 1, client: 1 }
    }

    pub fn up_to(&mut self, most: usize) -> usize {
        self.random.random_range(0..=most)
    }

    /// Returns some commands to send at once, sometimes as a transaction.
    pub fn batch(&mut self, length: usize) -> Vec<Command> {
        let mut batch: Vec<_> = (0..length).map(|_| self.command()).collect();
        if self.up_to(9) == 0 {
            let from = self.up_to(length - 1);
            batch.insert(from, words("MULTI"));
            let to = from + 1 + self.up_to(length - from);
            batch.insert(to, words(if self.up_to(4) == 0 { "DISCARD" } else { "EXEC" }));
        }
        batch
    }

    fn command(&mut self) -> Command {
        match self.up_to(999) {
            0..650 => self.of_the_module(),
            650..700 => self.garbage(),
            700..960 => self.on_keys(),
            960..990 => self.script(),
            _ => self.by_an_operator(),
        }
    }

    fn of_the_module(&mut self) -> Command {
        let (key, owner, number) = (self.key(), self.owner(), self.number());
        let (name, arguments, options): (_, Vec<Vec<u8>>, &[&str]) = match self.up_to(24) {
            0..4 => ("ACQUIRE", vec![key, owner, number], &["WAIT", "FENCE", "RETRY", "NOTE"]),
            4..6 => ("ACQUIRE", vec![key, owner, number], &["SHARED", "WAIT", "FENCE", "RETRY", "NOTE"]),
            6..8 => ("ACQUIRE", vec![key, owner, number], &["LIMIT", "PERMIT", "WAIT", "FENCE", "RETRY"]),
            8..11 => ("RELEASE", vec![key, owner], &["LEVEL", "TOKEN"]),
            11 => ("EXTEND", vec![key, owner, number], &["TOKEN"]),
            12 => ("REENTER", vec![key, owner], &["LEVEL", "TTL"]),
            13 => ("FENCE", vec![key, owner, number], &[]),
            14 => ("CHECK", vec![key, number], &[]),
            15 => ("WAIT", vec![key, owner, number], &["TICKET", "SHARED", "LIMIT", "PERMIT"]),
            16 => ("INFO", vec![key], &["WAITERS", "HOLDERS"]),
            17 => ("BREAK", vec![key], &["TOKEN"]),
            19 => {
                let mode = if self.up_to(1) == 0 { "SHARED" } else { "EXCLUSIVE" };
                ("CONVERT", vec![key, owner, mode.into()], &["TOKEN"])
            }
            18 => ("EFFECT", vec![key, self.bytes()], &[]),
            // A gate seldom gets the key of a lock, because only commands such as DEL free that key again.
            23 | 24 => {
                let gate = if self.up_to(4) > 0 { b"gate".to_vec() } else { key };
                ("GATE", vec![gate, number], &["SHARED", "PERMIT", "KEEP", "HELD"])
            }
            20 | 21 => ("HEAR", vec![self.listener(), number], &[]),
            _ => ("NODE", vec![], &[]),
        };
        let mut command = vec![format!("LOCK.{name}").into_bytes()];
        command.extend(arguments);
        if name == "WAIT" && self.up_to(1) == 0 {
            command.extend([b"HEARD".to_vec(), self.listener()]);
        }
        while self.up_to(3) == 0 {
            let any = self.up_to(9) == 0 || options.is_empty();
            let options = if any { &OPTIONS[..] } else { options };
            let option = options[self.up_to(options.len() - 1)];
            command.push(option.into());
            if !ALONE.contains(&option) && (!any || self.up_to(4) > 0) {
                command.push(if self.up_to(9) == 0 { self.bytes() } else { self.number() });
            }
        }
        if name == "GATE" && self.up_to(1) == 0 {
            command.push(b"COMMAND".to_vec());
            command.extend(self.command());
        }
        command
    }

    /// Returns the name of a listener, one of a few, so that some of them exist.
    fn listener(&mut self) -> Vec<u8> {
        if self.up_to(19) == 0 { self.bytes() } else { vec![b'a' + self.up_to(3) as u8; 16] }
    }

    /// Returns a command of the module followed by arbitrary words.
    fn garbage(&mut self) -> Command {
        let names = ["ACQUIRE", "RELEASE", "EXTEND", "REENTER", "FENCE", "CHECK", "WAIT", "INFO", "BREAK", "NODE"];
        let more = ["GATE", "GUARD", "HELP", "EFFECT", "CEILING", "CONVERT", "HEAR", "MEMBERS", "SETMEMBERS"];
        let names = [&names[..], &more].concat();
        let name = format!("LOCK.{}", names[self.up_to(names.len() - 1)]);
        let more = self.up_to(8);
        [name.into_bytes()].into_iter().chain((0..more).map(|_| self.bytes())).collect()
    }

    fn on_keys(&mut self) -> Command {
        let (key, other, number) = (self.key(), self.key(), self.number());
        let command = |name: &str, arguments: &[&[u8]]| {
            words(name).into_iter().chain(arguments.iter().map(|argument| argument.to_vec())).collect()
        };
        match self.up_to(29) {
            0 => command("DEL", &[&key, &other]),
            1 => command("UNLINK", &[&key]),
            2 => command("RENAME", &[&key, &other]),
            3 => command("RENAMENX", &[&key, &other]),
            4 => command("COPY", &[&key, &other, b"REPLACE"]),
            5 => command("MOVE", &[&key, b"1"]),
            6 => words("SWAPDB 0 1"),
            7 => command("PEXPIRE", &[&key, &number]),
            8 => command("EXPIRE", &[&key, &number]),
            9 => command("PERSIST", &[&key]),
            10..14 => command("DUMP", &[&key]),
            14..18 => {
                let payload = self.payload();
                command("RESTORE", &[&key, b"0", &payload, b"REPLACE"])
            }
            18 => command("OBJECT ENCODING", &[&key]),
            19 => command("OBJECT FREQ", &[&key]),
            20 => command("MEMORY USAGE", &[&key]),
            21 => command("TYPE", &[&key]),
            // This is rare, because such a key stays until it is deleted.
            22 if self.up_to(3) == 0 => command("SET", &[&key, &other]),
            22..24 => command("DEL", &[&key]),
            24 => command("SCAN", &[&number]),
            25 => command("WATCH", &[&key]),
            26 => words(["SELECT 0", "SELECT 1", "SELECT 0"][self.up_to(2)]),
            27 => command("DEBUG OBJECT", &[&key]),
            28 => command("SORT", &[&key]),
            _ => command("PTTL", &[&key]),
        }
    }

    /// Returns a script with random effects but a constant text, because the server keeps every text.
    fn script(&mut self) -> Command {
        let inner = if self.up_to(1) == 0 { self.of_the_module() } else { self.on_keys() };
        let script = "local first = redis.pcall(unpack(ARGV)) redis.pcall(unpack(ARGV)) return {type(first)}";
        [words("EVAL"), vec![script.into(), b"0".to_vec()], inner].concat()
    }

    fn by_an_operator(&mut self) -> Command {
        let (number, client) = (self.number(), self.client - self.up_to(20) as i64);
        let set = |name: &str| [words("CONFIG SET"), vec![name.into(), number.clone()]].concat();
        // Commands that guard the node are rare, and lifting the guard is frequent: otherwise nothing would be granted
        // most of the time.
        match self.up_to(999) {
            0..300 => words("LOCK.GUARD LIFT"),
            300..310 => [words("LOCK.GUARD ARM"), vec![number]].concat(),
            310..320 => words(["FLUSHALL ASYNC", "FLUSHALL SYNC", "FLUSHDB"][self.up_to(2)]),
            // Always with ERROR: see `hurry` in hostile.rs.
            320..500 => words(&format!("CLIENT UNBLOCK {client} ERROR")),
            500..600 => words(&format!("CLIENT KILL ID {client}")),
            600..650 => words(&format!("CLIENT LIST ID {client}")),
            650..690 => set("lock.max-clock-skew"),
            690..730 => set("lock.max-waiters"),
            730..770 => set("lock.handoff-window"),
            770..790 => set("lock.max-ttl"),
            790..810 => words(["CONFIG SET lock.restart-guard auto", "CONFIG SET lock.restart-guard x"][self.up_to(1)]),
            810..820 => words("CONFIG SET maxmemory 1"),
            820..830 => words("CONFIG SET maxmemory-policy allkeys-random"),
            830..840 => words("CONFIG SET maxmemory-policy noeviction"),
            840..850 => words("DEBUG RELOAD"),
            850..860 => words("BGREWRITEAOF"),
            860..870 => words("INFO everything"),
            870..880 => words("COMMAND DOCS LOCK.ACQUIRE LOCK.WAIT"),
            880..890 => words("CONFIG SET notify-keyspace-events KEA"),
            890..900 => words("MEMORY DOCTOR"),
            _ => words("CONFIG SET maxmemory 0"),
        }
    }

    /// Returns the last payload with some bytes changed. It is sometimes truncated, and mostly has a valid checksum.
    fn payload(&mut self) -> Vec<u8> {
        let mut payload = self.payload.clone();
        if payload.len() < 20 {
            return self.bytes();
        }
        for _ in 0..self.up_to(3) {
            let at = self.up_to(payload.len() - 1);
            payload[at] = self.random.random();
        }
        if self.up_to(9) == 0 {
            payload.truncate(self.up_to(payload.len() - 1));
        }
        if payload.len() > 8 && self.up_to(9) > 0 { signed(payload) } else { payload }
    }

    fn key(&mut self) -> Vec<u8> {
        // Most commands are for a few keys, so that owners compete.
        let most = if self.up_to(9) == 0 { KEYS.len() - 1 } else { 3 };
        KEYS[self.up_to(most)].to_vec()
    }

    fn owner(&mut self) -> Vec<u8> {
        match self.up_to(29) {
            0 => self.bytes(),
            1 => vec![b'o'; 250 + self.up_to(10)],
            _ => OWNERS[self.up_to(OWNERS.len() - 1)].to_vec(),
        }
    }

    fn number(&mut self) -> Vec<u8> {
        match self.up_to(19) {
            0 => NUMBERS[self.up_to(NUMBERS.len() - 1)].into(),
            1 => self.bytes(),
            2..5 => (self.token + self.up_to(4) as i64 - 2).to_string().into(),
            _ => self.up_to(80).to_string().into(),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.up_to(9) {
            0 => self.up_to(LONGEST),
            _ => self.up_to(20),
        };
        let mut bytes = vec![0; length];
        self.random.fill_bytes(&mut bytes);
        bytes
    }
}

fn words(line: &str) -> Command {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}
