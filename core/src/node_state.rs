//! What a node keeps in its state file, over all its lives.
//!
//! A text of lines, a name and a value each, the last one a checksum of all before it:
//!
//! ```text
//! palisade-node 1
//! id 7f3a…                      random, made once, 32 hexadecimal digits
//! incarnation 12                one more at every start
//! ceiling 1795234601882918      no token above it was issued
//! owed-max-ttl-ms 60000         the longest lease that may still run
//! boot 9c1e…                    the boot of the machine that times below belong to
//! guard restart 123 456 62600   cause, since, until (boot clock, µs), milliseconds left when written; or: guard none
//! unproved-before 123           locks granted before are of a life that was not remembered (boot clock, µs); 0: none are
//! aof-life yes                  everything granted in this life is in the AOF
//! end 3 9a… 77…                 locks at a clean end: count, digest, digest for another boot; or: end none
//! check 0f…                     first 16 hexadecimal digits of the SHA-256 of the lines above
//! ```

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::guard::{Armed, Cause};
use crate::record::BootId;
use crate::{BootTime, LocksDigest};

/// The version this code writes, and the only one it reads.
const VERSION: u32 = 1;

/// A guard as it was when the file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedGuard {
    /// What it was.
    pub armed: Armed,
    /// Milliseconds that were left.
    pub left_ms: u64,
}

/// What a node keeps over its lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// Random, made once: tells nodes apart whatever their addresses are.
    pub id: u128,
    /// How often it was started.
    pub incarnation: u64,
    /// No token above it was issued.
    pub ceiling: u64,
    /// The longest lease that may still run, in milliseconds.
    pub owed_ms: u32,
    /// The boot that times here belong to.
    pub boot: BootId,
    /// The guard, if it was armed.
    pub guard: Option<SavedGuard>,
    /// Locks granted before are of a life that the node could not prove to remember, and some may be left.
    pub unproved_before: BootTime,
    /// Everything granted in this life is in the AOF.
    pub aof_life: bool,
    /// The locks at a clean end of this life.
    pub end: Option<LocksDigest>,
}

/// Why a text is not a node's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It was written by another version of the module.
    Version(String),
    /// It is cut short, changed, or something else.
    Damaged,
}

impl NodeState {
    /// The file's text.
    pub fn to_text(&self) -> String {
        let mut text = format!("palisade-node {VERSION}\nid {:032x}\nincarnation {}\n", self.id, self.incarnation);
        let boot = u128::from_be_bytes(self.boot.0);
        // Writing to a string cannot fail.
        let _ = write!(text, "ceiling {}\nowed-max-ttl-ms {}\nboot {boot:032x}\n", self.ceiling, self.owed_ms);
        let _ = match &self.guard {
            None => writeln!(text, "guard none"),
            Some(SavedGuard { armed, left_ms }) => {
                let (since, until) = (armed.since.as_us(), armed.until.as_us());
                writeln!(text, "guard {} {since} {until} {left_ms}", armed.cause.word())
            }
        };
        let _ = writeln!(text, "unproved-before {}", self.unproved_before.as_us());
        let _ = writeln!(text, "aof-life {}", if self.aof_life { "yes" } else { "no" });
        let _ = match &self.end {
            None => writeln!(text, "end none"),
            Some(LocksDigest { count, exact, other_boot }) => {
                writeln!(text, "end {count} {exact:032x} {other_boot:032x}")
            }
        };
        let check = check(&text);
        let _ = writeln!(text, "check {check}");
        text
    }

