//! Events that no command causes: waits that have timed out, queues to check, leases that end.

use std::sync::Arc;

use super::step::Request;
use crate::gate::Gate;
use crate::gate::forgetting::MayBeOver;
use crate::keepalive::Renewal;
use crate::lock::deadlines::Due;
use crate::node::Node;
use crate::queue::breaking::Breaking;
use crate::queue::of_key::WaiterId;
use crate::queue::waiting::Answer;
use crate::values::key::Key;
use crate::values::time::BootTime;

/// The pause before a lease or a gate whose slot is coming to this node in one step is looked at again, in milliseconds.
const ARRIVING_AGAIN_MS: u32 = 1_000;

/// Work on one key that is due now; [`super::Run`] performs it.
#[derive(Debug)]
pub enum Work {
    /// A queue to check, by the database and name of its key.
    Look(u32, Arc<[u8]>),
    /// A lease that is kept alive, and may have to be renewed.
    Renew(Renewal),
    /// A BREAK of many grants, which continues with its next slice.
    Break(Breaking),
    /// A lease that has ended.
    Expire(Due),
}

impl Work {
    /// Returns the key for which the work is due.
    pub fn key(&self) -> Key<'_> {
        match self {
            Work::Look(db, name) => Key { db: *db, name },
            Work::Renew(renewal) => renewal.key(),
            Work::Break(breaking) => breaking.key(),
            Work::Expire(due) => due.key(),
        }
    }

    /// Returns the request that does the work.
    pub fn request(&self) -> Request<'_> {
        match self {
            Work::Look(..) => Request::Look,
            Work::Renew(renewal) => Request::Renew(renewal),
            Work::Break(breaking) => Request::BreakOn(breaking),
            Work::Expire(due) => Request::Expire(due),
        }
    }
}

impl Node {
    /// Returns the time of the next event that no command causes: a lease, wait, reservation or gate ends, a lease has
    /// to be renewed, or a BREAK goes on (then zero).
    pub fn next_due(&self) -> Option<BootTime> {
        if !self.breaking.is_empty() {
            return Some(BootTime::default());
        }
        let planned = [
            self.deadlines.earliest(),
            self.waiting.next_due(),
            self.watching.next_due(),
            self.keepalives.next_due(),
            self.listeners.next_due(),
            self.gates.next_due(),
        ];
        planned.into_iter().flatten().min()
    }

    /// Answers the request whose wait timed out first. Returns false if no wait has timed out at `now`. No key changes,
    /// so this also happens when the node may not write.
    pub fn time_out(&mut self, now: BootTime) -> bool {
        self.queues().time_out(now)
    }

    /// Ends the reservations that were not used in time, of the queue whose check has been due longest at `now`. Returns
    /// false if none is due. A replica calls this: it hands no lock over, but may have made reservations as a master.
    pub fn end_turns_due(&mut self, now: BootTime) -> bool {
        let Some((db, name)) = self.waiting.pop_due(now) else { return false };
        let key = Key { db, name: &name };
        self.waiting.end_turns_over(key, now);
        if let Some(end) = self.waiting.reservation(key, now).map(|(_, end)| end) {
            self.waiting.wake_at(key, end.plus_us(1));
        }
        true
    }

    /// Answers the client of `breaking` that all is done: no grant with its token is left.
    pub fn answer_break(&mut self, breaking: &Breaking) {
        self.tell_of_break(breaking, Answer::Broken(breaking.token));
    }

    /// Ends every BREAK in progress on the lock of `key`, which has ended: no grant is left. Returns whether there was
    /// one.
    #[inline(never)]
    pub(crate) fn end_breaks(&mut self, key: Key<'_>) -> bool {
        let breaks = std::mem::take(&mut self.breaking).into_iter();
        let (done, others): (Vec<_>, Vec<_>) = breaks.partition(|breaking| breaking.key() == key && !breaking.is_cut);
        self.breaking = others.into();
        done.iter().for_each(|breaking| self.answer_break(breaking));
        !done.is_empty()
    }

