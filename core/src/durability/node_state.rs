//! The content of a node's state file, which it keeps across its incarnations.
//!
//! A text of lines, each a name and a value. The last line is a checksum of all lines before it:
//!
//! ```text
//! palisade-node 3
//! file 1837 1795234601000000000 this file: number and birth (ns), which a copy does not share; or: file unknown
//! id 7f3a…                      random, made once, 32 hexadecimal digits
//! incarnation 12                one more at every start
//! ceiling 1795234601882918      no token above it was issued, except on the stripes of the next line
//! stripes 17:1826770601882918   stripes whose tokens may be above the ceiling, and their bounds; or: stripes none
//! owed-max-ttl-ms 60000         the longest lease that may still run
//! master told                   told: that includes the master's leases; silent: it named none; none: no master
//! boot 9c1e…                    the boot of the machine that times below belong to
//! guard restart 123 456 62600   cause, since, until (boot clock, µs), milliseconds left when written; or: guard none
//! lifted 123                    when an operator last lifted a guard (boot clock, µs); 0: never on this boot
//! unproved-before 123           earlier grants may be of a forgotten incarnation (boot clock, µs); 0: none are
//! aof 1838 1795234601000000 56  the AOF file with all grants (number, birth, bytes at least); or: aof none
//! end 123 3 9a… 77…             a clean end: when (boot clock, µs), locks that ran on: count, digest, digest
//!                               for another boot; or: end none
//! members 4 7f3a…@10.0.0.1:6379,… the latest decided set of nodes: version and list
//! promised 0                    the smallest ballot for the next version that is still accepted, 32 hexadecimal digits
//! accepted none                 the list accepted as the next version: ballot and list; or: accepted none
//! check 0f…                     first 16 hexadecimal digits of the SHA-256 of the lines above
//! ```
//!
//! A node without a set writes version 2, which lacks `members`, `promised` and `accepted`. Version 1 lacks `file`,
//! `stripes`, `master` and `lifted`, has `aof-life yes` or `no` for `aof`, and `end` without its time. This code will
//! always read version 1, which proves nothing, because nothing ties it to its data.

use std::fmt::Write as _;

use palisade_quorum::{Accepted, Members, members_from_text, members_to_text};
use sha2::{Digest as _, Sha256};

use crate::durability::ties::{AofFile, FileId, Found, IncarnationId};
use crate::format::digest::LocksDigest;
use crate::guard::outstanding::Master;
use crate::guard::{Armed, SavedGuard};
use crate::members::SavedMembership;
use crate::tokens::stripe_ceilings::{StripeCeiling, stripes_from_text, stripes_to_text};
use crate::values::cause::Cause;
use crate::values::limits::MEMBERS_VERSION_MAX;
use crate::values::time::{BootId, BootTime};

/// The version that this code writes, and the one that it writes for a node without a set of nodes. Older modules read
/// only the latter.
const VERSION: u32 = 3;
const VERSION_WITHOUT_MEMBERS: u32 = 2;

/// The oldest version, which this code only reads. It does not say to which file and which data the state belongs.
const VERSION_WITHOUT_TIES: u32 = 1;

/// The locks that were held when an incarnation ended cleanly (SHUTDOWN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanEnd {
    /// The time of the end. Locks whose leases had ended by then are left out.
    pub at: BootTime,
    /// The digest of the locks whose leases had not ended by then.
    pub locks: LocksDigest,
}

