//! The set of nodes, which may change while the client works: what is under way goes over to its next version.
//!
//! Nodes keep numbered versions of the set (`palisade_core::Membership`). Each version that a client works with is a [`Nodes`] of its own, with
//! connections of its own, each of which says the version as its first word. So nothing that is asked in one version is ever answered
//! over a connection of another one. A node that was told a later version ends such connections, and tells it to whoever connects
//! again: then that version takes the place of the one before ([`following`]). Changing the set is [`changing`].

mod asking;
mod changing;
mod following;
mod planning;
mod ways;

use std::sync::Arc;

use palisade_core::Members;
use tokio::sync::watch;

pub use self::changing::set_nodes;
pub use self::planning::{Plan, plan};
pub use self::ways::Ways;
use crate::nodes::Nodes;

/// What the nodes of one version of the set tell of later ones.
#[derive(Debug)]
pub struct News {
    /// This one. Of version 0 nothing is known but the addresses that the user gave.
    members: Members,
    /// This client can take up another one.
    pub follows: bool,
    told: watch::Sender<Option<Members>>,
    /// Another one took its place.
    is_over: watch::Sender<bool>,
}

impl News {
    /// None yet, of nodes that are this set; another one is taken up if it `follows`.
    pub fn new(members: Members, follows: bool) -> Self {
        Self { members, follows, told: watch::Sender::new(None), is_over: watch::Sender::new(false) }
    }

    /// The version that their connections say.
    pub fn version(&self) -> u64 {
        self.members.version
    }

    /// A node was told of this version.
    pub fn is_told(&self, members: Members) {
        self.told.send_if_modified(|told| {
            let known = told.as_ref().map_or(self.version(), |told| told.version);
            let is_news = members.version > known;
            if is_news {
                *told = Some(members);
            }
            is_news
        });
    }

    /// The first later version of which a node tells.
    async fn later(&self) -> Members {
        let mut told = self.told.subscribe();
        loop {
            if let Some(members) = &*told.borrow_and_update() {
                return members.clone();
            }
            // The sender is here, so it cannot fail.
            let _ = told.changed().await;
        }
    }

    /// Returns when another version took the place of this one.
    pub async fn is_over(&self) {
        let _ = self.is_over.subscribe().wait_for(|is_over| *is_over).await;
    }
}

/// A version of the set, and what takes its place.
#[derive(Debug)]
pub struct Set {
    pub news: Arc<News>,
    pub ways: Arc<Ways>,
    next: watch::Sender<Option<Arc<Nodes>>>,
}

impl Set {
    /// One that nothing has taken the place of.
    pub fn new(news: Arc<News>, ways: Arc<Ways>) -> Self {
        Self { news, ways, next: watch::Sender::new(None) }
    }
}
