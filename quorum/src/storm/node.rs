//! A simulated node for the test `storm`: one key, leases on a clock of its own, a guard after a restart without data.

use std::collections::BTreeMap;

use crate::ask::{Answer, Ask, NodeId, majority};
use crate::values::mode::{Mode, Permit};
use crate::values::time::BootTime;
use crate::values::token::Token;
use crate::{OwnGrant, Resumed, resume};

/// The length of a lease in milliseconds; the other constant has it in microseconds.
pub const TTL_MS: u32 = 1_000;
pub const TTL_US: u64 = TTL_MS as u64 * 1_000;
/// The index of a client, and the number of its acquisition.
pub type Owner = (usize, u32);

/// Faults made on purpose. The test must notice each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A node that restarted without its data grants at once, without a guard.
    NoGuard,
    /// A node that is asked to grant a certain permit again grants any free number.
    HealsAnyNumber,
    /// A writer that became a reader goes on writing.
    WritesOn,
    /// The rates of two clocks differ by more than the holder's margin allows.
    ClocksApart,
    /// Nodes grant readers and writers the lock at the same time.
    ReadersBesideWriters,
    /// Nodes accept any token that is proposed for a permit, even one below the last token of its number.
    AnyTokenForPermits,
    /// The grants of a majority count even if their tokens differ.
    NoSecondRound,
    /// A process that resumes a lock relies on the smallest token that it finds.
    ResumesWithoutRaising,
    /// A process resumes a lock that one node less than a majority is known to have.
    ResumesAMinority,
    /// A process that resumes a lock relies on leases as if they had begun when it asked for them.
    ResumesForAWholeLease,
    /// A process that resumes a lock relies on it before a majority has marked it as adopted.
    ResumesUnmarked,
    /// A release without token and level, as an attempt without an answer sends it, frees an adopted grant.
    FreesAdopted,
    /// A process that was replaced releases the lock even after its own lease is over.
    GivesBackWhatIsOver,
}

impl Wrong {
    /// Returns the result of [`resume`](crate::resume()), changed by this fault if it is one of resuming.
    pub fn resumed(self, start: BootTime, seen: &[Option<(NodeId, Option<OwnGrant>)>], now: BootTime) -> Resumed {
        let mut seen = seen.to_vec();
        let needed = majority(seen.len());
        let mut has: Vec<_> = seen.iter_mut().flatten().filter_map(|(_, has)| has.as_mut()).collect();
        match self {
            Self::ResumesWithoutRaising => {
                let least = has.iter().map(|has| has.token).min();
                has.iter_mut().for_each(|has| has.token = least.unwrap_or(has.token));
            }
            Self::ResumesForAWholeLease => has.iter_mut().for_each(|has| has.left_ms = u64::from(TTL_MS)),
            Self::ResumesAMinority if has.len() + 1 == needed => {
                let one = *has[0];
                if let Some(other) = seen.iter_mut().flatten().find(|(_, has)| has.is_none()) {
                    other.1 = Some(one);
                }
            }
            _ => {}
        }
        resume(start, &seen, now)
    }
}

pub struct Grant {
    pub owner: Owner,
    mode: Mode,
    pub token: u64,
    /// True if another process of its owner continues the grant.
    is_adopted: bool,
    /// The end of the lease, on the node's own clock in microseconds.
    pub until: u64,
}

#[derive(Default)]
pub struct Node {
    pub grants: Vec<Grant>,
    last: u64,
    floor: u64,
    numbers: BTreeMap<u16, u64>,
    pub guarded_until: u64,
}

