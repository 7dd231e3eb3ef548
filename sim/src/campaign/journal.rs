//! The journal of a process of the campaign: a file of lines, each written by one call. A killed process thus leaves
//! only whole lines, and has recorded everything that it did before.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::resource::{Answer, Entry};
use crate::history::{Event, Holder, TimeUs};

/// Returns the boot clock in microseconds, which is one clock for all processes of a machine, and which no process can
/// set. The campaign uses it as true time.
pub fn now_us() -> TimeUs {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Returns the true wall clock, in microseconds.
pub fn wall_us() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// A lease that the node keeps for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLease {
    /// The moment at which the request was sent.
    pub since: TimeUs,
    /// The moment at which the holder learned of its lease.
    pub at: TimeUs,
    /// The node, counted from 0.
    pub node: usize,
    /// The holder of the lease.
    pub who: Holder,
    /// The lease's length, in milliseconds.
    pub ttl_ms: u64,
    /// The time until which the node has to keep the lease alive: KEEPALIVE, counted from before the request.
    pub until: TimeUs,
}

/// The end of a kept lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// The holder released the lock.
    Released,
    /// The node said that the holder no longer has it.
    Lost,
    /// The connection broke, or the node gave an unexpected answer.
    Unknown,
    /// The holder closed its connection, and the lease ended in time afterwards.
    LeftAndOver,
    /// The holder closed its connection, but the lease did not end in time.
    LeftAndHeld,
}

/// A line of a journal; `at` is when the process learned of the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// An event that the referee judges.
    Event(Event),
    /// A lock was requested with `lock` (`waits`) or `try_lock`; the answer is `held`, or the kind of error.
    Asked { at: TimeUs, key: u32, waits: bool, took_us: u64, answer: String },
    /// The holder learned that its lock was lost. It had relied on the lock until `until`.
    Lost { at: TimeUs, key: u32, who: Holder, until: TimeUs },
    /// A lock was released; the answer is `Released`, `AlreadyExpired` and so on.
    Released { at: TimeUs, answer: String },
    /// An agent answered a RELEASE, sent at `sent`, that the owner had held the lock until now.
    ToldHeld { sent: TimeUs, at: TimeUs, key: u32, who: Holder },
    /// A lease begins that KEEPALIVE keeps.
    Kept(KeptLease),
    /// The holder learned that its kept lease ended, and how.
    KeptEnded { at: TimeUs, who: Holder, how: Ended },
    /// A candidate begins to campaign.
    Campaigns { at: TimeUs, election: u32, who: Holder },
    /// A candidate leads.
    Won { at: TimeUs, election: u32, who: Holder, term: u64 },
    /// A leader proclaimed a value again.
    Proclaimed { at: TimeUs, who: Holder },
    /// An observer learned of a leader. `sequence` is the number of the leader's proclamation.
    Observed { at: TimeUs, election: u32, observer: Holder, leader: Holder, term: u64, sequence: u64 },
    /// A write to a resource that checks tokens, sent at `sent`.
    Gated { sent: TimeUs, at: TimeUs, resource: u32, entry: Entry, answer: Answer },
    /// A violation that the process itself observed.
    Wrong { at: TimeUs, what: String },
}

/// The file of a process's lines.
#[derive(Debug)]
pub struct Journal(Mutex<File>);

impl Journal {
    /// Opens a journal at `path`.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)))
    }

    /// Writes a line, with one call.
    ///
    /// # Panics
    ///
    /// If the line cannot be written: a campaign without its journal proves nothing.
    pub fn write(&self, line: &Line) {
        let mut text = serde_json::to_vec(line).expect("a line is plain data");
        text.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write(&text).expect("the journal can be written");
        assert_eq!(written, text.len(), "the journal's disk is full");
    }
}

/// A reader that follows a journal while it grows.
#[derive(Debug)]
pub struct Follower {
    file: File,
    rest: Vec<u8>,
}

impl Follower {
    /// Opens a journal for reading from its beginning.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, rest: vec![] })
    }

    /// Returns the whole lines written since the last call.
    ///
    /// # Panics
    ///
    /// If the journal cannot be read, or a line is invalid.
    pub fn read(&mut self) -> Vec<Line> {
        self.file.read_to_end(&mut self.rest).expect("the journal can be read");
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return vec![] };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let lines = whole.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("a journal has whole lines only")).collect()
    }
}
