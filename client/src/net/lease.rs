//! One acquisition of a key, and the commands about it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palisade_quorum::limits::BEHIND_MAX;
use palisade_quorum::{Ask, Token, Wanted};
use redis::{Cmd, Value};

use crate::Why;
use crate::metrics::Class;
use crate::net::wire::permit_number;
use crate::values::attempt_name::attempt_of;
use crate::values::shown_key::ShownKey;

/// Space reserved for a command: the number of its arguments, and the bytes of those that are not fields of the lease.
const ARGUMENTS: usize = 12;
const ARGUMENTS_BYTES: usize = 96;

/// One acquisition of a key. Any client that knows its owner's name can extend and release the lock.
#[derive(Debug)]
pub struct Lease {
    /// The key of the lock.
    pub key: Arc<[u8]>,
    /// The name of this attempt on the nodes ([`attempt_of`]).
    pub owner: Arc<[u8]>,
    /// True if the caller chose the owner's name, so that another process may continue the lock.
    is_named: bool,
    /// The note for people.
    pub note: Vec<u8>,
    /// The value of the metrics label `class`.
    pub class: Class,
    /// The requested mode. It changes at most twice: when the number of a permit is known, and when a writer becomes a
    /// reader.
    wanted: Mutex<Wanted>,
    /// For each node, whether a request was sent there that may have been granted or queued.
    may_have: Box<[AtomicBool]>,
    /// True if every node may have the lock, because it is unknown where requests were sent.
    is_anywhere: AtomicBool,
    /// The length of the longest lease that was asked for, in milliseconds.
    longest_ms: AtomicU32,
    /// The owner's later words to the nodes. A node that loses the lock and grants it again has to hear them again.
    told: Mutex<Told>,
}

/// An owner's words to the nodes since the grant of its lock.
#[derive(Debug, Default)]
struct Told {
    /// The number of its holds, if it re-entered the lock.
    holds: Option<u32>,
    /// The last note, with the sequence number.
    note: Option<(Vec<u8>, u64)>,
}

impl Lease {
    /// Creates a new attempt on `nodes` nodes. `name` is the owner's name if the caller chose one, and `request` the
    /// number of the request.
    pub fn new(
        key: Arc<[u8]>,
        (name, request): (Option<&[u8]>, u32),
        note: &[u8],
        wanted: Wanted,
        nodes: usize,
    ) -> Self {
        Self {
            key,
            owner: attempt_of(name, request),
            is_named: name.is_some(),
            note: note.to_vec(),
            class: Class::default(),
            wanted: Mutex::new(wanted),
            may_have: (0..nodes).map(|_| AtomicBool::new(false)).collect(),
            is_anywhere: AtomicBool::new(false),
            longest_ms: AtomicU32::new(0),
            told: Mutex::default(),
        }
    }

    /// Creates the attempt of another process; every node may have its grant. The longest of its leases that a node shows
    /// lasts for `left_ms` milliseconds.
    pub fn of_another(key: &Arc<[u8]>, attempt: &[u8], note: &[u8], wanted: Wanted, left_ms: u32) -> Self {
        Self {
            key: Arc::clone(key),
            owner: attempt.into(),
            is_named: true,
            note: note.to_vec(),
            class: Class::default(),
            wanted: Mutex::new(wanted),
            may_have: [].into(),
            is_anywhere: AtomicBool::new(true),
            longest_ms: AtomicU32::new(left_ms),
            told: Mutex::default(),
        }
    }

    /// Sets the value of the metrics label `class` for the lock.
    pub fn of_class(mut self, class: &Class) -> Self {
        self.class = class.clone();
        self
    }

    /// Returns whether another process may continue the lock.
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// Returns the command that releases an attempt whose grant was reported to nobody. If the caller chose the
    /// owner's name, the command has no LEVEL: another process may have found and [adopted](Self::adopt) the grant,
    /// and RELEASE without LEVEL and TOKEN leaves an adopted grant.
    pub fn give_up(&self) -> Cmd {
        match self.is_named {
            true => self.about("LOCK.RELEASE"),
            false => self.release(1),
        }
    }

    /// Returns the requested mode.
    pub fn wanted(&self) -> Wanted {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the requested mode: to a permit of a certain number, or to shared.
    pub fn set_wanted(&self, wanted: Wanted) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
    }

