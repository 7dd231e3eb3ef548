//! A client's move to the next version of the node set.

use std::sync::Arc;

use palisade_core::Now;
use palisade_core::quorum::Refused;

use super::set::Set;
use super::{Client, Stage, Status, Step};
use crate::rules::Rule;

impl Client {
    /// Returns the version that the client works with.
    pub fn version(&self) -> u64 {
        self.works_with.version()
    }

    /// Makes `set` the client's set of nodes. A held lock moves to that set, and a pending acquisition or wait starts
    /// over.
    pub fn learn(&mut self, set: Arc<Set>, now: Now) -> Step {
        if set.version() <= self.version() {
            return Step::default();
        }
        self.works_with = set;
        let stays = match self.stage {
            Stage::Idle => false,
            Stage::Acquiring { .. } | Stage::Looking(_) | Stage::Waiting(_) => {
                self.without.is(Rule::AcquisitionsBeginAnew)
            }
            Stage::Holding { .. } => self.without.is(Rule::HeldByTheNewMajority),
        };
        match self.stage {
            _ if stays => Step::default(),
            Stage::Idle => Step::default(),
            Stage::Acquiring { .. } => self.give_back(Status::Refused(Refused::TooFewNodes { is_lasting: false }), now),
            Stage::Looking(_) => self.give_back(Status::Shown(None), now),
            Stage::Waiting(_) => self.give_back(Status::Told(None), now),
            Stage::Holding { .. } => self.moves(now),
        }
    }

    /// Restarts the client after its process was killed, with the node names in its configuration.
    pub fn start_from(&mut self, set: Arc<Set>) {
        self.works_with = set;
    }

    fn moves(&mut self, now: Now) -> Step {
        self.asks = Arc::clone(&self.works_with);
        self.open.clear();
        let ids = self.works_with.ids();
        self.keeps(now, |keeping, random| keeping.move_to(&ids, now.boot, random))
    }
}
