//! The knowledge of one node's grant.

use super::share::Sharing;
use crate::ask::NodeId;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// After a node was found without the lock, it is not asked to grant it again for this part of a lease: a quarter. That
/// is longer than it takes to break a lock on one node after the other, and shorter than the time until the next round.
const TAKEN_OF_TTL: u64 = 4;

/// The grant that a node has, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Grant {
    /// None, or one with an unknown token.
    None,
    /// The node last acknowledged this token.
    Acked(Token),
    /// The node was asked to raise its token and has not answered. It may have the raised token, or the earlier one
    /// `from`, if that is known. With `extends`, the node refused an extension, perhaps because its token is larger
    /// than the one in the request. Once it has reported its token, it is asked to extend again.
    Raising { from: Option<Token>, extends: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub id: Option<NodeId>,
    pub grant: Grant,
    /// A lower bound of the moment at which the node's lease ends.
    pub leased_until: BootTime,
    /// The time at which the node was found without the lock although its lease had not ended: someone took the lock
    /// away there.
    pub taken_at: Option<BootTime>,
    /// The state of the conversion of the node's grant, once the owner is a reader.
    pub sharing: Sharing,
    /// True if the node was added to the set while the lock was held, and has not granted the lock yet.
    pub is_added: bool,
}

impl Member {
    /// Creates a node that has a lease until then if it has the `grant`.
    pub fn new(id: Option<NodeId>, grant: Grant, leased_until: BootTime) -> Self {
        Self { id, grant, leased_until, taken_at: None, sharing: Sharing::Not, is_added: false }
    }

    /// Returns the token that the node last acknowledged; `None` if it does not have the lock, or with an unknown
    /// token.
    pub fn acked(&self) -> Option<Token> {
        match self.grant {
            Grant::None => None,
            Grant::Acked(token) => Some(token),
            Grant::Raising { from, .. } => from,
        }
    }

    /// Notes that the node is asked to raise its token.
    pub fn raise(&mut self) {
        if let Grant::Acked(token) = self.grant {
            self.grant = Grant::Raising { from: Some(token), extends: false };
        }
    }

    /// Returns whether the lock was taken away at this node less than a quarter of a lease before `now`. Such a node is
    /// not asked to grant the lock again, because someone may be taking the lock away on one node after the other.
    pub fn is_taken_lately(&self, ttl_ms: u32, now: BootTime) -> bool {
        let lately_us = u64::from(ttl_ms) * 1_000 / TAKEN_OF_TTL;
        self.taken_at.is_some_and(|at| now.us_since(at) < lately_us)
    }
}

impl From<Option<Token>> for Grant {
    /// Returns the grant of a node that acknowledged this token and is not asked to raise it.
    fn from(acked: Option<Token>) -> Self {
        acked.map_or(Self::None, Self::Acked)
    }
}