    /// Checks the permit number that a node granted; the first one is recorded. Returns whether it matches.
    pub fn is_number(&self, granted: u16) -> bool {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *wanted {
            Wanted::Permit { limit, number } => {
                (1..=*limit).contains(&granted) && *number.get_or_insert(granted) == granted
            }
            Wanted::Exclusive | Wanted::Shared => granted == 1,
        }
    }

    /// Returns a node's reply, or an error if it grants another permit than the other nodes.
    pub fn checked(&self, reply: Result<Value, Why>) -> Result<Value, Why> {
        match reply.as_ref().ok().and_then(permit_number) {
            Some(number) if !self.is_number(number) => {
                Err(Why::Broken(format!("it granted permit {number}, which was not asked for")))
            }
            _ => reply,
        }
    }

    /// Returns the permit number; 1 in the other modes, and before it is known.
    pub fn number(&self) -> u16 {
        match self.wanted() {
            Wanted::Permit { number, .. } => number.unwrap_or(1),
            Wanted::Exclusive | Wanted::Shared => 1,
        }
    }

    /// Records the number of holds that the owner has now.
    pub fn set_holds(&self, holds: u32) {
        self.told().holds = Some(holds);
    }

    /// Records a note of the owner, unless one with this number or a larger one is recorded. Of two notes with one number,
    /// nodes keep the first, too.
    pub fn set_note(&self, text: &[u8], sequence: u64) {
        let note = &mut self.told().note;
        if note.as_ref().is_none_or(|(_, last)| *last < sequence) {
            *note = Some((text.to_vec(), sequence));
        }
    }

