//! A client that locks on one node: waits in that node's queue, re-enters and extends its lock, and repeats a request
//! whose answer was lost.
//!
//! The client takes one lock at a time, and waits for one answer at a time. Times are those of its own clocks.

use palisade_core::quorum::{granted_after, valid_until};
use palisade_core::{BootTime, Now, WaiterId, Wanted};

use crate::client::{Status, Step};
use crate::history::{HeldAs, Holder};
use crate::messages::{Command, Hears, Payload, Replied, Reply, Request};
use crate::rules::{Rule, Without};

/// The number of the first client that locks on one node. Other clients have smaller numbers.
pub const FIRST: u32 = 100;

/// Returns true if the request that waits as `id` comes from a client that locks on one node.
pub fn is_one(id: WaiterId) -> bool {
    id.0 >> 32 >= u64::from(FIRST)
}

/// Returns the owner in an owner name of this crate: its first 8 bytes. A rule that is switched off may add a suffix.
pub fn owner_of(name: &[u8]) -> &[u8] {
    &name[..name.len().min(8)]
}

/// The client's stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    Acquiring {
        since: BootTime,
        wait_ms: u32,
    },
    Holding {
        since: BootTime,
        until: BootTime,
        token: u64,
        level: u32,
    },
}

/// A request that awaits its answer.
#[derive(Clone, Copy, Debug)]
struct Open {
    number: u32,
    command: Command,
    sent: BootTime,
}

/// A client of one node.
#[derive(Clone, Debug, Default)]
pub struct SingleClient {
    number: u32,
    acquisition: u32,
    node: usize,
    key: u32,
    ttl_ms: u32,
    without: Without,
    /// The requested mode, and the mode in which the client relies on its lock.
    wanted: Wanted,
    mode: HeldAs,
    stage: Stage,
    open: Option<Open>,
    requests: u32,
    /// True if the client knows its number of holds: no answer was missed, and the node is in the same incarnation.
    is_sure: bool,
    wrong: Option<&'static str>,
}

impl SingleClient {
    /// Returns client `number`, which locks on the node with the index `node`.
    pub fn new(number: u32, node: usize, ttl_ms: u32, without: Without) -> Self {
        Self { number, node, ttl_ms, without, is_sure: true, ..Self::default() }
    }

    /// Returns the current acquisition, or the last one if there is no current one.
    pub fn who(&self) -> Holder {
        Holder { client: self.number, acquisition: self.acquisition }
    }

    /// Returns the key of the acquisition [`who`](Self::who).
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Returns the mode in which the client relies on that lock.
    pub fn mode(&self) -> HeldAs {
        self.mode
    }

    /// Returns true if the client does nothing.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// Returns true if the client waits for its lock.
    pub fn is_acquiring(&self) -> bool {
        matches!(self.stage, Stage::Acquiring { .. })
    }

    /// Returns true if no answer is pending.
    pub fn is_free(&self) -> bool {
        self.open.is_none()
    }

    /// Returns true if the answer to request `number` is pending.
    pub fn awaits(&self, number: u32) -> bool {
        self.open.is_some_and(|open| open.number == number)
    }

    /// Returns what the client knows of its lock: the time at which it began to ask, the time until which it relies on
    /// the lock, the token, and the number of holds.
    pub fn holding(&self) -> Option<(BootTime, BootTime, u64, u32)> {
        match self.stage {
            Stage::Holding { since, until, token, level } => Some((since, until, token, level)),
            _ => None,
        }
    }