impl Node {
    /// Answers the question `ask` of `owner` at `now`, with the fault `wrong` if it concerns nodes.
    pub fn answer(&mut self, owner: Owner, ask: Ask, mode: Mode, now: u64, wrong: Option<Wrong>) -> Answer {
        let own = self.grants.iter().position(|grant| grant.owner == owner);
        match (ask, own) {
            (Ask::Acquire { retry, .. }, Some(own)) => {
                let grant = &mut self.grants[own];
                if !retry || grant.mode != mode {
                    return Answer::Failed;
                }
                grant.until = grant.until.max(now + TTL_US);
                said(grant.token)
            }
            (Ask::Acquire { .. }, None) if now < self.guarded_until => Answer::Guarded { ms: 100 },
            (Ask::Acquire { proposal, retry, .. }, None) => {
                let mode = match (wrong, mode) {
                    (Some(Wrong::HealsAnyNumber), Mode::Permit(permit)) if retry => (1..=permit.limit())
                        .filter_map(|number| Permit::new(number, permit.limit()))
                        .map(Mode::Permit)
                        .find(|mode| self.admits(*mode, wrong))
                        .unwrap_or(mode),
                    (_, mode) => mode,
                };
                if self.admits(mode, wrong) {
                    said(self.grant(owner, mode, proposal.get(), now, wrong))
                } else {
                    Answer::No
                }
            }
            (_, None) => Answer::No,
            (Ask::Fence { token }, Some(own)) => {
                let grant = &mut self.grants[own];
                grant.token = grant.token.max(token.get());
                let (mode, token) = (grant.mode, grant.token);
                self.saw(mode, token);
                said(token)
            }
            (Ask::Extend { token, .. }, Some(own)) => {
                let grant = &mut self.grants[own];
                if grant.token != token.get() {
                    return Answer::No;
                }
                grant.until = grant.until.max(now + TTL_US);
                said(grant.token)
            }
            (Ask::Share, Some(own)) => {
                let grant = &mut self.grants[own];
                if matches!(grant.mode, Mode::Exclusive) {
                    grant.mode = Mode::Shared;
                    self.floor = self.last;
                }
                said(self.grants[own].token)
            }
        }
    }

    /// Frees the owner's grant. A release without token and level (`is_plain`) leaves an adopted grant as it is.
    pub fn release(&mut self, owner: Owner, is_plain: bool, wrong: Option<Wrong>) {
        let stays = |grant: &Grant| is_plain && grant.is_adopted && wrong != Some(Wrong::FreesAdopted);
        self.grants.retain(|grant| grant.owner != owner || stays(grant));
    }

    /// Marks the owner's grant as adopted; returns whether it has one.
    pub fn adopt(&mut self, owner: Owner) -> bool {
        let own = self.grants.iter_mut().find(|grant| grant.owner == owner);
        own.map(|grant| grant.is_adopted = true).is_some()
    }

    fn admits(&self, mode: Mode, wrong: Option<Wrong>) -> bool {
        let together = |grant: &Grant| {
            let is_both =
                matches!((grant.mode, mode), (Mode::Shared, Mode::Exclusive) | (Mode::Exclusive, Mode::Shared));
            grant.mode.is_compatible(mode) || wrong == Some(Wrong::ReadersBesideWriters) && is_both
        };
        self.grants.iter().all(together)
    }

    fn grant(&mut self, owner: Owner, mode: Mode, proposal: u64, now: u64, wrong: Option<Wrong>) -> u64 {
        if self.grants.is_empty() {
            (self.floor, self.numbers) = (self.last, BTreeMap::new());
        }
        let floor = match mode {
            Mode::Exclusive => self.last,
            Mode::Shared => self.floor,
            Mode::Permit(_) if wrong == Some(Wrong::AnyTokenForPermits) => 0,
            Mode::Permit(permit) => self.floor.max(self.numbers.get(&permit.number()).copied().unwrap_or(0)),
        };
        let token = if proposal > floor { proposal } else { self.last + 1 };
        self.saw(mode, token);
        self.grants.push(Grant { owner, mode, token, is_adopted: false, until: now + TTL_US });
        token
    }

    fn saw(&mut self, mode: Mode, token: u64) {
        self.last = self.last.max(token);
        match mode {
            Mode::Exclusive => self.floor = self.floor.max(token),
            Mode::Shared => {}
            Mode::Permit(permit) => {
                let highest = self.numbers.entry(permit.number()).or_default();
                *highest = token.max(*highest);
            }
        }
    }
}

fn said(token: u64) -> Answer {
    Answer::Token(Token::new(token).unwrap())
}
