//! Changes of keys by the server itself, or by commands other than ours.
//!
//! The server reports them while they happen, when nothing can be refused any longer: only the node's memory changes
//! here.

use crate::guard::evicted::Evictee;
use crate::guard::flush::Flush;
use crate::lock::Lock;
use crate::lock::deadlines::{Detached, Due};
use crate::lock::grant::GrantId;
use crate::node::Node;
use crate::values::cause::Cause;
use crate::values::key::Key;
use crate::values::time::{BootTime, Now};
use crate::values::token::Token;

impl Node {
    /// Adds the lock in `key`, if there is one, to the table of deadlines, so that the node deletes it when its lease
    /// ends.
    pub fn schedule_expiry(&mut self, key: Key<'_>, lock: Option<&mut Lock>) {
        if let Some(lock) = lock {
            self.deadlines.schedule(key, lock);
        }
    }

    /// Notes that `lock` came to `key` from elsewhere: it was loaded, replicated, renamed or restored. Later tokens are
    /// larger than its own. Its lease may be longer than this node grants, so that a guard has to last longer.
    pub fn on_lock_arrived(&mut self, key: Key<'_>, lock: &mut Lock, now: BootTime) {
        if let Some((token, ttl_ms)) = lock.highest() {
            self.saw(key, token, ttl_ms, now);
        }
        self.history.on_lock_arrived(lock);
        lock.forget_past();
        self.schedule_expiry(key, Some(lock));
        self.watching.wake(key);
    }

    /// Notes that a grant of `lock` in `key` was changed by replication: the grant `id` is new, or different.
    pub fn on_grant_arrived(&mut self, key: Key<'_>, lock: &mut Lock, id: GrantId, now: BootTime) {
        let grant = lock.grant(id);
        self.saw(key, grant.token(), grant.ttl_ms(), now);
        self.schedule_expiry(key, Some(lock));
        self.watching.wake(key);
    }

    fn saw(&mut self, key: Key<'_>, token: Token, ttl_ms: u32, now: BootTime) {
        self.ledger.on_lease(ttl_ms, self.skew_ms, now);
        self.tokens.observe(key.name, token);
    }

    /// Notes that `lock` is about to leave `key`, by whatever command or event, so that it needs no deadline there.
    pub fn cancel_expiry(&mut self, key: Key<'_>, lock: &mut Lock) {
        self.deadlines.cancel(key.db, lock);
    }

    /// Keeps the allocated memory of `lock`, which left its key, for a new lock. Returns the lock if its memory is not
    /// needed; then the caller drops it.
    #[inline(always)]
    pub fn reuse(&mut self, lock: Box<Lock>) -> Option<Box<Lock>> {
        self.spare.keep(lock)
    }

    /// Takes the lock of readers from which a writer's was made ([`Event::Converted`](super::step::Event)). It may have many
    /// ended grants, so to drop it takes long.
    pub fn take_converted(&mut self) -> Option<Box<Lock>> {
        self.converted.take()
    }

    /// Removes `due` from the table of deadlines, because its lock is gone.
    pub fn forget_due(&mut self, due: &Due) {
        self.deadlines.forget(due);
    }

    /// Notes that something other than a command of this module removes the lock from `key`. Plans a check of the key's
    /// queue and watchers for the time after that. Returns whether there are any.
    pub fn on_lock_gone(&mut self, key: Key<'_>) -> bool {
        let shared = self.share_name(key);
        let key = Key { name: shared.as_deref().unwrap_or(key.name), ..key };
        self.waiting.wake_at(key, BootTime::default());
        self.watching.wake(key);
        self.breaking.iter_mut().filter(|breaking| breaking.key() == key).for_each(|breaking| breaking.is_cut = true);
        self.waiting.has_queue(key) || self.watching.has(key)
    }

    /// Notes that the server evicted `lock` from `key`. The holder does not know, so other owners are kept out until
    /// its lease would have ended. Returns whether the lease was still running.
    pub fn evict(&mut self, key: Key<'_>, lock: Evictee, now: Now) -> bool {
        self.history.was_evicted(key);
        if now.boot > lock.end {
            return false;
        }
        if self.evicted.has_room(key.name) {
            self.evicted.note(key, lock, now.boot);
        } else {
            self.arm_guard(Cause::Eviction, now.boot, lock.end);
        }
        true
    }

