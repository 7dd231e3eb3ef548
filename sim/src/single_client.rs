//! A client that locks on one node: it waits in that node's queue, re-enters, extends, repeats itself where an answer was lost.
//!
//! It takes one lock at a time, and awaits one answer at a time. Times are those of its own clocks.

use palisade_core::quorum::{granted_after, valid_until};
use palisade_core::{BootTime, Now, WaiterId, Wanted};

use crate::client::{Status, Step};
use crate::history::{HeldAs, Holder};
use crate::messages::{Command, Hears, Replied, Reply, Request, Says};
use crate::rules::{Rule, Without};

/// The numbers of these clients begin here: those of others are smaller.
pub const FIRST: u32 = 100;

/// Whether the request that waits by the name `id` is that of such a client.
pub fn is_one(id: WaiterId) -> bool {
    id.0 >> 32 >= u64::from(FIRST)
}

/// The owner in a name that was made of it.
pub fn owner_of(name: &[u8]) -> &[u8] {
    &name[..name.len().min(8)]
}

/// What it is doing.
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
    /// What it asks for, and how it relies on what it has.
    wanted: Wanted,
    mode: HeldAs,
    stage: Stage,
    open: Option<Open>,
    requests: u32,
    /// No answer was missed, and the node is in the same incarnation: it knows how many holds it has.
    is_sure: bool,
    wrong: Option<&'static str>,
}

impl SingleClient {
    /// Client `number`, of the node in this place.
    pub fn new(number: u32, node: usize, ttl_ms: u32, without: Without) -> Self {
        Self { number, node, ttl_ms, without, is_sure: true, ..Self::default() }
    }

    /// Its acquisition under way, or the last one.
    pub fn who(&self) -> Holder {
        Holder { client: self.number, acquisition: self.acquisition }
    }

    /// Which lock that is about.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// In which mode it relies on that.
    pub fn mode(&self) -> HeldAs {
        self.mode
    }

    /// It does nothing.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// It waits for its lock.
    pub fn is_acquiring(&self) -> bool {
        matches!(self.stage, Stage::Acquiring { .. })
    }

    /// No answer is awaited.
    pub fn is_free(&self) -> bool {
        self.open.is_none()
    }

    /// The answer to the request `number` is awaited.
    pub fn awaits(&self, number: u32) -> bool {
        self.open.is_some_and(|open| open.number == number)
    }

    /// When it began to ask, until when it relies on its lock, the token, and how many holds it counts.
    pub fn holding(&self) -> Option<(BootTime, BootTime, u64, u32)> {
        match self.stage {
            Stage::Holding { since, until, token, level } => Some((since, until, token, level)),
            _ => None,
        }
    }

