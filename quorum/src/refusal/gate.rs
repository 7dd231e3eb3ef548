//! The reasons why a gate refuses.

use std::fmt;

use crate::values::limits::GATE_KEEP_MAX_MS;

/// A refusal of LOCK.GATE. The command after COMMAND has not run, and nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateRefusal {
    /// `FENCED`: a later grant, which excludes the one with this token, has passed.
    Fenced {
        /// The largest token of such a later grant.
        largest: u64,
    },
    /// `NOTHELD`: with HELD, no present grant of the lock has this token in this mode.
    NotHeld,
    /// `WRONGTYPE`: the key holds a lock, and the request has no HELD.
    IsLock,
    /// `WRONGTYPE`: the key holds a gate, and HELD needs a lock.
    IsGate,
    /// `ERR`: not a valid permit number.
    Permit,
    /// `ERR`: not a valid time to keep a gate.
    Keep,
    /// `OOM`: the gate would be a new one, and the server has reached its `maxmemory`.
    OutOfMemory,
    /// `ERR`: the request is in a MULTI and has no COMMAND.
    InTransaction,
    /// `ERR`: the server has no such command.
    UnknownCommand,
    /// `ERR`: the number of arguments is wrong for the command after COMMAND.
    CommandWords,
    /// `ERR`: the command after COMMAND has no key.
    NoKey,
    /// `ERR`: the gate itself is a key of the command after COMMAND.
    GateIsKey,
    /// `ERR`: the command after COMMAND is one of the module's own, other than LOCK.CHECK.
    LockCommand,
    /// `NOPERM`: `lock.gate-commands` does not permit the command.
    CommandForbidden,
    /// `NOPERM`: the caller has no permission for a key of the command after COMMAND.
    KeyForbidden,
    /// `CROSSSLOT`: in a cluster, the gate and the keys of the command after COMMAND are in different slots.
    OtherSlot,
    /// `TRYAGAIN`: the slot is moving to another node, and not all keys of the command after COMMAND are on this one.
    SlotMoves,
}

impl fmt::Display for GateRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced { largest } => write!(
                f,
                "FENCED {largest} a grant with that token has passed this gate, and it excludes this one: the lock is lost, so stop"
            ),
            Self::NotHeld => {
                f.write_str("NOTHELD no present grant of this lock has this token in this mode: the lock is lost, so stop")
            }
            Self::IsLock => f.write_str("WRONGTYPE this key holds a lock: add HELD, or give the gate a name of its own"),
            Self::IsGate => f.write_str("WRONGTYPE this key holds a gate: with HELD name the lock, or leave HELD out"),
            Self::Permit => write!(f, "ERR PERMIT must be an integer from 1 to {}", u16::MAX),
            Self::Keep => write!(f, "ERR KEEP must be an integer from 1 to {GATE_KEEP_MAX_MS} milliseconds"),
            Self::OutOfMemory => f.write_str(
                "OOM the server has reached maxmemory, so it takes no new gate and no further permit number: delete gates that nobody uses, or raise maxmemory",
            ),
            Self::InTransaction => f.write_str(
                "ERR in MULTI a refusal does not stop the commands that follow: name the protected command after COMMAND, or use \
                 a script",
            ),
            Self::UnknownCommand => f.write_str("ERR this server has no command of the name after COMMAND"),
            Self::CommandWords => f.write_str("ERR wrong number of arguments for the command after COMMAND"),
            Self::NoKey => f.write_str("ERR the command after COMMAND has no key, so a gate cannot protect it: send it alone"),
            Self::GateIsKey => {
                f.write_str("ERR the command after COMMAND has the gate itself as a key: only a plain command changes a gate")
            }
            Self::LockCommand => f.write_str("ERR LOCK.CHECK is the only lock command that may follow COMMAND"),
            Self::CommandForbidden => f.write_str("NOPERM lock.gate-commands does not permit the command after COMMAND"),
            Self::KeyForbidden => f.write_str(
                "NOPERM the user may not read or write a key of the command after COMMAND: give it permission for that key",
            ),
            Self::OtherSlot => f.write_str(
                "CROSSSLOT the gate and the keys of the command after COMMAND are in different slots: give their names the same {tag}",
            ),
            Self::SlotMoves => f.write_str(
                "TRYAGAIN the slot of the gate is moving, and not all keys of the command after COMMAND are on this node: ask again",
            ),
        }
    }
}