    /// Notes that a database, or all of them (`None`), is about to be emptied. Returns the deadlines of its locks. The
    /// caller hands them to [`Node::on_perhaps_dropped`], or their end to [`Node::on_dropped`], which guards the node.
    pub fn flush(&mut self, db: Option<u32>) -> Detached {
        // Queues of other databases are checked too: the guard may be armed now, which changes when they can be served.
        self.waiting.wake_all();
        self.watching.wake_all();
        self.keepalives.on_flushed(db);
        self.deadlines.detach(db)
    }

    /// Swaps two databases. If a database without locks takes the place of one with locks, clients no longer find these
    /// locks. Then this returns the database where the locks are now, and when the last of them ends.
    pub fn swap(&mut self, one: u32, other: u32) -> Option<(u32, BootTime)> {
        self.deadlines.swap(one, other);
        self.gates.swap(one, other);
        self.swaps = self.swaps.wrapping_add(1);
        // All queues are checked again, because their databases contain other locks now.
        self.waiting.wake_all();
        self.watching.wake_all();
        let moved = self.breaking.iter_mut().filter(|breaking| [one, other].contains(&breaking.db));
        moved.for_each(|breaking| breaking.is_cut = true);
        match [one, other].map(|db| (db, self.deadlines.last(db))) {
            [(db, Some(last)), (_, None)] | [(_, None), (db, Some(last))] => Some((db, last)),
            _ => None,
        }
    }

    /// Notes that locks were dropped for good. Their holders do not know, so nothing is granted until `last`, when the
    /// last of their leases would have ended. Returns whether any lease was still running; then the state file must say
    /// so before anything else happens.
    pub fn on_dropped(&mut self, last: BootTime, now: BootTime) -> bool {
        let is_live = now <= last;
        if is_live {
            self.arm_guard(Cause::Flush, now, last);
        }
        is_live
    }

    /// Notes that locks were dropped, perhaps at the start of a reload that brings them back. Once data is loaded,
    /// [`Node::take_flush`] lists the locks that must be back. If no lease was still running, this hands `dropped`
    /// back.
    pub fn on_perhaps_dropped(&mut self, dropped: Detached, now: BootTime) -> Result<(), Detached> {
        let Some(last) = dropped.last().filter(|last| now <= *last) else { return Err(dropped) };
        let guard = self.guard;
        self.flush.get_or_insert(Flush { guard, dropped: vec![] }).dropped.push(dropped);
        self.guard.arm(Cause::Flush, now, last);
        Ok(())
    }

    /// Returns the locks that the last flushes dropped, if any lease was still running. The driver calls it after a
    /// load of data, or when no load can bring the locks back any longer.
    pub fn take_flush(&mut self) -> Option<Flush> {
        self.flush.take()
    }

