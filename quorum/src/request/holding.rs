//! Commands that acquire a lock, and commands of its owner.

use super::values::{Behind, Conversion, Level, Note, NoteSequence, Owner, Patience, Ttl};
use super::words::{Count, Milliseconds, wanted};
use crate::grammar::declaration::command;
use crate::grammar::{Bounds, KeyAccess, Spec};
use crate::refusal::Refusal;
use crate::values::mode::Wanted;
use crate::values::token::Token;

command! {
    name: "LOCK.ACQUIRE",
    summary: "Takes a lock for an owner: exclusive, SHARED, or one of LIMIT permits. Returns its fencing token; with \
              WAIT also the milliseconds waited; with LIMIT these and the permit's number; Null if the owner does \
              not get it.",
    flags: "write fast deny-oom blocking",
    key: Some(KeyAccess::Insert),
    struct AcquireWords<'a> {
        owner: Owner<'a>,
        ttl: Ttl,
        [SHARED] shared,
        [LIMIT k as limit] limit: Count,
        [PERMIT n as number] permit: Count,
        [KEEPALIVE ms] keepalive: Milliseconds,
        [WAIT ms] wait: Patience,
        [BEHIND n as behind] behind: Behind,
        [FENCE token] fence: Token,
        [RETRY] retry,
        [NOTE text] note: Note<'a>,
    }
}

/// LOCK.ACQUIRE: acquires the lock.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    /// The owner that wants the lock.
    pub owner: Owner<'a>,
    /// The length of the lease, from the grant on.
    pub ttl: Ttl,
    /// The mode in which the owner wants the lock.
    pub wanted: Wanted,
    /// True if the request may be a repetition: then an existing grant of this owner is the answer.
    pub retry: bool,
    /// The token that a quorum client proposes.
    pub fence: Option<Token>,
    /// A note for people, which LOCK.INFO shows.
    pub note: Note<'a>,
    /// The longest time to wait in the queue.
    pub patience: Patience,
    /// The number of callers that wait behind this request in its client.
    pub behind: Behind,
}

/// A LOCK.ACQUIRE as the client sent it: the request, and the form of its answer.
#[derive(Clone, Copy, Debug)]
pub struct AskedAcquire<'a> {
    /// The request for the lock itself.
    pub request: Acquire<'a>,
    /// The form of the answer to a grant.
    pub form: Form,
    /// The time for which the lease is kept alive; [`Ttl::keep`] has its bounds.
    pub keepalive: Option<Milliseconds>,
}

/// The form of the answer to a grant, which depends on the options of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An integer: the token.
    Token,
    /// The token, and the time waited: with WAIT.
    TokenAndWait,
    /// The token, the time waited, and the permit number: with LIMIT.
    Permit,
}

impl<'a> Acquire<'a> {
    /// The description of the command.
    pub const SPEC: Spec = AcquireWords::SPEC;

    /// Parses the words after the key. With WAIT the answer will include the time waited, and with LIMIT the permit
    /// number too.
    #[inline(always)]
    pub fn read(words: impl Iterator<Item = &'a [u8]>, bounds: Bounds) -> Result<AskedAcquire<'a>, Refusal> {
        let AcquireWords { owner, ttl, shared, limit, permit, keepalive, wait, behind, fence, retry, note } =
            AcquireWords::read(words, bounds)?;
        if wait.is_none() && behind.is_some() {
            return Err(Refusal::Needs { option: "BEHIND", needs: "WAIT" });
        }
        let form = match (&limit, wait) {
            (Some(_), _) => Form::Permit,
            (None, Some(_)) => Form::TokenAndWait,
            (None, None) => Form::Token,
        };
        let wanted = wanted(shared, limit, permit)?;
        let (note, patience, behind) = (note.unwrap_or_default(), wait.unwrap_or_default(), behind.unwrap_or_default());
        let request = Acquire { owner, ttl, wanted, retry, fence, note, patience, behind };
        Ok(AskedAcquire { request, form, keepalive })
    }
}

command! {
    name: "LOCK.RELEASE",
    summary: "Gives one hold back, or all down to a level. Returns how many are left (0: the grant has ended); Null \
              if this owner does not hold the lock.",
    flags: "write fast",
    key: Some(KeyAccess::Delete),
    /// LOCK.RELEASE: gives back one hold or, with LEVEL n, all holds from the n-th on.
    #[derive(Clone, Copy, Debug)]
    pub struct Release<'a> {
        /// The owner that holds the lock.
        owner: Owner<'a>,
        [LEVEL n as level]
        /// Release all holds from this level up, so that `level - 1` are left. Without it, release one hold.
        level: Level,
        [TOKEN t as token]
        /// Release only if the grant has this token.
        token: Token,
    }
}

