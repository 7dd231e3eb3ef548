//! A simulated node for the test `storm`: one key, leases on a clock of its own, a guard after a restart without data.

use std::collections::BTreeMap;

use crate::ask::{Answer, Ask, NodeId, majority};
use crate::values::mode::{Mode, Permit};
use crate::values::time::BootTime;
use crate::values::token::Token;
use crate::{OwnGrant, Resumed, resume};

/// The length of a lease, in milliseconds and microseconds.
pub const TTL_MS: u32 = 1_000;
pub const TTL_US: u64 = TTL_MS as u64 * 1_000;
/// A client and the number of its acquisition.
pub type Owner = (usize, u32);

/// Deliberate mistakes, each of which the test must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Nodes that restarted without their data grant at once.
    NoGuard,
    /// A node that is healed with a permit grants any free number.
    HealsAnyNumber,
    /// A writer that became a reader continues as a writer.
    WritesOn,
    /// Clock rates differ by more than the margin allows.
    ClocksApart,
    /// Nodes let readers and writers in together.
    ReadersBesideWriters,
    /// Nodes accept any proposal for a permit, also below the last token of its number.
    AnyTokenForPermits,
    /// Grants of a majority count, whatever their tokens.
    NoSecondRound,
    /// A process that resumes a lock takes the smallest of its tokens.
    ResumesWithoutRaising,
    /// A process resumes with one node less than a majority.
    ResumesAMinority,
    /// A process that resumes relies on leases as if they had begun with its query.
    ResumesForAWholeLease,
    /// A process that resumes relies on the lock before a majority has marked it as adopted.
    ResumesUnmarked,
    /// A plain release frees an adopted grant.
    FreesAdopted,
    /// A process that was replaced gives the lock back when its own lease is over.
    GivesBackWhatIsOver,
}

impl Wrong {
    /// Returns the result of [`resume`](crate::resume()), with this mistake.
    pub fn resumed(self, start: BootTime, seen: &[Option<(NodeId, Option<OwnGrant>)>], now: BootTime) -> Resumed {
        let mut seen = seen.to_vec();
        let (needed, all_answered) = (majority(seen.len()), seen.iter().all(Option::is_some));
        let mut has: Vec<_> = seen.iter_mut().flatten().filter_map(|(_, has)| has.as_mut()).collect();
        match self {
            Self::ResumesWithoutRaising => {
                let least = has.iter().map(|has| has.token).min();
                has.iter_mut().for_each(|has| has.token = least.unwrap_or(has.token));
            }
            Self::ResumesForAWholeLease => has.iter_mut().for_each(|has| has.left_ms = u64::from(TTL_MS)),
            Self::ResumesAMinority if has.len() + 1 == needed && all_answered => {
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
    /// The end of the lease on the node's clock.
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
    /// Answers a question.
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

    /// Frees the owner's grant. A plain release leaves an adopted grant in place.
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
