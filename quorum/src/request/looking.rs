//! Commands that read a lock or wait for one, and the operator's command that breaks one.

use super::values::{Behind, ListedHolders, ListedWaiters, ListenerName, Note, NoteSequence, Owner, Patience, Ticket};
use super::words::{Count, KnownToken, wanted};
use crate::grammar::declaration::command;
use crate::grammar::{Bounds, KeyAccess, Spec};
use crate::refusal::Refusal;
use crate::values::mode::Wanted;
use crate::values::token::Token;

command! {
    name: "LOCK.CHECK",
    summary: "Returns how many milliseconds are left of the grant with this token; Null if no grant has it. For the \
              resource that the lock protects.",
    flags: "readonly fast",
    key: Some(KeyAccess::Read),
    /// LOCK.CHECK: shows whether a grant has exactly this token now.
    #[derive(Clone, Copy, Debug)]
    pub struct Check {
        /// The token that the resource received.
        token: Token,
    }
}

command! {
    name: "LOCK.INFO",
    summary: "Shows who holds a lock, with which token, since when and for how long; of several holders the oldest. \
              With HOLDERS and WAITERS also lists holders and waiters. Null if the lock is free.",
    flags: "readonly fast",
    key: Some(KeyAccess::Read),
    /// LOCK.INFO: shows who holds the lock.
    #[derive(Clone, Copy, Debug)]
    pub struct Info {
        [HOLDERS n]
        /// The number of holders to list.
        holders: ListedHolders,
        [WAITERS n]
        /// The number of waiters to list.
        waiters: ListedWaiters,
    }
}

command! {
    name: "LOCK.WATCH",
    summary: "Waits until no grant has this token, or its note is newer; without TOKEN until somebody holds the \
              lock. Returns the lock as LOCK.INFO does, with token 0 if it is free; Null if nothing happened in \
              time.",
    flags: "readonly fast blocking",
    key: Some(KeyAccess::Read),
    struct WatchWords {
        ms: Patience,
        [TOKEN t as token] token: KnownToken,
        [SEQ n] seq: NoteSequence,
    }
}

/// LOCK.WATCH: answers when the lock is no longer in the state that the caller knows.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// The state that the caller knows.
    pub known: Known,
    /// The longest time to wait for another state.
    pub patience: Patience,
}

/// The state of a lock that a caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// The lock was free when the caller last saw it.
    Free,
    /// The lock has a grant with this token. The caller knows its notes up to this sequence number; `None` if notes do
    /// not matter to it.
    Grant(Token, Option<NoteSequence>),
}

impl Watch {
    /// The description of the command.
    pub const SPEC: Spec = WatchWords::SPEC;

    /// Parses the words after the key.
    pub fn read<'w>(words: impl Iterator<Item = &'w [u8]>, bounds: Bounds) -> Result<Self, Refusal> {
        let WatchWords { ms: patience, token, seq } = WatchWords::read(words, bounds)?;
        let known = match (token, seq) {
            (Some(KnownToken(Some(token))), seq) => Known::Grant(token, seq),
            // In the answer for a free lock, the token is 0 and a sequence number follows. Callers send both back, so
            // the second one may be there.
            (Some(KnownToken(None)), _) | (None, None) => Known::Free,
            (None, Some(_)) => return Err(Refusal::Needs { option: "SEQ", needs: "TOKEN" }),
        };
        Ok(Self { known, patience })
    }
}

command! {
    name: "LOCK.WAIT",
    summary: "Waits until this owner could have a lock, and reserves the lock for a moment. Returns the number of \
              the permit, 1 without LIMIT; 0 if the time is up. Grants nothing. For clients that lock on several \
              nodes.",
    flags: "readonly fast blocking",
    // LOCK.WAIT changes no key, but can reserve a free lock for its owner. So it needs the permission to write the key.
    key: Some(KeyAccess::Update),
    struct WaitWords<'a> {
        owner: Owner<'a>,
        ms: Patience,
        [TICKET n] ticket: Ticket,
        [SHARED] shared,
        [LIMIT k as limit] limit: Count,
        [PERMIT n as number] permit: Count,
        [NOTE text] note: Note<'a>,
        [BEHIND n as behind] behind: Behind,
        [HEARD name] heard: ListenerName<'a>,
    }
}

/// LOCK.WAIT: waits for an owner's turn at the lock.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// The owner that waits for its turn.
    pub owner: Owner<'a>,
    /// The mode in which the owner wants the lock.
    pub wanted: Wanted,
    /// The longest time to wait in the queue.
    pub patience: Patience,
    /// The place in the queue that the request asks for: smaller tickets come first.
    pub ticket: Option<Ticket>,
    /// A note for people, which LOCK.INFO shows.
    pub note: Note<'a>,
    /// The number of callers that wait behind this request in its client.
    pub behind: Behind,
}

/// A LOCK.WAIT as the client sent it: the request, and who receives its answer.
#[derive(Clone, Copy, Debug)]
pub struct AskedWait<'a> {
    /// The request for a turn itself.
    pub request: Wait<'a>,
    /// The listener that receives the answer; `None` if this connection waits for it.
    pub heard: Option<ListenerName<'a>>,
}

impl<'a> Wait<'a> {
    /// The description of the command.
    pub const SPEC: Spec = WaitWords::SPEC;

    /// Parses the words after the key.
    #[inline(always)]
    pub fn read(words: impl Iterator<Item = &'a [u8]>, bounds: Bounds) -> Result<AskedWait<'a>, Refusal> {
        let WaitWords { owner, ms: patience, ticket, shared, limit, permit, note, behind, heard } =
            WaitWords::read(words, bounds)?;
        let (wanted, note, behind) =
            (wanted(shared, limit, permit)?, note.unwrap_or_default(), behind.unwrap_or_default());
        Ok(AskedWait { request: Wait { owner, wanted, patience, ticket, note, behind }, heard })
    }
}

command! {
    name: "LOCK.HEAR",
    summary: "Makes this connection a listener. Returns the results of requests that name it (LOCK.WAIT with HEARD), \
              or the first that comes in time; an empty list if none does. For clients that wait for many locks.",
    flags: "fast blocking",
    key: None,
    /// LOCK.HEAR: makes the connection a listener, and returns answers to waiting requests of other connections.
    #[derive(Clone, Copy, Debug)]
    pub struct Hear<'a> {
        /// The name of the listener.
        name: ListenerName<'a>,
        /// The longest time to wait for an answer.
        patience as ms: Patience,
    }
}

command! {
    name: "LOCK.BREAK",
    summary: "Frees a lock, or ends only the grants with one token, whatever client holds them. Returns the largest \
              token that it ended; Null if there is none. For operators: the holder goes on until it learns of this.",
    flags: "write fast",
    key: Some(KeyAccess::Delete),
    /// LOCK.BREAK: ends the grants of a lock.
    #[derive(Clone, Copy, Debug)]
    pub struct Break {
        [TOKEN t as token]
        /// Break only grants with this token.
        token: Token,
    }
}