    /// An answer that no right node gives.
    pub fn wrong(&self) -> Option<&'static str> {
        self.wrong
    }

    /// Its connection ended: the node may have forgotten what it did last.
    pub fn is_cut_off(&mut self) {
        self.is_sure = false;
    }

    // What it sets out to do.

    /// It sets out to take `key` in this mode, and waits for so long.
    pub fn acquire(&mut self, key: u32, wanted: Wanted, wait_ms: u32, now: Now) -> Step {
        self.acquisition += 1;
        (self.key, self.wanted, self.is_sure) = (key, wanted, true);
        self.stage = Stage::Acquiring { since: now.boot, wait_ms };
        self.sends(Command::Acquire { ttl_ms: self.ttl_ms, wait_ms, retry: false }, now)
    }

    /// An answer was lost: it sends its request once more, over another connection.
    pub fn repeat(&mut self, now: Now) -> Step {
        let Some(open) = self.open.take() else { return Step::default() };
        self.is_sure = false;
        match (self.stage, open.command) {
            (Stage::Acquiring { wait_ms, .. }, _) => {
                let repeated = Command::Acquire { ttl_ms: self.ttl_ms, wait_ms, retry: true };
                self.sends(repeated, now)
            }
            // One hold more, and again one hold more, would be two.
            (_, Command::Reenter { level: None, .. }) => Step::default(),
            (_, command) => self.sends(command, now),
        }
    }

    /// It extends its lock.
    pub fn extend(&mut self, now: Now) -> Step {
        self.sends(Command::Extend { ttl_ms: self.ttl_ms }, now)
    }

    /// A writer goes on as a reader: from now on, whenever the node hears of it.
    pub fn share(&mut self, now: Now) -> Step {
        self.mode = HeldAs::Shared;
        Step { says: Some(Status::Converted), ..self.sends(Command::Convert { shares: true }, now) }
    }

    /// A reader asks to be the writer, if nobody else reads.
    pub fn convert_up(&mut self, now: Now) -> Step {
        self.sends(Command::Convert { shares: false }, now)
    }

    /// It takes one hold more, and says how many that are, or not; and extends its lock with that, or not.
    pub fn reenter(&mut self, says_level: bool, extends: bool, now: Now) -> Step {
        let level = self.holding().map(|(.., level)| level + 1).filter(|_| says_level || !self.is_sure);
        self.sends(Command::Reenter { level, ttl_ms: extends.then_some(self.ttl_ms) }, now)
    }

    /// It gives its last hold but one back.
    pub fn release_one(&mut self, now: Now) -> Step {
        let Some((.., level)) = self.holding().filter(|(.., level)| *level > 1) else { return Step::default() };
        self.sends(Command::Release { level }, now)
    }

    /// It gives the lock back, whatever it has of it.
    pub fn release(&mut self, now: Now) -> Step {
        let says = self.ends();
        let step = self.sends(Command::Release { level: 1 }, now);
        self.open = None;
        Step { says, ..step }
    }

    /// It waits no longer, and closes its connection.
    pub fn leaves(&mut self, now: Now) -> Step {
        let open = self.open.take();
        let says = self.ends();
        let Some(Open { number, .. }) = open else { return Step { sends: vec![], says } };
        let step = self.sends(Command::Closed { number }, now);
        self.open = None;
        Step { says, ..step }
    }

    /// It relies on nothing any more, and asks for one hold more of what it held.
    pub fn reenters_too_late(&mut self, now: Now) -> Step {
        let step = self.sends(Command::Reenter { level: None, ttl_ms: Some(self.ttl_ms) }, now);
        self.open = None;
        step
    }

    fn ends(&mut self) -> Option<Status> {
        let says = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => None,
            Stage::Acquiring { .. } => Some(Status::Left),
            Stage::Holding { .. } => Some(Status::Ended),
        };
        self.open = None;
        says
    }

    // What it hears.

    /// `reply` came; one that is not awaited is nothing.
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
                Step { sends: vec![], says: self.ends() }
            }
            (Stage::Holding { since, until, token, level }, Replied::Extended | Replied::Holds(_)) => {
                let level = self.counts(command, replied, level);
                let asked_ms = match command {
                    Command::Extend { ttl_ms } => Some(ttl_ms),
                    Command::Reenter { ttl_ms, .. } => ttl_ms,
                    _ => None,
                };
                let later = asked_ms.map_or(until, |ttl_ms| valid_until(sent, ttl_ms).max(until));
                // It was lost before.
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
            // Others read.
            (Stage::Holding { .. }, Replied::Null) if command == (Command::Convert { shares: false }) => {
                Step::default()
            }
            // It was taken away, or its lease has ended.
            (Stage::Holding { .. }, Replied::Null) => Step { sends: vec![], says: self.ends() },
            (Stage::Holding { .. } | Stage::Idle, _) => Step::default(),
        }
    }

    /// How many holds it has, by an answer.
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

    /// When its lease began, at the earliest, if the node says that the request waited so long.
    fn granted(&self, sent: BootTime, waited_ms: u64) -> BootTime {
        if self.without.is(Rule::WaitLessDrift) {
            sent.plus_us(waited_ms * 1_000)
        } else {
            granted_after(sent, waited_ms)
        }
    }

    /// It looks at its clock: a lock that is valid no more is lost.
    pub fn look(&mut self, now: Now) -> Step {
        match self.stage {
            Stage::Holding { until, .. } if now.boot >= until => self.release(now),
            _ => Step::default(),
        }
    }

    fn sends(&mut self, command: Command, now: Now) -> Step {
        self.requests += 1;
        let (who, key, node, number, wanted) = (self.who(), self.key, self.node, self.requests, self.wanted);
        self.open = Some(Open { number, command, sent: now.boot });
        let request =
            Request { who, key, node, number, wanted, joined: None, meant: None, says: Says::Command(command) };
        Step { sends: vec![(0, request)], says: None }
    }
}
