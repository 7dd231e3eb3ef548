//! A node with one key, whose grants and token floors are kept by `core`.

use std::hash::{Hash, Hasher};

use palisade_core::{BootTime, Mode, Modes, Now, Permit, Phase, Token, Tokens};

use super::rules::FamilyRule;

const KEY: &[u8] = b"k";

/// Returns clocks whose wall clock is ahead of every proposed token. The model does not check the bound on tokens that
/// are too far ahead.
fn now() -> Now {
    Now::new(BootTime::from_us(0), 1_000)
}

/// A grant on a node of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    pub client: usize,
    pub mode: Mode,
    pub token: Token,
}

/// One node of the model.
#[derive(Clone, Debug)]
pub struct Node {
    tokens: Tokens,
    pub grants: Vec<Grant>,
    phase: Phase,
}

impl Node {
    /// Returns a node whose tokens start at 1.
    pub fn new() -> Self {
        Self { tokens: Tokens::with_stripes(0, 1, 0), grants: vec![], phase: Phase::default() }
    }

    fn admits(&self, mode: Mode, without: Option<FamilyRule>) -> bool {
        match (without, mode) {
            (Some(FamilyRule::NumbersNotCounts), Mode::Permit(permit)) => {
                self.grants.len() < permit.limit().into()
                    && !self.is_held_in(Mode::Exclusive)
                    && !self.is_held_in(Mode::Shared)
            }
            (Some(FamilyRule::BothLimits), Mode::Permit(permit)) => {
                let is_other =
                    |grant: &Grant| matches!(grant.mode, Mode::Permit(held) if held.number() != permit.number());
                self.grants.iter().all(is_other)
            }
            (Some(FamilyRule::ReadersKeepWritersOut), Mode::Exclusive) => !self.is_held_in(Mode::Exclusive),
            _ => self.modes().admits(mode),
        }
    }

    fn is_held_in(&self, mode: Mode) -> bool {
        self.grants.iter().any(|grant| grant.mode == mode)
    }

    /// Performs ACQUIRE. Returns the token, or `None` if the mode conflicts with what is held.
    pub fn acquire(
        &mut self,
        client: usize,
        mode: Mode,
        proposal: Token,
        without: Option<FamilyRule>,
    ) -> Option<Token> {
        if !self.admits(mode, without) {
            return None;
        }
        if self.grants.is_empty() {
            let past = if mode == Mode::Shared { self.tokens.last_ordered(KEY) } else { self.tokens.last(KEY) };
            self.phase = Phase::new(past);
        }
        let floor = match (without, mode) {
            (Some(FamilyRule::ReadersAboveWriters), Mode::Shared) => 0,
            (Some(FamilyRule::PermitsAboveTheirNumber), Mode::Permit(_)) => self.phase.floor_of(Mode::Shared, 0),
            _ => self.phase.floor_of(mode, self.tokens.last(KEY)),
        };
        let token = self.tokens.issue_above(floor, KEY, mode, Some(proposal), now(), 0).ok()?;
        if without != Some(FamilyRule::ReadersAboveConverted) {
            self.phase.on_grant(mode, token);
        }
        self.grants.push(Grant { client, mode, token });
        Some(token)
    }

    /// Performs FENCE: raises the token of the client's grant to `token`.
    pub fn raise(&mut self, client: usize, token: Token, without: Option<FamilyRule>) {
        let Some(grant) = self.grants.iter_mut().find(|grant| grant.client == client) else { return };
        if grant.token < token && self.tokens.raise(KEY, grant.mode, token, now(), 0).is_ok() {
            grant.token = token;
            if without != Some(FamilyRule::ReadersAboveConverted) {
                self.phase.on_grant(grant.mode, token);
            }
        }
    }

    /// Performs CONVERT to shared.
    pub fn share(&mut self, client: usize) {
        for grant in self.grants.iter_mut().filter(|grant| grant.client == client) {
            grant.mode = Mode::Shared;
        }
    }

    /// Performs RELEASE, or ends a lease.
    pub fn drop(&mut self, client: usize) {
        self.grants.retain(|grant| grant.client != client);
    }

    /// Returns the client's token on this node.
    pub fn token_of(&self, client: usize) -> Option<Token> {
        self.grants.iter().find(|grant| grant.client == client).map(|grant| grant.token)
    }

    /// Returns the held modes, as `core` counts them. If a rule is switched off, leaves out grants that `core` would
    /// not admit beside the others.
    fn modes(&self) -> Modes {
        let mut modes = Modes::default();
        for grant in &self.grants {
            if modes.admits(grant.mode) {
                modes.add(grant.mode);
            }
        }
        modes
    }

    fn seen(&self) -> (&[Grant], &Phase, u64) {
        (&self.grants, &self.phase, self.tokens.last(KEY))
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.seen() == other.seen()
    }
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.seen().hash(state);
    }
}

/// Returns a permit's mode.
pub fn permit(number: u16, limit: u16) -> Mode {
    Permit::new(number, limit).map_or(Mode::Exclusive, Mode::Permit)
}
