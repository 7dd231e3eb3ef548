//! An operator's settings: `lock.*` in redis.conf and CONFIG, or arguments after `--loadmodule`.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicI64;

use palisade_core::grammar::Bounds;
use palisade_core::limits::{
    HANDOFF_WINDOW_DEFAULT_MS, HANDOFF_WINDOW_LIMIT_MS, LOG_LEN_DEFAULT, LOG_LEN_LIMIT, LOG_SLOWER_THAN_DEFAULT_MS,
    LOG_SLOWER_THAN_LIMIT_MS, MAX_CLOCK_SKEW_DEFAULT_MS, MAX_CLOCK_SKEW_LIMIT_MS, MAX_TTL_DEFAULT_MS, MAX_TTL_LIMIT_MS,
    MAX_WAITERS_DEFAULT, MAX_WAITERS_LIMIT, MAX_WAITING_BYTES_DEFAULT, MAX_WAITING_BYTES_LIMIT,
};
use palisade_core::{GuardPolicy, KeyPrefixes, parse_integer};

use crate::ffi::{
    ChoiceConfig, CommandRules, Context, Inner, NumericConfig, TextConfig, register_choice, register_config,
    register_text,
};

/// `lock.max-ttl`: the longest lease, in milliseconds. It cannot be changed while the server runs, because a node that
/// lost its memory must refuse for this long.
static MAX_TTL: NumericConfig =
    NumericConfig::new(c"max-ttl", MAX_TTL_DEFAULT_MS as i64, (1, MAX_TTL_LIMIT_MS as i64)).immutable();

/// `lock.max-clock-skew`: the largest difference between the wall clocks of nodes and clients, in milliseconds. A token
/// from elsewhere may be ahead of this node's clock by as much.
static MAX_CLOCK_SKEW: NumericConfig =
    NumericConfig::new(c"max-clock-skew", MAX_CLOCK_SKEW_DEFAULT_MS as i64, (0, MAX_CLOCK_SKEW_LIMIT_MS as i64));

/// `lock.max-waiters`: the most requests that wait on this node at a time.
static MAX_WAITERS: NumericConfig =
    NumericConfig::new(c"max-waiters", MAX_WAITERS_DEFAULT as i64, (0, MAX_WAITERS_LIMIT as i64));

/// `lock.max-waiting-bytes`: the most bytes of waiting requests, watchers and answers that listeners have not received.
static MAX_WAITING_BYTES: NumericConfig =
    NumericConfig::new(c"max-waiting-bytes", MAX_WAITING_BYTES_DEFAULT as i64, (0, MAX_WAITING_BYTES_LIMIT as i64));

/// `lock.handoff-window`: how long a free lock is reserved for the owner whose turn it is, in milliseconds.
static HANDOFF_WINDOW: NumericConfig =
    NumericConfig::new(c"handoff-window", HANDOFF_WINDOW_DEFAULT_MS as i64, (1, HANDOFF_WINDOW_LIMIT_MS as i64));

/// `lock.log-max-len`: the most entries that LOCK.LOG keeps.
static LOG_MAX_LEN: NumericConfig =
    NumericConfig::new(c"log-max-len", LOG_LEN_DEFAULT as i64, (0, LOG_LEN_LIMIT as i64));

/// `lock.log-slower-than`: the least time waited or held with which an entry is logged, in milliseconds; -1 logs
/// nothing.
static LOG_SLOWER_THAN: NumericConfig =
    NumericConfig::new(c"log-slower-than", LOG_SLOWER_THAN_DEFAULT_MS as i64, (-1, LOG_SLOWER_THAN_LIMIT_MS as i64));

static NUMBERS: [&NumericConfig; 7] =
    [&MAX_TTL, &MAX_CLOCK_SKEW, &MAX_WAITERS, &MAX_WAITING_BYTES, &HANDOFF_WINDOW, &LOG_MAX_LEN, &LOG_SLOWER_THAN];