command! {
    name: "LOCK.EXTEND",
    summary: "Makes a lease last at least this long from now. Returns the token of the grant; Null if this owner \
              does not hold the lock.",
    flags: "write fast",
    key: Some(KeyAccess::Update),
    /// LOCK.EXTEND: moves the deadline further away.
    #[derive(Clone, Copy, Debug)]
    pub struct Extend<'a> {
        /// The owner that holds the lock.
        owner: Owner<'a>,
        /// The least length of the lease from now.
        ttl: Ttl,
        [TOKEN t as token]
        /// Extend only if the grant has this token.
        token: Token,
    }
}

command! {
    name: "LOCK.REENTER",
    summary: "Adds one hold, or with LEVEL the holds that are missing. Returns how many there are; Null if this owner does \
              not hold the lock.",
    flags: "write fast",
    key: Some(KeyAccess::Update),
    /// LOCK.REENTER: adds one hold.
    #[derive(Clone, Copy, Debug)]
    pub struct Reenter<'a> {
        /// The owner that holds the lock.
        owner: Owner<'a>,
        [LEVEL n as level]
        /// The least number of holds afterwards. Without it, one more hold than before.
        level: Level,
        [TTL ms as ttl]
        /// Also extends the lease, to at least this length from now.
        ttl: Ttl,
        [ADOPT]
        /// True if another process of this owner continues the grant.
        adopts,
    }
}

command! {
    name: "LOCK.CONVERT",
    summary: "Makes an exclusive grant shared, or a shared one exclusive if nobody shares it. Never waits. Returns \
              the token: the same for SHARED, a new one for EXCLUSIVE; Null if the grant cannot be converted.",
    flags: "write fast",
    key: Some(KeyAccess::Update),
    /// LOCK.CONVERT: changes the grant's mode.
    #[derive(Clone, Copy, Debug)]
    pub struct Convert<'a> {
        /// The owner that holds the lock.
        owner: Owner<'a>,
        /// The mode that the grant is to have.
        to as mode: Conversion,
        [TOKEN t as token]
        /// Convert only if the grant has this token.
        token: Token,
    }
}

command! {
    name: "LOCK.NOTE",
    summary: "Replaces the note of a grant; with SEQ only if that is larger than the last sequence number. Returns \
              the note's sequence number; Null if this owner does not hold the lock.",
    // The server refuses this command above `maxmemory`, because the new note may be longer than the last one.
    flags: "write fast deny-oom",
    key: Some(KeyAccess::Update),
    /// LOCK.NOTE: replaces the note.
    #[derive(Clone, Copy, Debug)]
    pub struct Annotate<'a> {
        /// The owner that holds the lock.
        owner: Owner<'a>,
        /// The note that replaces the present one.
        note as text: Note<'a>,
        [SEQ n]
        /// The note's sequence number. Without it, one more than the last one's.
        sequence: NoteSequence,
        [TOKEN t as token]
        /// Replace only if the grant has this token.
        token: Token,
    }
}

command! {
    name: "LOCK.FENCE",
    summary: "Raises the token of a grant, never lowers it. Returns the token; Null if this owner does not hold the \
              lock. For clients that lock on several nodes.",
    flags: "write fast",
    key: Some(KeyAccess::Update),
    /// LOCK.FENCE: raises the token of a grant.
    #[derive(Clone, Copy, Debug)]
    pub struct Fence<'a> {
        /// The owner that holds the lock.
        owner: Owner<'a>,
        /// The token that the grant has afterwards, unless it has a larger one already.
        token: Token,
    }
}