/// A node's memory across its incarnations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// The file that this state was written to.
    pub file: Option<FileId>,
    /// The node's id: random, made once, independent of addresses.
    pub id: u128,
    /// The number of this incarnation: one more at every start.
    pub incarnation: u64,
    /// The ceiling: no token above it was issued, except on some stripes.
    pub ceiling: u64,
    /// The stripes (groups of keys) whose tokens may be above the ceiling, in ascending order, each with a ceiling of
    /// its own.
    pub stripes: Vec<StripeCeiling>,
    /// The longest lease that may still run, in milliseconds.
    pub outstanding_ttl_ms: u32,
    /// The master whose leases `outstanding_ttl_ms` includes, in addition to the node's own.
    pub master: Master,
    /// The boot of the machine on whose clock the times in this state are.
    pub boot: BootId,
    /// The guard, if one was armed.
    pub guard: Option<SavedGuard>,
    /// The time at which an operator last lifted a guard; zero if never on this boot.
    pub lifted: BootTime,
    /// The time before which grants are suspect, because a start could not prove that the node remembers all of them.
    pub unproved_before: BootTime,
    /// The AOF file that contains every grant of this incarnation, if there is one.
    pub aof: Option<AofFile>,
    /// The locks at the end of this incarnation, if it ended cleanly.
    pub end: Option<CleanEnd>,
    /// The node's knowledge of its set of nodes.
    pub members: SavedMembership,
}

/// The reason why a text cannot be read as a node's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The text is from another version of the module.
    Version(String),
    /// The text is truncated or changed, or is no node's state.
    Damaged,
}

impl NodeState {
    /// Creates the first state of a node, which has granted nothing yet.
    pub fn new(id: u128, boot: BootId) -> Self {
        Self {
            file: None,
            id,
            incarnation: 1,
            ceiling: 0,
            stripes: vec![],
            outstanding_ttl_ms: 0,
            master: Master::Myself,
            boot,
            guard: None,
            lifted: BootTime::default(),
            unproved_before: BootTime::default(),
            aof: None,
            end: None,
            members: SavedMembership::default(),
        }
    }

    /// Formats the state as the text of its file.
    pub fn to_text(&self) -> String {
        let has_members = self.members != SavedMembership::default();
        let version = if has_members { VERSION } else { VERSION_WITHOUT_MEMBERS };
        let mut text = format!("palisade-node {version}\n");
        let boot = u128::from_be_bytes(self.boot.0);
        // Writing to a string cannot fail.
        let _ = match self.file {
            None => writeln!(text, "file unknown"),
            Some(FileId { number, born_ns }) => writeln!(text, "file {number} {born_ns}"),
        };
        let _ = write!(text, "id {:032x}\nincarnation {}\nceiling {}\n", self.id, self.incarnation, self.ceiling);
        let stripes = stripes_to_text(&self.stripes);
        let _ = writeln!(text, "stripes {}", if stripes.is_empty() { "none" } else { &stripes });
        let _ = writeln!(text, "owed-max-ttl-ms {}", self.outstanding_ttl_ms);
        let _ = writeln!(text, "master {}\nboot {boot:032x}", self.master.word());
        let _ = match &self.guard {
            None => writeln!(text, "guard none"),
            Some(SavedGuard { armed, left_ms }) => {
                let (since, until) = (armed.since.as_us(), armed.until.as_us());
                writeln!(text, "guard {} {since} {until} {left_ms}", armed.cause.word())
            }
        };
        let _ = writeln!(text, "lifted {}\nunproved-before {}", self.lifted.as_us(), self.unproved_before.as_us());
        let _ = match &self.aof {
            None => writeln!(text, "aof none"),
            Some(AofFile { id: FileId { number, born_ns }, bytes }) => writeln!(text, "aof {number} {born_ns} {bytes}"),
        };
        let _ = match &self.end {
            None => writeln!(text, "end none"),
            Some(CleanEnd { at, locks: LocksDigest { count, exact, other_boot } }) => {
                writeln!(text, "end {} {count} {exact:032x} {other_boot:032x}", at.as_us())
            }
        };
        if has_members {
            let SavedMembership { decided, promised, accepted } = &self.members;
            let list = if decided.list.is_empty() { "none".to_owned() } else { members_to_text(&decided.list) };
            let _ = write!(text, "members {} {list}\npromised {promised:032x}\n", decided.version);
            let _ = match accepted {
                None => writeln!(text, "accepted none"),
                Some(Accepted { ballot, list }) => writeln!(text, "accepted {ballot:032x} {}", members_to_text(list)),
            };
        }
        let check = check(&text);
        let _ = writeln!(text, "check {check}");
        text
    }