    /// Returns the commands that repeat, to a node that has granted the lock anew, what the owner told the nodes.
    pub fn repeated(&self) -> Vec<Cmd> {
        let told = self.told();
        let holds = told.holds.filter(|holds| *holds > 1).map(|holds| self.reenter(holds));
        let note = told.note.as_ref().map(|(text, sequence)| self.note(text, *sequence));
        holds.into_iter().chain(note).collect()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request was sent to this node.
    pub fn mark_sent(&self, node: usize) {
        if let Some(may_have) = self.may_have.get(node) {
            may_have.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the set of nodes changed. The nodes have other indexes then, so every node may have the lock.
    pub fn moves(&self) {
        self.is_anywhere.store(true, Ordering::Relaxed);
    }

    /// Returns whether this node may have granted the lock, or have a request for it in its queue.
    pub fn may_be_at(&self, node: usize) -> bool {
        self.is_anywhere.load(Ordering::Relaxed)
            || self.may_have.get(node).is_some_and(|has| has.load(Ordering::Relaxed))
    }

    /// Returns a time, in milliseconds, in which every lease of this attempt ends if it is not extended.
    pub fn lasts_ms(&self) -> u32 {
        self.longest_ms.load(Ordering::Relaxed)
    }

    /// Returns the lock's key in a printable form.
    pub fn shown_key(&self) -> ShownKey<'_> {
        ShownKey(&self.key)
    }

    /// Returns the command that sends `ask`, a request of the quorum's state machines, to a node.
    pub fn command(&self, ask: Ask) -> Cmd {
        if let Ask::Acquire { ttl_ms, .. } | Ask::Extend { ttl_ms, .. } = ask {
            self.longest_ms.fetch_max(ttl_ms, Ordering::Relaxed);
        }
        match ask {
            Ask::Acquire { ttl_ms, proposal, retry } => {
                let mut command = self.acquire(ttl_ms, proposal);
                if retry {
                    command.arg("RETRY");
                }
                command
            }
            Ask::Fence { token } => self.about("LOCK.FENCE").arg(token.get()).take(),
            Ask::Extend { ttl_ms, token } => self.about("LOCK.EXTEND").arg(ttl_ms).arg("TOKEN").arg(token.get()).take(),
            Ask::Share => self.about("LOCK.CONVERT").arg("SHARED").take(),
        }
    }

    /// Returns the command that asks a single node for the lock, and waits in its queue for up to `wait_ms`
    /// milliseconds. If `behind` is given, the node learns that this many requests of this process wait behind it.
    pub fn acquire_waiting(&self, ask: Ask, wait_ms: u64, behind: Option<usize>) -> Cmd {
        // If the request is repeated on another connection, it must find its own grant.
        let mut command = self.command(ask).arg("RETRY").arg("WAIT").arg(wait_ms).take();
        add_behind(&mut command, behind);
        command
    }

    /// Returns the command that waits for this owner's turn, for up to `ms` milliseconds. If `behind` is given, the
    /// command includes the note, and that this many requests of this process wait behind it.
    pub fn wait(&self, ms: u64, ticket: Token, behind: Option<usize>) -> Cmd {
        let mut command = self.about("LOCK.WAIT");
        command.arg(ms).arg("TICKET").arg(ticket.get());
        // The node chooses one of several permits.
        match self.wanted() {
            Wanted::Permit { limit, .. } => add_mode(&mut command, Wanted::Permit { limit, number: None }),
            wanted => add_mode(&mut command, wanted),
        }
        if behind.is_some() && !self.note.is_empty() {
            command.arg("NOTE").arg(&self.note);
        }
        add_behind(&mut command, behind);
        command
    }

    /// Returns the command that releases down to `level - 1` holds; 1 releases all.
    pub fn release(&self, level: u32) -> Cmd {
        self.about("LOCK.RELEASE").arg("LEVEL").arg(level).take()
    }

    /// Returns the command by which another process adopts the lock: nodes then ignore [`Self::give_up`] of the process
    /// that acquired it.
    pub fn adopt(&self) -> Cmd {
        self.reenter(1).arg("ADOPT").take()
    }

    /// Returns the command that raises the holds to at least `level`.
    pub fn reenter(&self, level: u32) -> Cmd {
        self.about("LOCK.REENTER").arg("LEVEL").arg(level).take()
    }

    /// Returns the command that replaces the note, with this sequence number.
    pub fn note(&self, text: &[u8], sequence: u64) -> Cmd {
        self.about("LOCK.NOTE").arg(text).arg("SEQ").arg(sequence).take()
    }

    fn acquire(&self, ttl_ms: u32, proposal: Token) -> Cmd {
        let mut command = self.about("LOCK.ACQUIRE");
        command.arg(ttl_ms);
        add_mode(&mut command, self.wanted());
        command.arg("FENCE").arg(proposal.get());
        if !self.note.is_empty() {
            command.arg("NOTE").arg(&self.note);
        }
        command
    }

    fn about(&self, name: &str) -> Cmd {
        let text = name.len() + self.key.len() + self.owner.len() + self.note.len();
        let mut command = Cmd::with_capacity(ARGUMENTS, text + ARGUMENTS_BYTES);
        command.arg(name).arg(&*self.key).arg(&*self.owner);
        command
    }
}

/// Adds the number of requests behind this one, if it is given.
fn add_behind(command: &mut Cmd, behind: Option<usize>) {
    if let Some(behind) = behind.filter(|behind| *behind > 0) {
        command.arg("BEHIND").arg(behind.min(BEHIND_MAX as usize));
    }
}

/// Adds the options for the mode to a command.
fn add_mode(command: &mut Cmd, wanted: Wanted) {
    match wanted {
        Wanted::Exclusive => {}
        Wanted::Shared => {
            command.arg("SHARED");
        }
        Wanted::Permit { limit, number } => {
            command.arg("LIMIT").arg(limit);
            if let Some(number) = number {
                command.arg("PERMIT").arg(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every ACQUIRE names the mode, also a repetition; LOCK.WAIT omits the permit number.
    #[test]
    fn each_request_names_its_mode() {
        let token = Token::new(7).unwrap();
        let said = |lease: &Lease, command: Cmd| {
            let of_lease =
                |argument: &redis::Arg<&[u8]>| matches!(argument, redis::Arg::Simple(bytes) if **bytes == *lease.owner);
            let arguments = command.args_iter().filter(|argument| !of_lease(argument));
            let texts = arguments.map(|argument| match argument {
                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            });
            texts.collect::<Vec<_>>().join(" ")
        };
        let permit = |number| Wanted::Permit { limit: 5, number };
        let cases = [
            (Wanted::Exclusive, "", ""),
            (Wanted::Shared, " SHARED", " SHARED"),
            (permit(None), " LIMIT 5", " LIMIT 5"),
            (permit(Some(2)), " LIMIT 5 PERMIT 2", " LIMIT 5"),
        ];
        for (wanted, acquires, waits) in cases {
            let lease = Lease::new((*b"k").into(), (None, 0), b"", wanted, 1);
            for (retry, repeats) in [(false, ""), (true, " RETRY")] {
                let ask = Ask::Acquire { ttl_ms: 9, proposal: token, retry };
                assert_eq!(said(&lease, lease.command(ask)), format!("LOCK.ACQUIRE k 9{acquires} FENCE 7{repeats}"));
            }
            let waiting = lease.acquire_waiting(Ask::Acquire { ttl_ms: 9, proposal: token, retry: false }, 5, None);
            assert_eq!(said(&lease, waiting), format!("LOCK.ACQUIRE k 9{acquires} FENCE 7 RETRY WAIT 5"));
            assert_eq!(said(&lease, lease.wait(5, token, None)), format!("LOCK.WAIT k 5 TICKET 7{waits}"));
            assert_eq!(said(&lease, lease.command(Ask::Share)), "LOCK.CONVERT k SHARED");
        }
    }

    /// A node that grants the lock anew receives the note that the other nodes have.
    #[test]
    fn of_two_notes_with_one_number_the_first_is_repeated() {
        let lease = Lease::of_another(&(*b"k").into(), b"me#1", b"", Wanted::Exclusive, 1_000);
        for (text, sequence) in [(b"first", 8), (b"other", 8), (b"older", 7)] {
            lease.set_note(text, sequence);
        }
        let repeated: Vec<_> = lease.repeated().iter().map(Cmd::get_packed_command).collect();
        assert_eq!(repeated, [lease.note(b"first", 8).get_packed_command()]);
    }

    /// A release is repeated for as long as a lease may last, also an extended one or one of another process.
    #[test]
    fn the_longest_lease_counts() {
        let token = Token::new(7).unwrap();
        let own = Lease::new((*b"k").into(), (None, 0), b"", Wanted::Exclusive, 1);
        let other = Lease::of_another(&(*b"k").into(), b"me#0", b"", Wanted::Exclusive, 40);
        for (lease, first) in [(own, 9), (other, 40)] {
            lease.command(Ask::Acquire { ttl_ms: 9, proposal: token, retry: false });
            let before = lease.lasts_ms();
            lease.command(Ask::Extend { ttl_ms: 60, token });
            lease.command(Ask::Extend { ttl_ms: 5, token });
            assert_eq!((before, lease.lasts_ms()), (first, 60));
        }
    }

    /// A LOCK.WAIT includes the note and the number of requests behind it only if the node says that it accepts them.
    #[test]
    fn for_whom_a_request_waits() {
        let (token, words) = (Token::new(7).unwrap(), |command: Cmd| {
            String::from_utf8_lossy(&command.get_packed_command()).into_owned()
        });
        let noted = Lease::new((*b"k").into(), (None, 0), b"web-1", Wanted::Exclusive, 1);
        let ask = Ask::Acquire { ttl_ms: 9, proposal: token, retry: false };
        let tells = |behind| (words(noted.wait(5, token, behind)), words(noted.acquire_waiting(ask, 5, behind)));
        let (wait, acquire) = tells(None);
        assert!(
            !wait.contains("NOTE")
                && !wait.contains("BEHIND")
                && acquire.contains("NOTE")
                && !acquire.contains("BEHIND")
        );
        let (wait, acquire) = tells(Some(0));
        assert!(wait.contains("web-1") && !wait.contains("BEHIND") && !acquire.contains("BEHIND"));
        let (wait, acquire) = tells(Some(2_000_000));
        assert!(
            wait.contains("BEHIND\r\n$7\r\n1000000") && acquire.contains("BEHIND\r\n$7\r\n1000000"),
            "{wait} {acquire}"
        );
    }

    #[test]
    fn a_permit_keeps_its_number() {
        let lease = |number| Lease::new((*b"k").into(), (None, 0), b"", Wanted::Permit { limit: 5, number }, 1);
        let any = lease(None);
        assert!(!any.is_number(0) && !any.is_number(6), "there is none such");
        assert!(any.is_number(4) && any.is_number(4) && !any.is_number(5), "it is the one that was granted first");
        assert_eq!((any.number(), lease(Some(2)).is_number(3)), (4, false));
        let granted = |number| Ok(Value::Array(vec![Value::Int(7), Value::Int(0), Value::Int(number)]));
        assert!(lease(Some(2)).checked(granted(2)).is_ok() && lease(Some(2)).checked(granted(3)).is_err());
        assert!(lease(Some(2)).checked(Ok(Value::Nil)).is_ok());
        assert!(!Lease::new((*b"k").into(), (None, 0), b"", Wanted::Shared, 1).is_number(2));
    }
}