/// `lock.restart-guard`: decides after which starts the node is guarded.
static RESTART_GUARD: ChoiceConfig =
    ChoiceConfig { name: c"restart-guard", words: &[c"auto", c"always", c"never"], value: AtomicI64::new(0) };

/// `lock.events`: decides whether events of grants are published.
static EVENTS: ChoiceConfig = ChoiceConfig { name: c"events", words: &[c"no", c"yes"], value: AtomicI64::new(0) };

static CHOICES: [&ChoiceConfig; 2] = [&RESTART_GUARD, &EVENTS];

/// `lock.state-file`: the path of the file with the node's memory across its incarnations; empty for none.
static STATE_FILE: TextConfig = TextConfig {
    name: c"state-file",
    value: Mutex::new(String::new()),
    read: |path| Ok(String::from_utf8_lossy(path).into_owned()),
    immutable: true,
};

/// `lock.metrics-prefixes`: the key prefixes that have figures of their own in INFO.
static METRICS_PREFIXES: TextConfig = TextConfig {
    name: c"metrics-prefixes",
    value: Mutex::new(String::new()),
    read: |text| KeyPrefixes::parse(text).map(|prefixes| prefixes.to_text()).ok_or(PREFIXES_NEEDED),
    immutable: false,
};

/// `lock.gate-commands`: the commands that LOCK.GATE may run.
static GATE_COMMANDS: TextConfig = TextConfig {
    name: c"gate-commands",
    value: Mutex::new(String::new()),
    read: |rules| match GATE_RULES.set(rules) {
        true => Ok(String::from_utf8_lossy(rules).into_owned()),
        false => Err(RULES_NEEDED),
    },
    immutable: false,
};

/// The commands that LOCK.GATE may run, as ACL rules that the server itself evaluates.
static GATE_RULES: CommandRules = CommandRules::new();

/// The default of `lock.gate-commands`: commands that read or write data, and return at once.
const GATE_COMMANDS_DEFAULT: &str = "+@read +@write -@blocking -@scripting -@admin -@dangerous";

/// The error for invalid values of `lock.gate-commands`.
const RULES_NEEDED: &str = "needs ACL rules about commands, as +@write -@dangerous +sort, with spaces between";

/// The error for invalid values of `lock.metrics-prefixes`.
const PREFIXES_NEEDED: &str = "needs prefixes of keys, at most 32 of 1 to 128 bytes, each once, with spaces between; %20 stands for a \
                               space in one, %25 for a %";

/// Returns whether LOCK.GATE may run the command `inner`.
pub fn permits(inner: &Inner<'_>) -> bool {
    GATE_RULES.permit(inner)
}

/// Returns whether events of grants are published.
pub fn events() -> bool {
    EVENTS.get() == 1
}

/// Returns after which starts the node is guarded.
pub fn restart_guard() -> GuardPolicy {
    [GuardPolicy::Auto, GuardPolicy::Always, GuardPolicy::Never][RESTART_GUARD.get()]
}

/// Returns the absolute path of the state file, or `None` if there is none.
pub fn state_file() -> Option<PathBuf> {
    let path = STATE_FILE.get();
    (!path.is_empty()).then(|| std::path::absolute(&path).unwrap_or_else(|_| path.into()))
}

/// Returns the key prefixes that have figures of their own.
pub fn metrics_prefixes() -> KeyPrefixes {
    KeyPrefixes::parse(METRICS_PREFIXES.get().as_bytes()).unwrap_or_default()
}

/// Returns the bounds of arguments that the operator has set.
pub fn bounds() -> Bounds {
    Bounds { max_ttl_ms: max_ttl_ms() }
}

/// Returns the longest lease that a client may ask for, in milliseconds.
pub fn max_ttl_ms() -> u32 {
    MAX_TTL.get() as u32
}

/// Returns by how much the wall clocks of nodes and clients may differ, in milliseconds.
pub fn max_clock_skew_ms() -> u32 {
    MAX_CLOCK_SKEW.get() as u32
}

/// Returns the most requests that may wait on this node at a time.
pub fn max_waiters() -> u32 {
    MAX_WAITERS.get() as u32
}

