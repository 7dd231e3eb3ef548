//! LOCK.WATCH: answers when the lock is not in the state that the caller knows. It changes nothing, so replicas and
//! guarded nodes answer too.

use crate::lock::Lock;
use crate::lock::known::is_true_until;
use crate::node::Node;
use crate::queue::of_key::WaiterId;
use crate::queue::shares::Asker;
use crate::queue::watching::Watcher;
use crate::refusal::Refusal;
use crate::request::{Patience, Watch};
use crate::values::key::Key;
use crate::values::time::BootTime;

/// The outcome of a LOCK.WATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The lock is in another state than the caller knows. The caller receives the present state.
    Differs,
    /// The lock is in the state that the caller knows, and the caller does not wait.
    Same,
    /// The lock is in the state that the caller knows, and the caller waits. The driver then calls
    /// [`Node::add_watcher`], if there is room ([`Node::ensure_may_watch`]).
    Watches,
}

impl Node {
    /// Decides how to answer a caller that waits until the lock leaves the state that the caller knows.
    pub fn watch(&self, held: Option<&Lock>, ask: &Watch, now: BootTime) -> Result<Watched, Refusal> {
        if is_true_until(ask.known, held, now).is_none() {
            return Ok(Watched::Differs);
        }
        if ask.patience == Patience::NONE {
            return Ok(Watched::Same);
        }
        Ok(Watched::Watches)
    }

    /// Refuses another watcher of the lock of `key`, if there is no room for it or `asker` has its share.
    pub fn ensure_may_watch(&self, key: Key<'_>, asker: Asker) -> Result<(), Refusal> {
        self.ensure_room(asker, Watcher::load(key.name), true)
    }

    /// Adds the blocked client `id` of `asker` as a watcher of the lock of `key`. `held` is the key's content.
    pub fn add_watcher(
        &mut self,
        key: Key<'_>,
        (id, asker): (WaiterId, Asker),
        held: Option<&Lock>,
        ask: &Watch,
        now: BootTime,
    ) {
        // If the lock has left the known state already, a check is due at once and finds it.
        let look = is_true_until(ask.known, held, now).unwrap_or_default();
        self.watching.join(key, (id, asker.user), ask.known, now.plus_ms(ask.patience.ms()), look);
    }

    /// Removes and returns at most `count` watchers of the lock of `key` that know another state than that of `held` at
    /// `now`. The driver has to answer each.
    pub fn take_outdated(&mut self, key: Key<'_>, held: Option<&Lock>, count: usize, now: BootTime) -> Vec<WaiterId> {
        self.watching.take_outdated(key, held, count, now)
    }

    /// Removes and returns at most `count` watchers of the lock of `key`; the driver answers them.
    pub fn dismiss_watchers(&mut self, key: Key<'_>, count: usize) -> Vec<WaiterId> {
        self.watching.dismiss(key, count)
    }

    /// Removes the watcher of this request, whose client has gone or no longer watches. Returns whether there was one.
    pub fn stop_watching(&mut self, id: WaiterId) -> bool {
        self.watching.leave(id)
    }
}
