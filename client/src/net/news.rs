//! Later versions of the set of nodes, as the nodes report them.

use palisade_quorum::Members;
use tokio::sync::watch;

/// One version of the set, and a later one once a node reports it.
#[derive(Debug)]
pub struct News {
    /// The members of this version of the set. For version 0 these are only the addresses that the user gave.
    pub members: Members,
    /// True if the client may move to a later version of the set.
    pub follows: bool,
    pub(super) told: watch::Sender<Option<Members>>,
    /// True if another version of the set superseded this one.
    pub(super) is_over: watch::Sender<bool>,
}

impl News {
    /// Creates the news of a version of the set, of which no later version is known yet. `follows` is true if the
    /// client may move to a later version.
    pub fn new(members: Members, follows: bool) -> Self {
        Self { members, follows, told: watch::Sender::new(None), is_over: watch::Sender::new(false) }
    }

    /// Returns the version of the set that connections state.
    pub fn version(&self) -> u64 {
        self.members.version
    }

    /// Records that a node reported `members` as its version of the set.
    pub fn record(&self, members: Members) {
        self.told.send_if_modified(|told| {
            let known = told.as_ref().map_or(self.version(), |told| told.version);
            let is_news = members.version > known;
            if is_news {
                *told = Some(members);
            }
            is_news
        });
    }

    /// Returns the first later version of the set that a node reports.
    pub async fn later(&self) -> Members {
        let mut told = self.told.subscribe();
        loop {
            if let Some(members) = &*told.borrow_and_update() {
                return members.clone();
            }
            // The sender lives in `self`, so this cannot fail.
            let _ = told.changed().await;
        }
    }

    /// Waits until another version of the set supersedes this one.
    pub async fn is_over(&self) {
        let _ = self.is_over.subscribe().wait_for(|is_over| *is_over).await;
    }
}
