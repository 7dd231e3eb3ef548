//! The reasons why a command is refused, and all error texts: a stable first word, then the problem and what to do.

mod damaged;
mod gate;

use std::fmt;

pub use self::damaged::Damaged;
pub use self::gate::GateRefusal;
use crate::values::cause::Cause;
use crate::values::limits::{
    BEHIND_MAX, ENDED_A_STEP_MAX, FLOOR_MAX, GUARD_LIMIT_MS, HOLDERS_MAX, HOLDS_MAX, KEEPALIVE_MAX_MS,
    KEEPALIVE_TTL_MIN_MS, LISTED_HOLDERS_MAX, LISTED_WAITERS_MAX, LISTENER_NAME_BYTES, LOG_LEN_LIMIT,
    MEMBER_ADDRESS_BYTES_MAX, MEMBERS_MAX, MEMBERS_VERSION_MAX, NOTE_BYTES_MAX, NOTE_SEQUENCE_MAX, OWNER_BYTES_MAX,
    OWNER_REQUESTS_MAX, RENEWALS_A_SECOND_MAX, RETRY_HAND_OVER_MS, TICKET_MAX, TOKEN_LIMIT, WAIT_MAX_MS,
};

/// The pause before a request is repeated that was refused with NOTYET, in milliseconds: about one write to the disk.
const NOT_YET_MS: u32 = RETRY_HAND_OVER_MS;

