//! LOCK.WATCH: tell when the lock is not what the caller knows. Changes nothing, so it needs no role and no trust.

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

/// What came of a WATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The lock is not what the caller knows: it is told what it is.
    Differs,
    /// It is, and the caller does not wait.
    Same,
    /// It is: [`Node::watches`] says so of the caller's blocked client, if there is room for it ([`Node::ensure_may_watch`]).
    Watches,
}

impl Node {
    /// What is answered to one who asks to be told when `held` is not what it knows.
    pub fn watch(&self, held: Option<&Lock>, ask: &Watch, now: BootTime) -> Result<Watched, Refusal> {
        if is_true_until(ask.known, held, now).is_none() {
            return Ok(Watched::Differs);
        }
        if ask.patience == Patience::NONE {
            return Ok(Watched::Same);
        }
        Ok(Watched::Watches)
    }

    /// Refuses one more who watches the lock of `key`, if there is no room for it or `asker` has its share.
    pub fn ensure_may_watch(&self, key: Key<'_>, asker: Asker) -> Result<(), Refusal> {
        self.ensure_room(asker, Watcher::load(key.name), true)
    }

    /// The blocked client `id` of `asker` watches the lock of `key`, which is `held`.
    pub fn watches(
        &mut self,
        key: Key<'_>,
        (id, asker): (WaiterId, Asker),
        held: Option<&Lock>,
        ask: &Watch,
        now: BootTime,
    ) {
        // What is not true any more is found out by a look.
        let look = is_true_until(ask.known, held, now).unwrap_or_default();
        self.watching.join(key, (id, asker.user), ask.known, now.plus_ms(ask.patience.ms()), look);
    }

    /// Those who watch the lock of `key` and know something else of it than is `held` at `now`, `count` at most: each is to be told, and
    /// watches no longer.
    pub fn take_told(&mut self, key: Key<'_>, held: Option<&Lock>, count: usize, now: BootTime) -> Vec<WaiterId> {
        self.watching.take_told(key, held, count, now)
    }

    /// Those who watch the lock of `key`, `count` at most: they watch no longer, and the driver knows what to tell them.
    pub fn dismiss_watchers(&mut self, key: Key<'_>, count: usize) -> Vec<WaiterId> {
        self.watching.dismiss(key, count)
    }

    /// The client of this request has gone, or does not watch any more. Whether it did.
    pub fn stops_watching(&mut self, id: WaiterId) -> bool {
        self.watching.leave(id)
    }
}
