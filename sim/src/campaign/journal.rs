//! What each process of a campaign leaves behind: a file of lines, each written by one call, so that a process which is
//! killed leaves whole lines only, and nothing that it has done before is missing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::history::{Event, Holder, TimeUs};

/// Microseconds of the boot clock: one for all processes of a machine, and nobody can set it. The true time of a campaign.
pub fn now_us() -> TimeUs {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// The true wall clock, in microseconds.
pub fn wall_us() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// A lease that the node keeps for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// When it was asked for.
    pub since: TimeUs,
    /// When the holder knew.
    pub at: TimeUs,
    /// On which node, from 0 on.
    pub node: usize,
    /// Whose.
    pub who: Holder,
    /// How long the lease is, in milliseconds.
    pub ttl_ms: u64,
    /// KEEPALIVE ends then, or later.
    pub until: TimeUs,
}

/// How a lease that was kept ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// Its holder gave it back.
    Released,
    /// The node said that the holder has it no more.
    Lost,
    /// The connection broke, or the node did not answer as it should.
    Unknown,
    /// The holder closed its connection, and the lease was over then.
    LeftAndOver,
    /// The same, and it was not.
    LeftAndHeld,
}

/// One line of a journal; `at` is when it was known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// For the referee.
    Event(Event),
    /// A lock was asked for, with `lock` (`waits`) or `try_lock`, and this is the answer: `held`, or the kind of error.
    Asked { at: TimeUs, key: u32, waits: bool, took_us: u64, answer: String },
    /// The holder was told that its lock is lost, on which it had relied until then.
    Lost { at: TimeUs, key: u32, who: Holder, until: TimeUs },
    /// A lock was given back, and this is the answer: `Released`, `AlreadyExpired` and so on.
    Released { at: TimeUs, answer: String },
    /// An agent answered to a RELEASE, sent at that time, that the owner held the lock until now.
    ToldHeld { sent: TimeUs, at: TimeUs, key: u32, who: Holder },
    /// A lease that is kept by KEEPALIVE begins.
    Kept(Kept),
    /// It ended.
    KeptEnded { at: TimeUs, who: Holder, how: Ended },
    /// A candidate begins to campaign.
    Campaigns { at: TimeUs, election: u32, who: Holder },
    /// It leads.
    Won { at: TimeUs, election: u32, who: Holder, term: u64 },
    /// A leader proclaimed once more.
    Proclaimed { at: TimeUs, who: Holder },
    /// An observer was told who leads, and the number of what that one proclaims.
    Observed { at: TimeUs, election: u32, observer: Holder, leader: Holder, term: u64, sequence: u64 },
    /// Something that must not be.
    Wrong { at: TimeUs, what: String },
}

/// Where a process writes its lines.
#[derive(Debug)]
pub struct Journal(Mutex<File>);

impl Journal {
    /// Begins one at `path`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)))
    }

    /// Writes a line, by one call.
    ///
    /// # Panics
    /// It cannot be written: a campaign without its journal proves nothing.
    pub fn write(&self, line: &Line) {
        let mut text = serde_json::to_vec(line).expect("a line is plain data");
        text.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write(&text).expect("the journal can be written");
        assert_eq!(written, text.len(), "the journal's disk is full");
    }
}

/// Reads a journal while it grows.
#[derive(Debug)]
pub struct Follower {
    file: File,
    rest: Vec<u8>,
}

impl Follower {
    /// From its beginning.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, rest: vec![] })
    }

    /// The whole lines that have come since the last call.
    ///
    /// # Panics
    /// The journal cannot be read, or a line is none.
    pub fn read(&mut self) -> Vec<Line> {
        self.file.read_to_end(&mut self.rest).expect("the journal can be read");
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return vec![] };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let lines = whole.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("a journal has whole lines only")).collect()
    }
}