/// A refusal. Its `Display` is the error that a client reads; the first word is the stable code. A refused command has
/// changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `OWNED`: this owner holds the lock already, and the request has no RETRY.
    Owned,
    /// `GUARDED`: the lock is suspect: it came from outside, and this node cannot know whether it is up to date.
    Suspect {
        /// The time until the lock's lease ends, in milliseconds.
        left_ms: u64,
    },
    /// `GUARDED`: the node may have forgotten grants, so it refuses new ones.
    Guarded {
        /// The time until the guard ends, in milliseconds.
        left_ms: u64,
        /// The cause for which the guard was armed.
        cause: Cause,
    },
    /// `GUARDED`: there may be locks in this lock's slot of the cluster that this node does not know.
    SlotGuarded {
        /// The time until the guard of the slot ends, in milliseconds.
        left_ms: u64,
    },
    /// `GUARDED`: the server evicted this lock, and its holder may still rely on it.
    Evicted {
        /// The time until the lock's lease ends, in milliseconds.
        left_ms: u64,
    },
    /// `NOTYET`: the state file does not have what this promise needs yet.
    NotYet,
    /// `QUEUEFULL`: the node has the maximum of waiting requests.
    QueueFull {
        /// The maximum: `lock.max-waiters`.
        max: u64,
    },
    /// `QUEUEFULL`: the waiting requests of the node take the maximum of memory.
    BytesFull {
        /// The maximum in bytes: `lock.max-waiting-bytes`.
        max: u64,
    },
    /// `QUEUEFULL`: the user or connection uses up its share, and the rest is for others.
    ShareTaken {
        /// The configuration parameter that sets the bound.
        parameter: &'static str,
    },
    /// `OOM`: the server has reached its `maxmemory`.
    OutOfMemory,
    /// `QUEUEFULL`: this owner has its maximum of requests in this lock's queue.
    OwnerQueueFull,
    /// `ERR`: not a valid time to wait.
    Patience,
    /// `ERR`: not a valid KEEPALIVE.
    KeepAlive,
    /// `KEEPALIVEFULL`: the node already renews its maximum of leases.
    KeepAliveFull,
    /// `ERR`: KEEPALIVE on a request that came over no connection.
    NoConnection,
    /// `ERR`: more grants have this token than one step may end, and a script or a transaction cannot wait for the next
    /// steps.
    BreaksTooMany,
    /// `ERR`: the lock left its key (by RENAME, for example) before all grants with the token were broken.
    BreakCutShort,
    /// `UNBLOCKED`: CLIENT UNBLOCK ended the wait for a BREAK in slices. The BREAK itself continues.
    BreakGoesOn,
    /// `NOLISTENER`: no connection of this user listens under this name.
    NoListener,
    /// `ERR`: another connection listens under this name.
    ListenerTaken,
    /// `ERR`: not a valid listener name.
    ListenerName,
    /// `ERR`: LOCK.HEAR came without a client's connection, as from a script.
    ListensNowhere,
    /// `ERR`: not a valid ticket.
    Ticket,
    /// `ERR`: not a valid number of waiters to list.
    ListedWaiters,
    /// `ERR`: a token further ahead of the node's clock than LOCK.FENCE raises.
    FenceTooFar {
        /// The largest token to which LOCK.FENCE raises now.
        max: u64,
    },
    /// `ERR`: not a valid floor of tokens.
    Floor {
        /// The option with the invalid value.
        option: &'static str,
    },
    /// `ERR`: not a valid length of a guard.
    GuardLength,
    /// `WRONGTYPE`: the key holds something that is not a lock.
    WrongType,
    /// `READONLY`: only a master can answer.
    MasterOnly,
    /// `NOPERM`: the user no longer has permission for this lock.
    Forbidden,
    /// `LOCKPANIC`: this command failed inside the module.
    Panicked,
    /// `LOCKPANIC`: an earlier command failed inside the module, which has granted nothing since.
    Poisoned,
    /// `ERR`: the owner is empty, or longer than 256 bytes.
    OwnerLength,
    /// `ERR`: the note is too long.
    NoteLength {
        /// The argument or option with the invalid value.
        argument: &'static str,
    },
    /// `ERR`: not a valid sequence number of a note.
    NoteSequence,
    /// `ERR`: no larger number is left for a note of this grant.
    NotesExhausted,
    /// `ERR`: not a ttl that this node accepts.
    Ttl {
        /// The largest ttl that the node accepts, in milliseconds.
        max_ms: u32,
    },
    /// `ERR`: neither a token nor 0, which stands for a free lock.
    KnownToken,
    /// `ERR`: not a token, which is an integer from 1 to 2^53 - 1.
    Token {
        /// The argument or option with the invalid value.
        argument: &'static str,
    },
    /// `ERR`: not a valid number of holds.
    Level,
    /// `ERR`: the lock already has the maximum of holds.
    HoldsExhausted,
    /// `ERR`: no token is left for this key.
    TokensExhausted,
    /// `ERR`: the command does not have this option.
    UnknownOption {
        /// The options that the command has.
        known: &'static str,
    },
    /// `ERR`: these options exclude each other.
    Excludes {
        /// The options that exclude each other.
        options: &'static str,
    },
    /// `ERR`: an option was given without another one that it needs.
    Needs {
        /// The option that was given.
        option: &'static str,
        /// The option that has to be given too.
        needs: &'static str,
    },
    /// `ERR`: not a mode that a grant can be converted to.
    Conversion,
    /// `ERR`: not a valid limit of permits.
    Limit,
    /// `ERR`: not a valid permit number.
    PermitNumber,
    /// `ERR`: the lock already has the maximum of holders.
    HoldersExhausted,
    /// `ERR`: not a valid number of holders to list.
    ListedHolders,
    /// `ERR`: not a valid number of callers behind a request.
    Behind,
    /// `ERR`: not a valid number of entries to list.
    ListedEntries,
    /// `ERR`: an option was given twice.
    RepeatedOption {
        /// The option that was given twice.
        name: &'static str,
    },
    /// `ERR`: an option's value is missing.
    MissingValue {
        /// The option whose value is missing.
        name: &'static str,
    },
    /// `OLDMEMBERS`: this node knows another version of the set than the program that changes the set.
    OldMembers {
        /// The version that this node knows.
        version: u64,
    },
    /// `NOTMEMBER`: this node is not a member of the set, so it has no vote on the next one.
    NotMember,
    /// `OUTBID`: the node has promised to accept only a larger ballot, of another attempt to change the set.
    Outbid,
    /// `UNSETTLED`: leases of clients that use an older version of the set may still run.
    Unsettled {
        /// The time until those leases have ended, in milliseconds.
        left_ms: u64,
    },
    /// `ERR`: two versions of the set do not differ by exactly one node.
    MembersApart,
    /// `ERR`: not a valid list of members.
    Members,
    /// `ERR`: not a valid version of the set.
    MembersVersion {
        /// The argument or option that names the version.
        argument: &'static str,
    },
    /// `ERR`: not a valid ballot.
    Ballot,
    /// `ERR`: LOCK.MEMBERS JOIN came without a client's connection, as from a script.
    NothingJoins,
    /// `ERR`: LOCK.SETMEMBERS with none of PROMISE, ACCEPT and DECIDED.
    MembersForm,
    /// A gate refused the token, or the request.
    Gate(GateRefusal),
    /// `ERR`: a client sent the command that only a master may send to its replicas.
    Internal,
    /// `ERR`: a master's command for its replicas carried a damaged record.
    BadRecord(Damaged),
}

