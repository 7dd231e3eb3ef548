//! What the nodes of one version of the set tell of later ones.

use palisade_quorum::Members;
use tokio::sync::watch;

/// What the nodes of one version of the set tell of later ones.
#[derive(Debug)]
pub struct News {
    /// This one. Of version 0 nothing is known but the addresses that the user gave.
    pub members: Members,
    /// This client can take up another one.
    pub follows: bool,
    pub(super) told: watch::Sender<Option<Members>>,
    /// Another one took its place.
    pub(super) is_over: watch::Sender<bool>,
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
    pub async fn later(&self) -> Members {
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