/// Returns the most bytes that waiting requests, watchers and unreceived answers may take.
pub fn max_waiting_bytes() -> u64 {
    MAX_WAITING_BYTES.get() as u64
}

/// Returns how long a free lock is reserved for the owner whose turn it is, in milliseconds.
pub fn handoff_window_ms() -> u32 {
    HANDOFF_WINDOW.get() as u32
}

/// Returns the most entries that the log keeps.
pub fn log_max_len() -> u32 {
    LOG_MAX_LEN.get() as u32
}

/// Returns the time held or waited from which on an entry is logged, in milliseconds; `None` if nothing is logged.
pub fn log_slower_than_ms() -> Option<u32> {
    u32::try_from(LOG_SLOWER_THAN.get()).ok()
}

/// Registers every parameter with the server. `arguments` are those of the module: names and values in turn.
pub fn register(ctx: Context<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    let given = parse(arguments)?;
    for (config, value) in NUMBERS.iter().zip(given.numbers) {
        register_config(ctx, config, value)?;
    }
    for (choice, word) in CHOICES.iter().zip(given.choices) {
        register_choice(ctx, choice, word.unwrap_or(0))?;
    }
    register_text(ctx, &STATE_FILE, &given.state_file.unwrap_or_else(|| default_state_file(ctx)))?;
    register_text(ctx, &METRICS_PREFIXES, &given.metrics_prefixes.unwrap_or_default())?;
    register_text(ctx, &GATE_COMMANDS, given.gate_commands.as_deref().unwrap_or(GATE_COMMANDS_DEFAULT))
}

/// Returns the default name of the state file. It contains the port, the TLS port or the socket, so that servers in one
/// folder have different files.
fn default_state_file(ctx: Context<'_>) -> String {
    let port = |name| ctx.parameter(name).filter(|port| port != "0");
    let name = port(c"port").or_else(|| port(c"tls-port")).or_else(|| {
        let socket = ctx.parameter(c"unixsocket")?;
        Some(Path::new(&socket).file_name()?.to_string_lossy().into_owned())
    });
    format!("lock-node-{}.state", name.unwrap_or_default())
}

/// The values that arguments of the module have set.
#[derive(Debug, Default, PartialEq)]
struct Given {
    numbers: [Option<i64>; NUMBERS.len()],
    choices: [Option<usize>; CHOICES.len()],
    state_file: Option<String>,
    metrics_prefixes: Option<String>,
    gate_commands: Option<String>,
}

fn parse(arguments: &[&[u8]]) -> Result<Given, String> {
    let mut given = Given::default();
    for pair in arguments.chunks(2) {
        let name = String::from_utf8_lossy(pair[0]).to_lowercase();
        let value = pair.get(1).copied();
        let is = |config: &CStr| config.to_bytes() == name.as_bytes();
        let again = if let Some(n) = NUMBERS.iter().position(|config| is(config.name)) {
            let config = NUMBERS[n];
            let number = value.and_then(signed);
            let Some(number) = number.filter(|number| (config.min..=config.max).contains(number)) else {
                return Err(format!("its argument `{name}` needs an integer from {} to {}", config.min, config.max));
            };
            given.numbers[n].replace(number).is_some()
        } else if let Some(n) = CHOICES.iter().position(|choice| is(choice.name)) {
            let words = CHOICES[n].words;
            let word = |word: &&CStr| value.is_some_and(|value| word.to_bytes().eq_ignore_ascii_case(value));
            let Some(word) = words.iter().position(word) else {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                return Err(format!("its argument `{name}` needs one of {}", words.join(", ")));
            };
            given.choices[n].replace(word).is_some()
        } else if is(STATE_FILE.name) {
            let Some(path) = value else { return Err(format!("its argument `{name}` needs a path, or \"\" for none")) };
            given.state_file.replace(String::from_utf8_lossy(path).into_owned()).is_some()
        } else if is(METRICS_PREFIXES.name) {
            let text = value.map_or(Err(PREFIXES_NEEDED), METRICS_PREFIXES.read);
            given.metrics_prefixes.replace(text.map_err(|why| format!("its argument `{name}` {why}"))?).is_some()
        } else if is(GATE_COMMANDS.name) {
            let rules = value.map_or(Err(RULES_NEEDED), GATE_COMMANDS.read);
            given.gate_commands.replace(rules.map_err(|why| format!("its argument `{name}` {why}"))?).is_some()
        } else {
            return Err(format!(
                "it has no argument `{name}`, only max-ttl, max-clock-skew, max-waiters, max-waiting-bytes, handoff-window, \
                 log-max-len, log-slower-than, restart-guard, events, state-file, metrics-prefixes and gate-commands, each followed by a value"
            ));
        };
        if again {
            return Err(format!("its argument `{name}` was given twice"));
        }
    }
    Ok(given)
}

