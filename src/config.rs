//! What an operator sets: `lock.*` in redis.conf and CONFIG, or arguments after `--loadmodule`.

use std::sync::atomic::AtomicI64;

use palisade_core::limits::{MAX_CLOCK_SKEW_DEFAULT_MS, MAX_CLOCK_SKEW_LIMIT_MS, MAX_TTL_DEFAULT_MS, MAX_TTL_LIMIT_MS};

use crate::arguments::parse_integer;
use crate::ffi::{Context, NumericConfig, register_config};

/// `lock.max-ttl`: the longest lease, in milliseconds. Fixed while the server runs, because it says for how long a node
/// that lost its memory must refuse.
static MAX_TTL: NumericConfig = NumericConfig {
    name: c"max-ttl",
    value: AtomicI64::new(MAX_TTL_DEFAULT_MS as i64),
    default: MAX_TTL_DEFAULT_MS as i64,
    min: 1,
    max: MAX_TTL_LIMIT_MS as i64,
    immutable: true,
};

/// `lock.max-clock-skew`: how far the wall clocks of nodes and clients may be apart, in milliseconds. It bounds how
/// far ahead of this node's clock a token from elsewhere may be.
static MAX_CLOCK_SKEW: NumericConfig = NumericConfig {
    name: c"max-clock-skew",
    value: AtomicI64::new(MAX_CLOCK_SKEW_DEFAULT_MS as i64),
    default: MAX_CLOCK_SKEW_DEFAULT_MS as i64,
    min: 0,
    max: MAX_CLOCK_SKEW_LIMIT_MS as i64,
    immutable: false,
};

static ALL: [&NumericConfig; 2] = [&MAX_TTL, &MAX_CLOCK_SKEW];

/// The longest lease, in milliseconds.
pub fn max_ttl_ms() -> u32 {
    MAX_TTL.get() as u32
}

/// How far wall clocks may be apart, in milliseconds.
pub fn max_clock_skew_ms() -> u32 {
    MAX_CLOCK_SKEW.get() as u32
}

/// Makes every parameter known; `arguments` are the module's, pairs of a name and a value.
pub fn register(ctx: Context<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    let given = parse(arguments)?;
    for (config, value) in ALL.iter().zip(given) {
        register_config(ctx, config, value)?;
    }
    Ok(())
}

/// The value given for each parameter of [`ALL`].
fn parse(arguments: &[&[u8]]) -> Result<[Option<i64>; ALL.len()], String> {
    let mut given = [None; ALL.len()];
    for pair in arguments.chunks(2) {
        let name = String::from_utf8_lossy(pair[0]);
        let Some(n) = ALL.iter().position(|config| config.name.to_bytes().eq_ignore_ascii_case(pair[0])) else {
            let known: Vec<_> = ALL.iter().map(|config| config.name.to_string_lossy()).collect();
            return Err(format!("it has no argument `{name}`, only {}, each followed by a number", known.join(", ")));
        };
        let config = ALL[n];
        let value = pair.get(1).and_then(|value| parse_integer(value)).and_then(|value| i64::try_from(value).ok());
        let Some(value) = value.filter(|value| (config.min..=config.max).contains(value)) else {
            return Err(format!("its argument `{name}` needs an integer from {} to {}", config.min, config.max));
        };
        if given[n].replace(value).is_some() {
            return Err(format!("its argument `{name}` was given twice"));
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_pairs_within_bounds() {
        let cases: [(&[&[u8]], Result<[Option<i64>; 2], &str>); 8] = [
            (&[], Ok([None, None])),
            (&[b"max-ttl", b"30000"], Ok([Some(30_000), None])),
            (&[b"MAX-CLOCK-SKEW", b"0", b"max-ttl", b"1"], Ok([Some(1), Some(0)])),
            (&[b"max-ttl", b"0"], Err("from 1 to 86400000")),
            (&[b"max-ttl", b"soon"], Err("from 1 to 86400000")),
            (&[b"max-ttl"], Err("from 1 to 86400000")),
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