    /// Answers the client of `breaking`, if it still waits.
    pub(crate) fn tell_of_break(&mut self, breaking: &Breaking, answer: Answer) {
        if let Some(client) = breaking.client {
            self.waiting.answer(client, answer);
        }
    }

    /// Returns whether this client waits for the end of its BREAK, which is done in slices.
    pub fn is_breaking(&self, client: WaiterId) -> bool {
        self.breaking.iter().any(|breaking| breaking.client == Some(client))
    }

    /// Removes the watcher whose wait timed out first, so that the driver can answer it. `None` if no wait has timed
    /// out at `now`. No key changes.
    pub fn take_watcher_timed_out(&mut self, now: BootTime) -> Option<WaiterId> {
        self.watching.take_timed_out(now)
    }

    /// Removes the watched lock whose check has been due longest at `now`, and returns its database and name. The
    /// driver then answers the watchers of [`Node::take_outdated`].
    pub fn take_watch_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        self.watching.pop_due(now)
    }

    /// Removes and returns the work that is due at `now`. Queues come first, since the check of one may grant a lock. If
    /// `may_answer` is false, queues are left for later. A lease that is kept alive is renewed before any lease is found
    /// to have ended. After that comes what has been due longest, so that no work keeps the other waiting for long. Every
    /// other time a renewal comes that was refused before.
    pub fn take_due(&mut self, now: BootTime, may_answer: bool) -> Option<Work> {
        let look = if may_answer { self.waiting.pop_due(now) } else { None };
        look.map(|(db, name)| Work::Look(db, name))
            .or_else(|| self.keepalives.take_due(now).map(Work::Renew))
            .or_else(|| self.take_longest_due(now))
    }

    /// Puts the work of `due` off, and returns true, if the slot of its lock is coming to this node in one step. The former
    /// owner still grants the locks there, and its extensions may be on their way.
    pub fn put_off_expiry(&mut self, due: &Due, now: BootTime) -> bool {
        let is_arriving = self.slots.is_arriving(due.key().name);
        if is_arriving {
            self.deadlines.put_off(due, now.plus_ms(ARRIVING_AGAIN_MS));
        }
        is_arriving
    }

    /// Returns whether the gate of an entry that came due has ended. As long as the slot of the gate is
    /// coming to this node in one step, its former owner decides that.
    pub fn is_gate_over(&mut self, due: &MayBeOver, gate: &mut Gate, now: BootTime) -> bool {
        if self.slots.is_arriving(due.key().name) {
            self.gates.put_off(due, gate, now.plus_ms(ARRIVING_AGAIN_MS));
            return false;
        }
        self.gates.is_over(due, gate, now)
    }

    fn take_longest_due(&mut self, now: BootTime) -> Option<Work> {
        // While very many leases end, a renewal that was refused for a moment would otherwise come too late.
        self.is_renewals_turn = !self.is_renewals_turn;
        let again =
            self.keepalives.next_again().map(|due| if self.is_renewals_turn { BootTime::default() } else { due });
        let take_again: TakeDue = |node, now| node.keepalives.take_again(now).map(Work::Renew);
        let mut kinds: [(Option<BootTime>, TakeDue); 3] = [
            (again, take_again),
            (self.breaking.front().map(|breaking| breaking.since), |node, _| {
                node.breaking.pop_front().map(Work::Break)
            }),
            (self.deadlines.earliest(), |node, now| node.deadlines.pop_due(now).map(Work::Expire)),
        ];
        kinds.sort_by_key(|(due, _)| *due);
        kinds.into_iter().filter(|(due, _)| due.is_some()).find_map(|(_, take)| take(self, now))
    }
}

/// Removes and returns the work of one kind that has been due longest.
type TakeDue = fn(&mut Node, BootTime) -> Option<Work>;