    /// Parses the state from a file's text.
    pub fn from_text(text: &str) -> Result<Self, Unreadable> {
        Self::parse(text).ok_or_else(|| {
            match text.strip_prefix("palisade-node ").and_then(|rest| rest.lines().next()) {
                Some(version)
                    if ![VERSION, VERSION_WITHOUT_MEMBERS, VERSION_WITHOUT_TIES]
                        .iter()
                        .any(|known| version == known.to_string())
                        && text.contains("\ncheck ") =>
                {
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
        let version: u32 = value("palisade-node")?.parse().ok()?;
        match version {
            VERSION | VERSION_WITHOUT_MEMBERS => Some(Self {
                file: parse_file(value("file")?).ok()?,
                id: hex(value("id")?)?,
                incarnation: value("incarnation")?.parse().ok()?,
                ceiling: value("ceiling")?.parse().ok()?,
                stripes: Some(value("stripes")?)
                    .filter(|text| *text != "none")
                    .map_or(Some(vec![]), stripes_from_text)?,
                outstanding_ttl_ms: value("owed-max-ttl-ms")?.parse().ok()?,
                master: Master::of_word(value("master")?)?,
                boot: BootId(hex(value("boot")?)?.to_be_bytes()),
                guard: parse_guard(value("guard")?).ok()?,
                lifted: BootTime::from_us(value("lifted")?.parse().ok()?),
                unproved_before: BootTime::from_us(value("unproved-before")?.parse().ok()?),
                aof: parse_aof(value("aof")?).ok()?,
                end: parse_end(value("end")?).ok()?,
                members: match version {
                    VERSION => parse_members(value("members")?, value("promised")?, value("accepted")?)?,
                    _ => SavedMembership::default(),
                },
            }),
            VERSION_WITHOUT_TIES => {
                let (id, incarnation) = (hex(value("id")?)?, value("incarnation")?.parse().ok()?);
                let (ceiling, outstanding_ttl_ms) =
                    (value("ceiling")?.parse().ok()?, value("owed-max-ttl-ms")?.parse().ok()?);
                let boot = BootId(hex(value("boot")?)?.to_be_bytes());
                let guard = parse_guard(value("guard")?).ok()?;
                let unproved_before = BootTime::from_us(value("unproved-before")?.parse().ok()?);
                Some(Self { incarnation, ceiling, outstanding_ttl_ms, guard, unproved_before, ..Self::new(id, boot) })
            }
            _ => None,
        }
    }

    /// Returns the node and the number of the incarnation that wrote this state.
    pub fn incarnation(&self) -> IncarnationId {
        IncarnationId { node: self.id, number: self.incarnation }
    }

    /// Returns whether this state belongs to the data found beside it. It does if it was read from the file to which it
    /// was written, and no other incarnation has used the data since.
    pub fn is_tied_to(&self, found: &Found) -> bool {
        self.file.is_some() && self.file == found.file && found.used_by == Some(self.incarnation())
    }

    /// Returns whether the state was read from another file than it was written to. Then the node that wrote it may be
    /// elsewhere, or may have gone on.
    pub fn is_copy(&self, file: Option<FileId>) -> bool {
        self.file.is_some() && self.file != file
    }

    /// Returns the guard of an earlier incarnation on this boot's clock. Within one boot its end is exact. On another
    /// boot the time that was left when it was written counts from `now`.
    pub fn guard_now(&self, boot: BootId, now: BootTime) -> Option<Armed> {
        let SavedGuard { armed, left_ms } = self.guard?;
        if boot == self.boot {
            return Some(armed);
        }
        let since = if armed.since == BootTime::default() { armed.since } else { now };
        Some(Armed { until: now.plus_us(left_ms.saturating_mul(1_000)), since, cause: armed.cause })
    }
}

/// Parses `text` with `read`, which takes one word after the other. `None` if the text is `none`, the word for no
/// value.
fn value_or<'a, T>(
    text: &'a str,
    none: &str,
    read: impl FnOnce(&mut dyn Iterator<Item = &'a str>) -> Option<T>,
) -> Result<Option<T>, Unreadable> {
    if text == none {
        return Ok(None);
    }
    let mut words = text.split(' ');
    let value = read(&mut words).filter(|_| words.next().is_none());
    value.map(Some).ok_or(Unreadable::Damaged)
}

fn number(words: &mut dyn Iterator<Item = &str>) -> Option<u64> {
    words.next()?.parse().ok()
}

fn file_id(words: &mut dyn Iterator<Item = &str>) -> Option<FileId> {
    Some(FileId { number: number(words)?, born_ns: number(words)? })
}

fn parse_members(decided: &str, promised: &str, accepted: &str) -> Option<SavedMembership> {
    let (version, list) = decided.split_once(' ')?;
    let list = if list == "none" { vec![] } else { members_from_text(list)? };
    let accepted = match accepted.split_once(' ') {
        None => (accepted == "none").then_some(None)?,
        Some((ballot, list)) => Some(Accepted { ballot: hex(ballot)?, list: members_from_text(list)? }),
    };
    // Earlier modules accepted larger versions, which no client can send.
    let version = version.parse::<u64>().ok()?.min(MEMBERS_VERSION_MAX);
    let decided = Members { version, list };
    Some(SavedMembership { decided, promised: hex(promised)?, accepted })
}

fn parse_file(text: &str) -> Result<Option<FileId>, Unreadable> {
    value_or(text, "unknown", file_id)
}

fn parse_guard(text: &str) -> Result<Option<SavedGuard>, Unreadable> {
    value_or(text, "none", |words| {
        let word = words.next()?;
        let cause = Cause::ALL.into_iter().find(|cause| cause.word() == word)?;
        let (since, until, left_ms) = (number(words)?, number(words)?, number(words)?);
        let armed = Armed { until: BootTime::from_us(until), since: BootTime::from_us(since), cause };
        Some(SavedGuard { armed, left_ms })
    })
}

fn parse_aof(text: &str) -> Result<Option<AofFile>, Unreadable> {
    value_or(text, "none", |words| Some(AofFile { id: file_id(words)?, bytes: number(words)? }))
}

fn parse_end(text: &str) -> Result<Option<CleanEnd>, Unreadable> {
    value_or(text, "none", |words| {
        let at = BootTime::from_us(number(words)?);
        let (count, exact, other_boot) = (number(words)?, hex(words.next()?)?, hex(words.next()?)?);
        Some(CleanEnd { at, locks: LocksDigest { count, exact, other_boot } })
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
            file: Some(FileId { number: 1_837, born_ns: 5 }),
            id: 7,
            incarnation: 12,
            ceiling: 1_795_234_601_882_918,
            stripes: vec![
                StripeCeiling { stripe: 0, ceiling: 1_826_770_601_882_918 },
                StripeCeiling { stripe: 65_535, ceiling: 1 },
            ],
            outstanding_ttl_ms: 60_000,
            master: Master::Silent,
            boot: BootId([9; 16]),
            guard: Some(SavedGuard {
                armed: Armed { until: time(456), since: time(123), cause: Cause::Flush },
                left_ms: 1,
            }),
            lifted: time(77),
            unproved_before: time(99),
            aof: Some(AofFile { id: FileId { number: 1, born_ns: 2 }, bytes: 3 }),
            end: Some(CleanEnd { at: time(9), locks: LocksDigest { count: 3, exact: u128::MAX, other_boot: 1 } }),
            members: SavedMembership::default(),
        }
    }

    fn member_of_a_set() -> NodeState {
        let list = members_from_text("00000000000000000000000000000007@10.0.0.1:6379,unknown@redis://b:1").unwrap();
        let accepted = Some(Accepted { ballot: 3, list: list[..1].to_vec() });
        let members = SavedMembership { decided: Members { version: 4, list }, promised: u128::MAX, accepted };
        NodeState { members, ..sample() }
    }

    #[test]
    fn what_is_written_is_read() {
        let told = SavedMembership { promised: 9, ..SavedMembership::default() };
        let promised = NodeState { members: told, ..sample() };
        for state in [sample(), NodeState::new(7, BootId([9; 16])), member_of_a_set(), promised] {
            assert_eq!(NodeState::from_text(&state.to_text()), Ok(state));
        }
    }

    /// The state of a node without a set of nodes is written in version 2, so that the node can return to an older
    /// module.
    #[test]
    fn the_version_is_older_where_nothing_of_a_set_is_known() {
        assert!(sample().to_text().starts_with("palisade-node 2\n"));
        assert!(member_of_a_set().to_text().starts_with("palisade-node 3\n"));
    }

    /// Earlier modules accepted any 64-bit version of the set. A node whose state has a larger version than a client
    /// can send starts with the largest that a client can.
    #[test]
    fn a_version_of_the_set_that_is_too_large_is_the_largest() {
        let told = |version| {
            let mut state = member_of_a_set();
            state.members.decided.version = version;
            NodeState::from_text(&state.to_text()).map(|state| state.members.decided.version)
        };
        for (version, read) in [(7, 7), (MEMBERS_VERSION_MAX, MEMBERS_VERSION_MAX), (u64::MAX, MEMBERS_VERSION_MAX)] {
            assert_eq!(told(version), Ok(read), "{version}");
        }
    }

    /// The text was written by version 0.1.0 of the module. It does not say to which file and which data the state
    /// belongs. It is read, and proves nothing.
    #[test]
    fn the_version_without_ties_is_read_and_proves_nothing() {
        let body = "palisade-node 1\nid 00000000000000000000000000000007\nincarnation 12\nceiling 1795234601882918\n\
                    owed-max-ttl-ms 60000\nboot 09090909090909090909090909090909\nguard flush 123 456 1\n\
                    unproved-before 99\naof-life yes\n\
                    end 3 ffffffffffffffffffffffffffffffff 00000000000000000000000000000001\n";
        let state = NodeState::from_text(&format!("{body}check {}\n", check(body))).unwrap();
        let SavedGuard { armed, left_ms } = state.guard.unwrap();
        assert_eq!((armed.cause, armed.since.as_us(), armed.until.as_us(), left_ms), (Cause::Flush, 123, 456, 1));
        let expected = NodeState {
            incarnation: 12,
            ceiling: 1_795_234_601_882_918,
            outstanding_ttl_ms: 60_000,
            guard: state.guard,
            unproved_before: BootTime::from_us(99),
            ..NodeState::new(7, BootId([9; 16]))
        };
        assert_eq!(state, expected);
    }

    #[test]
    fn cut_at_any_byte_or_changed_in_any_it_is_damaged() {
        let text = member_of_a_set().to_text();
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
        let text = sample().to_text().replace("palisade-node 2", "palisade-node 4");
        assert_eq!(NodeState::from_text(&text), Err(Unreadable::Version("4".to_owned())));
    }

    #[test]
    fn a_guard_is_exact_within_a_boot_and_what_was_left_on_another() {
        let state = sample();
        assert_eq!(state.guard_now(state.boot, BootTime::from_us(5)), state.guard.map(|guard| guard.armed));
        let other = state.guard_now(BootId([1; 16]), BootTime::from_us(5)).unwrap();
        assert_eq!((other.since.as_us(), other.until.as_us()), (5, 1_005));
    }
}