    /// The state in a file's text.
    pub fn from_text(text: &str) -> Result<Self, Unreadable> {
        Self::parse(text).ok_or_else(|| {
            match text.strip_prefix("palisade-node ").and_then(|rest| rest.lines().next()) {
                Some(version) if version != VERSION.to_string() && text.contains("\ncheck ") => {
                    Unreadable::Version(version.to_owned())
                }
                _ => Unreadable::Damaged,
            }
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let body_len = text.strip_suffix('\n')?.rfind('\n')? + 1;
        let (body, last) = text.split_at(body_len);
        if last.strip_prefix("check ")?.strip_suffix('\n')? != check(body) {
            return None;
        }
        let mut lines = body.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        if value("palisade-node")? != VERSION.to_string() {
            return None;
        }
        Some(Self {
            id: hex(value("id")?)?,
            incarnation: value("incarnation")?.parse().ok()?,
            ceiling: value("ceiling")?.parse().ok()?,
            owed_ms: value("owed-max-ttl-ms")?.parse().ok()?,
            boot: BootId(hex(value("boot")?)?.to_be_bytes()),
            guard: match value("guard")? {
                "none" => None,
                guard => Some(parse_guard(guard)?),
            },
            unproved_before: BootTime::from_us(value("unproved-before")?.parse().ok()?),
            aof_life: value("aof-life")? == "yes",
            end: match value("end")? {
                "none" => None,
                end => Some(parse_end(end)?),
            },
        })
    }

    /// Until when the guard of an earlier life lasts, and since when, on this boot's clock: exact within one boot, on
    /// another what was left, from now on.
    pub fn guard_now(&self, boot: BootId, now: BootTime) -> Option<Armed> {
        let SavedGuard { armed, left_ms } = self.guard?;
        if boot == self.boot {
            return Some(armed);
        }
        Some(Armed { until: now.plus_us(left_ms.saturating_mul(1_000)), since: now, cause: armed.cause })
    }
}

fn parse_guard(text: &str) -> Option<SavedGuard> {
    let mut words = text.split(' ');
    let word = words.next()?;
    let cause = Cause::ALL.into_iter().find(|cause| cause.word() == word)?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (since, until, left_ms) = (number()?, number()?, number()?);
    let armed = Armed { until: BootTime::from_us(until), since: BootTime::from_us(since), cause };
    Some(SavedGuard { armed, left_ms })
}

fn parse_end(text: &str) -> Option<LocksDigest> {
    let mut words = text.split(' ');
    Some(LocksDigest {
        count: words.next()?.parse().ok()?,
        exact: hex(words.next()?)?,
        other_boot: hex(words.next()?)?,
    })
}

fn hex(text: &str) -> Option<u128> {
    if text.len() == 32 { u128::from_str_radix(text, 16).ok() } else { None }
}

fn check(body: &str) -> String {
    Sha256::digest(body.as_bytes()).iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> NodeState {
        let time = BootTime::from_us;
        NodeState {
            id: 7,
            incarnation: 12,
            ceiling: 1_795_234_601_882_918,
            owed_ms: 60_000,
            boot: BootId([9; 16]),
            guard: Some(SavedGuard {
                armed: Armed { until: time(456), since: time(123), cause: Cause::Flush },
                left_ms: 1,
            }),
            unproved_before: time(99),
            aof_life: true,
            end: Some(LocksDigest { count: 3, exact: u128::MAX, other_boot: 1 }),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bare = NodeState { guard: None, aof_life: false, end: None, ..sample() };
        for state in [sample(), bare] {
            assert_eq!(NodeState::from_text(&state.to_text()), Ok(state));
        }
    }

    #[test]
    fn cut_at_any_byte_or_changed_in_any_it_is_damaged() {
        let text = sample().to_text();
        for len in 0..text.len() {
            assert_eq!(NodeState::from_text(&text[..len]), Err(Unreadable::Damaged), "{len} bytes");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(NodeState::from_text(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let text = sample().to_text().replace("palisade-node 1", "palisade-node 2");
        assert_eq!(NodeState::from_text(&text), Err(Unreadable::Version("2".to_owned())));
    }

    #[test]
    fn a_guard_is_exact_within_a_boot_and_what_was_left_on_another() {
        let state = sample();
        assert_eq!(state.guard_now(state.boot, BootTime::from_us(5)), state.guard.map(|guard| guard.armed));
        let other = state.guard_now(BootId([1; 16]), BootTime::from_us(5)).unwrap();
        assert_eq!((other.since.as_us(), other.until.as_us()), (5, 1_005));
    }
}