    /// Describes an answer that no correct node gives, if the client received one.
    pub fn wrong(&self) -> Option<&'static str> {
        self.wrong
    }

    /// Records that the connection ended. The node may not have received the last requests.
    pub fn is_cut_off(&mut self) {
        self.is_sure = false;
    }

    // Actions of the client.

    /// Begins to take `key` in this mode. Waits up to `wait_ms`.
    pub fn acquire(&mut self, key: u32, wanted: Wanted, wait_ms: u32, now: Now) -> Step {
        self.acquisition += 1;
        (self.key, self.wanted, self.is_sure) = (key, wanted, true);
        self.stage = Stage::Acquiring { since: now.boot, wait_ms };
        self.send(Command::Acquire { ttl_ms: self.ttl_ms, wait_ms, retry: false }, now)
    }

    /// Sends the pending request again over another connection, because its answer was lost.
    pub fn repeat(&mut self, now: Now) -> Step {
        let Some(open) = self.open.take() else { return Step::default() };
        self.is_sure = false;
        match (self.stage, open.command) {
            (Stage::Acquiring { wait_ms, .. }, _) => {
                let repeated = Command::Acquire { ttl_ms: self.ttl_ms, wait_ms, retry: true };
                self.send(repeated, now)
            }
            // Sending a request for one more hold twice would add two holds.
            (_, Command::Reenter { level: None, .. }) => Step::default(),
            (_, command) => self.send(command, now),
        }
    }

    /// Extends the lock.
    pub fn extend(&mut self, now: Now) -> Step {
        self.send(Command::Extend { ttl_ms: self.ttl_ms }, now)
    }

    /// Turns a writer into a reader. The client counts as a reader from now on, even if the node has not received the
    /// request.
    pub fn share(&mut self, now: Now) -> Step {
        self.mode = HeldAs::Shared;
        Step { says: Some(Status::Converted), ..self.send(Command::Convert { shares: true }, now) }
    }

    /// Asks, as a reader, to become the writer. The node agrees if there is no other reader.
    pub fn convert_up(&mut self, now: Now) -> Step {
        self.send(Command::Convert { shares: false }, now)
    }

    /// Takes one more hold. With `says_level`, or if the client is not sure of its holds, the request names their new
    /// number. With `extends`, it also extends the lease.
    pub fn reenter(&mut self, says_level: bool, extends: bool, now: Now) -> Step {
        let level = self.holding().map(|(.., level)| level + 1).filter(|_| says_level || !self.is_sure);
        self.send(Command::Reenter { level, ttl_ms: extends.then_some(self.ttl_ms) }, now)
    }

    /// Releases one hold, unless it is the last.
    pub fn release_one(&mut self, now: Now) -> Step {
        let Some((.., level)) = self.holding().filter(|(.., level)| *level > 1) else { return Step::default() };
        self.send(Command::Release { level }, now)
    }

    /// Releases the lock with all its holds.
    pub fn release(&mut self, now: Now) -> Step {
        let says = self.end();
        let step = self.send(Command::Release { level: 1 }, now);
        self.open = None;
        Step { says, ..step }
    }

    /// Stops waiting and closes the connection.
    pub fn leave(&mut self, now: Now) -> Step {
        let open = self.open.take();
        let says = self.end();
        let Some(Open { number, .. }) = open else { return Step { sends: vec![], says } };
        let step = self.send(Command::Closed { number }, now);
        self.open = None;
        Step { says, ..step }
    }

    /// Asks for one more hold of the last lock, on which the client no longer relies. Ignores the answer.
    pub fn reenters_too_late(&mut self, now: Now) -> Step {
        let step = self.send(Command::Reenter { level: None, ttl_ms: Some(self.ttl_ms) }, now);
        self.open = None;
        step
    }

    fn end(&mut self) -> Option<Status> {
        let says = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => None,
            Stage::Acquiring { .. } => Some(Status::Left),
            Stage::Holding { .. } => Some(Status::Ended),
        };
        self.open = None;
        says
    }

    // Answers to the client.

    /// Processes `reply`; ignores an unexpected one.
    pub fn hear(&mut self, reply: &Reply, now: Now) -> Step {
        let Some(Open { command, sent, .. }) = self.open.filter(|open| open.number == reply.number) else {
            return Step::default();
        };
        let Hears::Replied(replied) = reply.says else { return Step::default() };
        self.open = None;
        match (self.stage, replied) {
            (Stage::Acquiring { since, .. }, Replied::Granted { token, number, waited_ms }) => {
                let until = valid_until(self.granted(sent, waited_ms), self.ttl_ms);
                if now.boot >= until {
                    return self.release(now);
                }
                self.stage = Stage::Holding { since, until, token, level: 1 };
                self.mode = HeldAs::of(self.wanted, number);
                Step { sends: vec![], says: Some(Status::Held) }
            }
            (Stage::Acquiring { .. }, _) => {
                if matches!(command, Command::Acquire { retry: true, .. }) && replied == Replied::Owned {
                    self.wrong = Some("who repeats its request is told that it has the lock already");
                }
                Step { sends: vec![], says: self.end() }
            }
            (Stage::Holding { since, until, token, level }, Replied::Extended | Replied::Holds(_)) => {
                let level = self.counts(command, replied, level);
                let asked_ms = match command {
                    Command::Extend { ttl_ms } => Some(ttl_ms),
                    Command::Reenter { ttl_ms, .. } => ttl_ms,
                    _ => None,
                };
                let later = asked_ms.map_or(until, |ttl_ms| valid_until(sent, ttl_ms).max(until));
                // The lock was lost before the answer came.
                if now.boot >= until {
                    return self.release(now);
                }
                self.stage = Stage::Holding { since, until: later, token, level };
                Step { sends: vec![], says: (later > until).then_some(Status::Extended) }
            }
            (Stage::Holding { since, until, level, .. }, Replied::Converted { token }) => {
                if now.boot >= until {
                    return self.release(now);
                }
                self.stage = Stage::Holding { since, until, token, level };
                let is_writer = command == Command::Convert { shares: false };
                if is_writer {
                    self.mode = HeldAs::Exclusive;
                }
                Step { sends: vec![], says: is_writer.then_some(Status::Converted) }
            }
            // The conversion is refused because there are other readers.
            (Stage::Holding { .. }, Replied::Null) if command == (Command::Convert { shares: false }) => {
                Step::default()
            }
            // The lock was broken, or its lease has ended.
            (Stage::Holding { .. }, Replied::Null) => Step { sends: vec![], says: self.end() },
            (Stage::Holding { .. } | Stage::Idle, _) => Step::default(),
        }
    }

    /// Returns the number of holds that the answered command was meant to give. Records an error if the client was sure
    /// of its holds and the answer has another number.
    fn counts(&mut self, command: Command, replied: Replied, level: u32) -> u32 {
        let Replied::Holds(holds) = replied else { return level };
        let meant = match command {
            Command::Reenter { level: asked, .. } => asked.unwrap_or(level + 1),
            Command::Release { level: asked } => asked - 1,
            _ => level,
        };
        if self.is_sure && holds != meant {
            self.wrong = Some("its only holder is told of other holds than it has");
        }
        meant
    }

    /// Returns the earliest start of the lease. `waited_ms` is the time for which the request waited, according to the
    /// node.
    fn granted(&self, sent: BootTime, waited_ms: u64) -> BootTime {
        if self.without.is(Rule::WaitLessDrift) {
            sent.plus_us(waited_ms * 1_000)
        } else {
            granted_after(sent, waited_ms)
        }
    }

    /// Checks the clock: a lock whose validity has ended is lost.
    pub fn look(&mut self, now: Now) -> Step {
        match self.stage {
            Stage::Holding { until, .. } if now.boot >= until => self.release(now),
            _ => Step::default(),
        }
    }

    fn send(&mut self, command: Command, now: Now) -> Step {
        self.requests += 1;
        let (who, key, node, number, wanted) = (self.who(), self.key, self.node, self.requests, self.wanted);
        self.open = Some(Open { number, command, sent: now.boot });
        let request =
            Request { who, key, node, number, wanted, joined: None, meant: None, says: Payload::Command(command) };
        Step { sends: vec![(0, request)], says: None }
    }
}
