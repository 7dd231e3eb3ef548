//! LOCK.GATE, the command for a resource in a server with the module: checks a token, and runs the command that the
//! token protects.

use super::words::{Count, Milliseconds};
use crate::floors::Kind;
use crate::grammar::declaration::command;
use crate::grammar::words::Value;
use crate::grammar::{Bounds, KeyAccess, Shape, Spec};
use crate::refusal::{GateRefusal, Refusal};
use crate::values::limits::GATE_KEEP_MAX_MS;
use crate::values::token::Token;

command! {
    name: "LOCK.GATE",
    summary: "Lets a token pass unless a grant that excludes it has passed before, and runs the command after COMMAND; \
              both or neither. Returns that command's reply, or 1. With HELD the lock of this name must be held now. \
              For the resource that the lock protects.",
    flags: "write",
    key: Some(KeyAccess::Insert),
    struct GateWords<'a> {
        token: Token,
        [SHARED] shared,
        [PERMIT n as number] permit: Count,
        [HELD] held,
        [KEEP ms] keep: Milliseconds,
        [COMMAND command] command: Rest<'a>,
    }
}

/// The protected command with its arguments. LOCK.GATE reads only its name.
struct Rest<'a>(#[allow(dead_code)] &'a [u8]);

impl<'a> Value<'a> for Rest<'a> {
    const SHAPE: Shape = Shape::Command;

    fn parse(name: &'a [u8], _: Bounds) -> Result<Self, Refusal> {
        Ok(Self(name))
    }
}

/// LOCK.GATE: lets a token pass, or refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The token of the grant.
    pub token: Token,
    /// The kind of the token's grant: exclusive, shared, or a permit number.
    pub kind: Kind,
    /// The memory by which the gate decides.
    pub memory: GateMemory,
    /// The index of the protected command's name among the words after the key.
    pub command: Option<usize>,
}

/// The memory by which a gate decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateMemory {
    /// The tokens that have passed. With a time in milliseconds (KEEP), the gate forgets them that long after a token
    /// passed last.
    Tokens(Option<u64>),
    /// The lock whose key the command names (HELD): the holder's token passes. Nothing else is remembered.
    Lock,
}

impl Gate {
    /// The description of the command.
    pub const SPEC: Spec = GateWords::SPEC;

    /// Returns the index of the protected command's name among the words after the key. It follows the first word
    /// COMMAND, except where that is in the token's place.
    fn command_in<'w>(words: impl Iterator<Item = &'w [u8]>) -> Option<usize> {
        let place = words.skip(1).position(|word| word.eq_ignore_ascii_case(b"COMMAND"));
        place.map(|place| place + 2)
    }

    /// Parses the words after the key.
    pub fn read<'w>(words: impl Iterator<Item = &'w [u8]> + Clone, bounds: Bounds) -> Result<Self, Refusal> {
        let command = Self::command_in(words.clone());
        // The words after the protected command's name belong to that command.
        let words = words.take(command.map_or(usize::MAX, |name| name + 1));
        let GateWords { token, shared, permit, held, keep, command: name } = GateWords::read(words, bounds)?;
        let kind = match (shared, permit) {
            (true, Some(_)) => return Err(Refusal::Excludes { options: "SHARED and PERMIT" }),
            (true, None) => Kind::Shared,
            (false, None) => Kind::Exclusive,
            (false, Some(Count(number))) => {
                let number = u16::try_from(number).ok().filter(|&number| number > 0);
                Kind::Permit(number.ok_or(Refusal::Gate(GateRefusal::Permit))?)
            }
        };
        let memory = match (held, keep) {
            (true, Some(_)) => return Err(Refusal::Excludes { options: "HELD and KEEP" }),
            (true, None) => GateMemory::Lock,
            (false, None) => GateMemory::Tokens(None),
            (false, Some(Milliseconds(ms))) => {
                let ms = ms.filter(|ms| (1..=GATE_KEEP_MAX_MS).contains(ms));
                GateMemory::Tokens(Some(ms.ok_or(Refusal::Gate(GateRefusal::Keep))?))
            }
        };
        Ok(Self { token, kind, memory, command: command.filter(|_| name.is_some()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal::{Excludes, MissingValue, RepeatedOption, UnknownOption};

    fn read(line: &str) -> Result<Gate, Refusal> {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes);
        Gate::read(words, Bounds { max_ttl_ms: 500 })
    }

    #[test]
    fn words_become_a_request() {
        let gate = |kind, memory, command| Gate { token: Token::new(7).unwrap(), kind, memory, command };
        let tokens = GateMemory::Tokens;
        let cases = [
            ("7", gate(Kind::Exclusive, tokens(None), None)),
            ("7 shared", gate(Kind::Shared, tokens(None), None)),
            ("7 KEEP 31622400000 PERMIT 65535", gate(Kind::Permit(65_535), tokens(Some(31_622_400_000)), None)),
            ("7 HELD command SET a COMMAND KEEP", gate(Kind::Exclusive, GateMemory::Lock, Some(3))),
            ("7 COMMAND COMMAND COMMAND x", gate(Kind::Exclusive, tokens(None), Some(2))),
            // What follows the protected command's name is not an option of the gate.
            ("7 SHARED COMMAND GET SHARED", gate(Kind::Shared, tokens(None), Some(3))),
        ];
        for (line, gate) in cases {
            assert_eq!(read(line), Ok(gate), "{line}");
        }
    }

    #[test]
    fn each_fault_has_its_refusal() {
        let known = "SHARED, PERMIT n, HELD, KEEP ms and COMMAND command";
        let cases = [
            ("0", Refusal::Token { argument: "token" }),
            ("9007199254740992", Refusal::Token { argument: "token" }),
            ("COMMAND GET a", Refusal::Token { argument: "token" }),
            ("7 PERMIT 0", Refusal::Gate(GateRefusal::Permit)),
            ("7 PERMIT 65536", Refusal::Gate(GateRefusal::Permit)),
            ("7 PERMIT COMMAND GET a", UnknownOption { known }),
            ("7 SHARED PERMIT 1", Excludes { options: "SHARED and PERMIT" }),
            ("7 KEEP 0", Refusal::Gate(GateRefusal::Keep)),
            ("7 KEEP 31622400001", Refusal::Gate(GateRefusal::Keep)),
            ("7 KEEP 1 HELD", Excludes { options: "HELD and KEEP" }),
            ("7 HELD HELD", RepeatedOption { name: "HELD" }),
            ("7 COMMAND", MissingValue { name: "COMMAND" }),
            ("7 NX", UnknownOption { known }),
        ];
        for (line, refusal) in cases {
            assert_eq!(read(line), Err(refusal), "{line}");
        }
    }
}