    /// Ends the guard that was armed for `flush`, because its locks are all back.
    pub fn on_reloaded(&mut self, flush: &Flush) {
        self.guard = flush.guard;
        self.history.on_reloaded();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::start::GuardPolicy;
    use crate::fixture::{at, mine, node, owner, token, ttl};
    use crate::lock::grant::Grant;
    use crate::refusal::Refusal;
    use crate::request::Note;
    use crate::values::limits::EVICTED_MAX;

    /// Puts a lock into the key `name`, with a lease until 1 000 ms, and flushes it at `at_ms`. A reload may follow.
    fn flushed(node: &mut Node, name: &[u8], at_ms: u64) -> Result<(), Detached> {
        node.schedule_expiry(Key { db: 0, name }, Some(&mut mine(1)));
        let dropped = node.flush(None);
        node.on_perhaps_dropped(dropped, at(at_ms).boot)
    }

    #[test]
    fn a_reload_leaves_the_guard_as_it_was_before_the_first_flush() {
        let mut node = node();
        node.guard.arm(Cause::Operator, at(0).boot, at(100).boot);
        let before = node.guard;
        assert!(flushed(&mut node, b"one", 10).is_ok() && flushed(&mut node, b"two", 20).is_ok());
        assert_eq!(node.guard.left_ms(at(20).boot), 980);
        let flush = node.take_flush().unwrap();
        let names: Vec<_> = flush.locks().map(|(_, name, end)| (name, end)).collect();
        assert_eq!(names, [(&b"one"[..], at(1_000).boot), (b"two", at(1_000).boot)]);
        node.on_reloaded(&flush);
        assert_eq!(node.guard, before);
        assert!(node.take_flush().is_none());
    }

    /// A guard is armed between a flush and the load that brings the locks back: for locks dropped for good, by an
    /// operator, or by a promotion. It stays after the reload.
    #[test]
    fn what_arms_the_guard_meanwhile_outlasts_a_reload() {
        let causes: [(Cause, fn(&mut Node)); 3] = [
            (Cause::Flush, |node| assert!(node.on_dropped(at(500).boot, at(20).boot))),
            (Cause::Operator, |node| _ = node.guard_by_operator(Some(480), at(20).boot)),
            (Cause::Promotion, |node| node.become_master(GuardPolicy::Auto, at(20))),
        ];
        for (cause, arm) in causes {
            let mut node = node();
            assert!(flushed(&mut node, b"one", 10).is_ok());
            arm(&mut node);
            let flush = node.take_flush().unwrap();
            node.on_reloaded(&flush);
            let armed = node.guard.armed(at(20).boot).unwrap();
            assert_eq!(armed.cause, cause);
            assert!(cause == Cause::Promotion || armed.until == at(500).boot, "{armed:?}");
        }
    }

    /// After a flush an operator lifts the guard. The reload that follows does not arm it again.
    #[test]
    fn a_guard_that_was_lifted_meanwhile_stays_lifted() {
        let mut node = node();
        node.guard.arm(Cause::Operator, at(0).boot, at(100).boot);
        assert!(flushed(&mut node, b"one", 10).is_ok());
        node.guard_by_operator(None, at(20).boot);
        let flush = node.take_flush().unwrap();
        node.on_reloaded(&flush);
        node.guard.ensure_open(at(20).boot).unwrap();
    }

    /// An operator lifts the guard twice. Only the first time does the state file have to be written.
    #[test]
    fn a_guard_that_is_not_armed_is_not_lifted() {
        let mut node = node();
        assert!(!node.guard_by_operator(None, at(10).boot));
        assert!(node.guard_by_operator(Some(480), at(20).boot));
        assert!(node.guard_by_operator(None, at(30).boot));
        assert!(!node.guard_by_operator(None, at(40).boot));
        assert!(node.guard_by_operator(Some(5), at(50).boot));
        assert!(!node.guard_by_operator(None, at(60).boot), "it had ended");
        // No guard is armed. But the node knows of leases that an unknown master may have granted, and a later guard
        // would wait for them.
        node.become_replica();
        node.become_master(GuardPolicy::Never, at(70));
        assert!(node.guard_by_operator(None, at(80).boot));
        assert!(!node.guard_by_operator(None, at(90).boot));
    }

    /// More locks are evicted than the node remembers by key. Then it guards all keys.
    #[test]
    fn more_evicted_locks_than_are_remembered_guard_the_whole_node() {
        let mut node = node();
        let held = Grant::new(owner("you"), Note::default(), token(7), at(5).boot, ttl(1_000));
        for n in 0..EVICTED_MAX as u64 {
            assert!(node.evict(Key { db: 0, name: &n.to_be_bytes() }, Evictee::of(&mine(1)), at(10)));
        }
        let other = Key { db: 0, name: b"other" };
        assert_eq!(node.ensure_may_grant(other, owner("you"), true, at(20).boot), Ok(()));
        assert!(node.evict(Key { db: 0, name: b"one more" }, Evictee::of(&mine(1)), at(20)));
        let guarded = Err(Refusal::Guarded { left_ms: 980, cause: Cause::Eviction });
        assert_eq!(node.ensure_may_grant(other, owner("you"), true, at(20).boot), guarded);
        assert_eq!(node.ensure_trusted(&held, at(20).boot), Ok(()), "what is in memory is as sure as before");
    }

    #[test]
    fn locks_that_had_ended_are_nothing_to_guard() {
        let mut node = node();
        assert_eq!(flushed(&mut node, b"one", 1_001).unwrap_err().len(), 1);
        assert!(!node.on_dropped(at(1_000).boot, at(1_001).boot));
        assert!(node.take_flush().is_none());
        node.guard.ensure_open(at(1_001).boot).unwrap();
    }
}
