//! What the tokens of a key's grants must be above, by all that it ever had.

use std::collections::BTreeMap;

use palisade_core::{Mode, Token};

/// The largest tokens of a key.
#[derive(Debug, Default)]
pub struct Floors {
    exclusive: Option<Token>,
    shared: Option<Token>,
    permits: BTreeMap<u16, Token>,
}

impl Floors {
    /// `token` of a later grant in `mode` is in order.
    pub fn is_above(&self, mode: Mode, token: Token) {
        let permits = self.permits.values().copied().max();
        let floor = match mode {
            Mode::Exclusive => self.exclusive.max(self.shared).max(permits),
            Mode::Shared => self.exclusive.max(permits),
            Mode::Permit(permit) => self.exclusive.max(self.shared).max(self.permits.get(&permit.number()).copied()),
        };
        assert!(Some(token) > floor, "{mode:?} with {token:?} after {self:?}");
    }

    /// A grant in `mode` has `token`.
    pub fn add(&mut self, mode: Mode, token: Token) {
        match mode {
            Mode::Exclusive => self.exclusive = self.exclusive.max(Some(token)),
            Mode::Shared => self.shared = self.shared.max(Some(token)),
            Mode::Permit(permit) => {
                let largest = self.permits.entry(permit.number()).or_insert(token);
                *largest = token.max(*largest);
            }
        }
    }
}