/// Parses an integer, which may be negative.
fn signed(bytes: &[u8]) -> Option<i64> {
    let (digits, sign) = bytes.strip_prefix(b"-").map_or((bytes, 1), |digits| (digits, -1));
    parse_integer(digits).and_then(|value| i64::try_from(value).ok()).map(|value| sign * value)
}

#[cfg(test)]
mod tests {
    use palisade_core::limits::{PREFIX_BYTES_MAX, PREFIXES_MAX};

    use super::*;

    #[test]
    fn arguments_are_pairs_within_bounds() {
        for limit in [PREFIXES_MAX, PREFIX_BYTES_MAX] {
            assert!(PREFIXES_NEEDED.contains(&limit.to_string()));
        }
        let numbers = |one, other| Given { numbers: [one, other, None, None, None, None, None], ..Given::default() };
        let off = Given { numbers: [None, None, None, None, None, None, Some(-1)], ..Given::default() };
        let cases: [(&[&[u8]], Result<Given, &str>); 20] = [
            (&[], Ok(Given::default())),
            (&[b"max-ttl", b"30000"], Ok(numbers(Some(30_000), None))),
            (&[b"MAX-CLOCK-SKEW", b"0", b"max-ttl", b"1"], Ok(numbers(Some(1), Some(0)))),
            (
                &[b"restart-guard", b"Never", b"state-file", b""],
                Ok(Given { choices: [Some(2), None], state_file: Some(String::new()), ..Given::default() }),
            ),
            (&[b"log-slower-than", b"-1"], Ok(off)),
            (&[b"log-slower-than", b"-2"], Err("from -1 to 86400000")),
            (&[b"max-ttl", b"0"], Err("from 1 to 86400000")),
            (&[b"max-ttl", b"soon"], Err("from 1 to 86400000")),
            (&[b"max-ttl"], Err("from 1 to 86400000")),
            (&[b"restart-guard", b"sometimes"], Err("one of auto, always, never")),
            (&[b"events", b"YES"], Ok(Given { choices: [None, Some(1)], ..Given::default() })),
            (&[b"events", b"on"], Err("one of no, yes")),
            (&[b"restart-guard"], Err("one of auto, always, never")),
            (&[b"state-file"], Err("needs a path")),
            (
                &[b"metrics-prefixes", b" b:  a\0 "],
                Ok(Given { metrics_prefixes: Some("a%00 b:".to_owned()), ..Given::default() }),
            ),
            (&[b"metrics-prefixes", b"a a"], Err("needs prefixes of keys, at most 32 of 1 to 128 bytes, each once")),
            (&[b"metrics-prefixes", b"50%"], Err("%25 for a %")),
            (&[b"metrics-prefixes"], Err("needs prefixes of keys")),
            (&[b"max-tll", b"1"], Err("no argument `max-tll`, only max-ttl, max-clock-skew")),
            (&[b"max-ttl", b"1", b"max-ttl", b"1"], Err("twice")),
        ];
        for (arguments, expected) in cases {
            match (parse(arguments), expected) {
                (Ok(given), Ok(expected)) => assert_eq!(given, expected),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (given, _) => panic!("{arguments:?}: {given:?}"),
            }
        }
    }
}
