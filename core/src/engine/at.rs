//! The context of a request while its stages run.

use super::step::Finding;
use crate::history::ending::Ending;
use crate::history::grant_events::Happened;
use crate::lock::Lock;
use crate::lock::grant::{Grant, GrantId};
use crate::node::Node;
use crate::values::key::Key;
use crate::values::time::Now;

/// The input of a stage: the key and its content, the answer to the previous step, the node and the time.
pub(super) struct At<'a> {
    pub key: Key<'a>,
    pub held: Option<&'a mut Lock>,
    pub said: Finding,
    pub node: &'a mut Node,
    pub now: Now,
}

impl At<'_> {
    /// Adds the lock in the key to the table of deadlines, if there is a lock.
    pub fn schedule_expiry(&mut self) {
        self.node.schedule_expiry(self.key, self.held.as_deref_mut());
    }

    /// Reports `happened` to the history: an event of the grant `id` of the lock in the key.
    #[inline(always)]
    pub fn notice(&mut self, id: GrantId, happened: Happened) {
        if let Some(lock) = self.held.as_deref() {
            self.node.notice(self.key, lock, id, happened, self.now.boot);
        }
    }

    /// Removes a grant from a lock with several, and reports to the history that it ended by `ending`. `None` if it is
    /// the only grant.
    pub fn take(&mut self, id: GrantId, ending: Ending) -> Option<Box<Grant>> {
        let lock = self.held.as_deref_mut()?;
        let (mode, grant) = (lock.mode(id), lock.take(id)?);
        self.node.record_grant_end(self.key, (mode, &grant), ending, self.now.boot);
        self.schedule_expiry();
        Some(Box::new(grant))
    }

    /// Returns whether requests wait for the lock, or it is reserved.
    pub fn has_queue(&self) -> bool {
        self.node.waiting.has_queue(self.key)
    }
}