impl Refusal {
    /// Returns after how many milliseconds the refused request may be granted, if only time has to pass. A request that
    /// allows more time than that is queued.
    pub fn passes_in_ms(&self) -> Option<u64> {
        match *self {
            Self::Guarded { left_ms, .. } | Self::SlotGuarded { left_ms } | Self::Evicted { left_ms } => Some(left_ms),
            Self::NotYet => Some(NOT_YET_MS.into()),
            _ => None,
        }
    }

    /// Returns this refusal with `option` as the name of the argument whose value was refused. Commands that take such
    /// a value as an option use this.
    #[cold]
    pub fn of_option(self, option: &'static str) -> Self {
        match self {
            Self::Floor { .. } => Self::Floor { option },
            Self::NoteLength { .. } => Self::NoteLength { argument: option },
            Self::Token { .. } => Self::Token { argument: option },
            Self::MembersVersion { .. } => Self::MembersVersion { argument: option },
            other => other,
        }
    }

    /// Returns `queues`, which lets the request wait in the queue, if it may wait for longer than this refusal lasts
    /// and `room` is `Ok`. Otherwise returns this refusal, or that of `room`.
    pub fn or_queue<T>(
        self,
        patience_ms: u32,
        room: impl FnOnce() -> Result<(), Refusal>,
        queues: T,
    ) -> Result<T, Refusal> {
        match self.passes_in_ms() {
            Some(left_ms) if u64::from(patience_ms) > left_ms => room().map(|()| queues),
            _ => Err(self),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owned => f.write_str(
                "OWNED this owner already holds the lock: use LOCK.REENTER for one hold more, LOCK.EXTEND for more \
                 time, or ACQUIRE with RETRY to get the answer of a repeated request",
            ),
            Self::Suspect { left_ms } => write!(
                f,
                "GUARDED {left_ms} this lock came from outside (RESTORE, MIGRATE) or from an incarnation that the node cannot \
                 prove to remember: it keeps others out until its lease ends and can be released, nothing else"
            ),
            Self::Guarded { left_ms, cause } => write!(
                f,
                "GUARDED {left_ms} this node may have forgotten grants ({}) and grants nothing until they have ended: \
                 try again after that many milliseconds",
                cause.word()
            ),
            Self::SlotGuarded { left_ms } => write!(
                f,
                "GUARDED {left_ms} some locks of this cluster slot may be missing here: it came without them, or from a node \
                 that may have forgotten them, or they were dropped (slot). Their holders may still rely on them: try again \
                 after that many milliseconds"
            ),
            Self::Evicted { left_ms } => write!(
                f,
                "GUARDED {left_ms} the server evicted this lock to make room and its holder may still rely on it: try \
                 again after that many milliseconds, and set maxmemory-policy noeviction"
            ),
            Self::NotYet => write!(
                f,
                "NOTYET {NOT_YET_MS} the node's state file must be written first: try again after that many \
                 milliseconds; if this lasts, the disk fails, see the server's log and INFO lock"
            ),
            Self::QueueFull { max } => write!(
                f,
                "QUEUEFULL as many requests wait on this node as may ({max}, lock.max-waiters): try again later"
            ),
            Self::BytesFull { max } => write!(
                f,
                "QUEUEFULL what waits on this node takes as many bytes as it may ({max}, lock.max-waiting-bytes): use shorter keys, or \
                 try again later"
            ),
            Self::ShareTaken { parameter } => write!(
                f,
                "QUEUEFULL the requests of this user, or of this listener, use up their share of {parameter}, and the rest is for \
                 others: wait for fewer locks at a time, or try again later"
            ),
            Self::OutOfMemory => f.write_str(
                "OOM the server has reached maxmemory, so nobody begins to wait: release locks, raise maxmemory, or ask without a wait",
            ),
            Self::OwnerQueueFull => write!(
                f,
                "QUEUEFULL this owner has {OWNER_REQUESTS_MAX} requests in this lock's queue, the most that one may have: give \
                 every acquisition an owner of its own"
            ),
            Self::Patience => write!(
                f,
                "ERR the time to wait must be an integer from 0 (not at all) to {WAIT_MAX_MS} milliseconds"
            ),
            Self::KeepAlive => write!(
                f,
                "ERR KEEPALIVE must be an integer from the ttl to {KEEPALIVE_MAX_MS} milliseconds, and the ttl at least \
                 {KEEPALIVE_TTL_MIN_MS}"
            ),
            Self::KeepAliveFull => write!(
                f,
                "KEEPALIVEFULL the KEEPALIVE leases of this node and the requests that wait for one need {RENEWALS_A_SECOND_MAX} \
                 renewals a second, the most that it takes on: name a longer ttl, or leave KEEPALIVE out and send LOCK.EXTEND"
            ),
            Self::NoConnection => f.write_str(
                "ERR KEEPALIVE follows the connection of a client, and this command came over none: send it outside of scripts",
            ),
            Self::BreaksTooMany => write!(
                f,
                "ERR more than {ENDED_A_STEP_MAX} grants have this token, and MULTI and scripts cannot wait until all have ended: send \
                 LOCK.BREAK as a command of its own"
            ),
            Self::BreakGoesOn => f.write_str(
                "UNBLOCKED this client waits no longer, and the BREAK goes on: LOCK.INFO with HOLDERS shows which grants are left",
            ),
            Self::BreakCutShort => f.write_str(
                "ERR the lock was moved, renamed or deleted before all grants with this token had ended: send LOCK.BREAK again, where \
                 the lock is now",
            ),
            Self::NoListener => f.write_str(
                "NOLISTENER no connection of this user listens under that name on this node: send LOCK.HEAR with it over a connection \
                 of its own first, and ask again",
            ),
            Self::ListenerTaken => {
                f.write_str("ERR another connection listens under this name: draw a new one at random for each connection")
            }
            Self::ListenerName => write!(
                f,
                "ERR the name of a listener must be {} to {} bytes long: draw it at random",
                LISTENER_NAME_BYTES.start(),
                LISTENER_NAME_BYTES.end()
            ),
            Self::ListensNowhere => f.write_str(
                "ERR LOCK.HEAR listens on the connection of a client, and this command came over none: send it outside of scripts",
            ),
            Self::Ticket => write!(f, "ERR TICKET must be an integer from 0 to {TICKET_MAX}"),
            Self::ListedWaiters => write!(f, "ERR WAITERS must be an integer from 1 to {LISTED_WAITERS_MAX}"),
            Self::FenceTooFar { max } => write!(
                f,
                "ERR token must be at most {max}: it is too far ahead of this node's clock. Set the clocks of the nodes right; \
                 where a node's tokens stay ahead LOCK.FLOOR brings the others there"
            ),
            Self::Floor { option } => write!(f, "ERR {option} needs a token from 1 to {FLOOR_MAX}"),
            Self::GuardLength => write!(f, "ERR ARM needs an integer from 1 to {GUARD_LIMIT_MS} milliseconds"),
            Self::WrongType => f.write_str("WRONGTYPE Operation against a key holding the wrong kind of value"),
            Self::MasterOnly => f.write_str(
                "READONLY this is a replica, which may lag behind a newer grant: ask the master",
            ),
            Self::Forbidden => {
                f.write_str("NOPERM this user may not run this command on this key any more: see ACL GETUSER")
            }
            Self::Panicked => f.write_str(
                "LOCKPANIC the command failed inside the lock module, which grants nothing from now on: see the \
                 server's log, then restart the server",
            ),
            Self::Poisoned => f.write_str(
                "LOCKPANIC an earlier command failed inside the lock module, which grants nothing since: see the \
                 server's log, then restart the server",
            ),
            Self::OwnerLength => write!(f, "ERR owner must be 1 to {OWNER_BYTES_MAX} bytes long"),
            Self::NoteLength { argument } => write!(f, "ERR {argument} must be at most {NOTE_BYTES_MAX} bytes long"),
            Self::NoteSequence => write!(f, "ERR SEQ must be an integer from 0 to {NOTE_SEQUENCE_MAX}"),
            Self::NotesExhausted => write!(
                f,
                "ERR the note of this grant has the sequence number {NOTE_SEQUENCE_MAX}, the largest there is: release the lock and \
                 acquire it again"
            ),
            Self::Ttl { max_ms } => write!(
                f,
                "ERR ttl must be an integer from 1 to {max_ms} milliseconds (the server's lock.max-ttl)"
            ),
            Self::KnownToken => write!(f, "ERR TOKEN must be an integer from 0 (free) to {}", TOKEN_LIMIT - 1),
            Self::Token { argument } => write!(f, "ERR {argument} must be an integer from 1 to {}", TOKEN_LIMIT - 1),
            Self::Level => write!(f, "ERR LEVEL must be an integer from 1 to {HOLDS_MAX}"),
            Self::HoldsExhausted => write!(
                f,
                "ERR this lock has {HOLDS_MAX} holds, the most a lock can have: release some"
            ),
            Self::TokensExhausted => write!(
                f,
                "ERR no token below {TOKEN_LIMIT} is left for this key: lock another name"
            ),
            Self::UnknownOption { known } => write!(f, "ERR unknown option: this command takes {known}"),
            Self::Excludes { options } => write!(f, "ERR {options} exclude each other: give one of them"),
            Self::Needs { option, needs } => write!(f, "ERR {option} is for {needs}: give both"),
            Self::Conversion => f.write_str("ERR a grant can be converted to SHARED or EXCLUSIVE: name one of them"),
            Self::Limit => write!(f, "ERR LIMIT must be an integer from 1 to {}", u16::MAX),
            Self::PermitNumber => f.write_str("ERR PERMIT must be an integer from 1 to LIMIT"),
            Self::HoldersExhausted => write!(
                f,
                "ERR this lock has {HOLDERS_MAX} holders, the most a lock can have: use several names"
            ),
            Self::ListedHolders => write!(f, "ERR HOLDERS must be an integer from 1 to {LISTED_HOLDERS_MAX}"),
            Self::Behind => write!(f, "ERR BEHIND must be an integer from 0 to {BEHIND_MAX}"),
            Self::ListedEntries => write!(f, "ERR COUNT must be an integer from 1 to {LOG_LEN_LIMIT}"),
            Self::RepeatedOption { name } => write!(f, "ERR option {name} was given twice: give it once"),
            Self::MissingValue { name } => write!(f, "ERR option {name} needs a value after it"),
            Self::OldMembers { version } => write!(
                f,
                "OLDMEMBERS {version} that is the version of the set of nodes that this node was told last: see LOCK.MEMBERS, \
                 and begin from there"
            ),
            Self::NotMember => f.write_str(
                "NOTMEMBER this node is not in the set that it was told of, or lost its state file since: it has no vote on \
                 the next one",
            ),
            Self::Outbid => f.write_str(
                "OUTBID somebody else changes the set of nodes at this moment: look at LOCK.MEMBERS, and try again",
            ),
            Self::Unsettled { left_ms } => write!(
                f,
                "UNSETTLED {left_ms} the set of nodes was changed a moment ago, and leases from before may still run: try again \
                 after that many milliseconds"
            ),
            Self::MembersApart => f.write_str(
                "ERR MEMBERS must be the nodes of the set with one more or one less: change one node at a time",
            ),
            Self::Members => write!(
                f,
                "ERR MEMBERS must be 1 to {MEMBERS_MAX} nodes, each once, as id@address with commas in between: the id of \
                 LOCK.NODE or unknown, the address at most {MEMBER_ADDRESS_BYTES_MAX} bytes without spaces or commas"
            ),
            Self::MembersVersion { argument } => {
                write!(f, "ERR {argument} must be an integer from 0 to {MEMBERS_VERSION_MAX}")
            }
            Self::Ballot => f.write_str("ERR the ballot must be 32 hexadecimal digits"),
            Self::NothingJoins => f.write_str(
                "ERR JOIN is about the connection of a client, not about one command of it: send it outside of scripts and MULTI",
            ),
            Self::MembersForm => f.write_str(
                "ERR LOCK.SETMEMBERS takes PROMISE ballot, or ACCEPT ballot with MEMBERS and FLOOR, or DECIDED with MEMBERS",
            ),
            Self::Gate(refusal) => refusal.fmt(f),
            Self::Internal => f.write_str(
                "ERR LOCK.EFFECT and LOCK.CEILING are how a master tells replicas and its AOF what there is: clients use \
                 LOCK.ACQUIRE",
            ),
            Self::BadRecord(damaged) => write!(f, "ERR not a lock record: {damaged}"),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests;
