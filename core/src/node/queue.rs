//! A driver's operations on waiting requests, beside the steps that it performs.

use std::sync::Arc;

use crate::keepalive::ClientId;
use crate::node::Node;
use crate::queue::leaving::Queues;
use crate::queue::listening::{Left, Listeners, News};
use crate::queue::of_key::{Waiter, WaiterId};
use crate::queue::shares::{Asker, Load, Loads, Taken, UserId, ensure_share};
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::{ListenerName, Note, Owner};
use crate::values::key::Key;
use crate::values::limits::TURNS_PART;
use crate::values::time::BootTime;

impl Node {
    /// Returns the shared copy of the name of `key` that its queue or its watchers have; `None` if it has neither. A
    /// driver that passes this name on with a request saves comparing its bytes at each stage.
    #[inline(always)]
    pub fn share_name(&mut self, key: Key<'_>) -> Option<Arc<[u8]>> {
        self.waiting.share_name(key).or_else(|| self.watching.share_name(key))
    }

    /// Returns how often a queue or watchers were searched by the bytes of a name, for tests.
    #[cfg(test)]
    pub(crate) fn searches(&self) -> usize {
        self.waiting.searches() + self.watching.searches()
    }

    /// Returns the queues, for changes by the rules.
    #[inline(always)]
    pub(crate) fn queues(&mut self) -> Queues<'_> {
        Queues { waiting: &mut self.waiting, history: &mut self.history }
    }

    /// Returns the places and bytes that all requests, watchers and listeners take. They include answers that no
    /// listener has taken yet, and turns that have a reservation.
    pub fn load(&self) -> Load {
        let tables = [self.waiting.loads(), self.watching.loads(), self.listeners.loads()];
        tables.iter().fold(self.waiting.turns(), |sum, loads| sum.plus(loads.all()))
    }

    /// Refuses the load `new` of another request of `asker`, if there is no room for it, or if the asker already has
    /// its share. Watchers have as many places as waiters, and neither takes the other's; the bytes are shared.
    pub(crate) fn ensure_room(&self, asker: Asker, new: Load, watches: bool) -> Result<(), Refusal> {
        let sum = |of: &dyn Fn(&Loads) -> Load, turns: Load| {
            let waiting = of(self.waiting.loads()).plus(of(self.listeners.loads())).plus(turns);
            let watching = of(self.watching.loads());
            let places = if watches { watching.places } else { waiting.places };
            Load { places, bytes: waiting.bytes + watching.bytes }
        };
        let all = sum(&|loads| loads.all(), self.waiting.turns());
        let user = sum(&|loads| loads.of(asker.user), Load::NONE);
        let listener = asker.listener.map_or(Load::NONE, |client| self.listeners.load_of(client));
        ensure_share(Taken { all, user, listener }, new, self.max_load)
    }

    /// Refuses a request of `owner` that would have to wait for the lock of `key`, for the reasons of
    /// [`Node::ensure_room`].
    pub(crate) fn ensure_may_wait(
        &self,
        key: Key<'_>,
        (owner, note): (Owner<'_>, Note<'_>),
        asker: Asker,
    ) -> Result<(), Refusal> {
        let texts = [key.name, owner.bytes(), note.bytes()];
        let waits = Load::of_entry(true, &texts);
        let beside = match asker.listener {
            Some(_) => Load::of_entry(false, &texts[..2]),
            None => Load::of_blocked(key.name),
        };
        self.ensure_room(asker, waits.plus(beside), false)
    }

    /// Returns whether the lock of `key` can be reserved for `owner`, which did not have to wait. Such reservations
    /// take at most an eighth of all room.
    pub(crate) fn has_room_for_turn(&self, key: Key<'_>, owner: Owner<'_>) -> bool {
        let turn = Load::of_entry(true, &[key.name, owner.bytes(), owner.bytes()]);
        let (turns, all) = (self.waiting.turns().plus(turn), self.load().plus(turn));
        let all = all.minus(Load { bytes: 0, ..self.watching.loads().all() });
        let Load { places, bytes } = self.max_load;
        let fits = |load: Load, part: u64| load.places <= places.div_ceil(part) && load.bytes <= bytes.div_ceil(part);
        fits(turns, TURNS_PART) && fits(all, 1)
    }

    /// Returns answers for the connection `client` of `user`, which listens under `name`; if there are many, only a
    /// part of them. The connection becomes a listener, if there is room for one more and `has_memory` does not refuse.
    pub fn listen(
        &mut self,
        client: ClientId,
        name: ListenerName<'_>,
        user: &[u8],
        has_memory: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<Vec<News>, Refusal> {
        if !self.listeners.is_listening(client, name, user)? {
            has_memory()?;
            let asker = Asker { user: UserId::of(user), listener: None };
            self.ensure_room(asker, Listeners::load_of_one(name, user), false)?;
            self.listeners.listen(client, name, user);
        }
        Ok(self.listeners.take_news(client))
    }

    /// Removes and returns at most `count` answers to waiting requests. The driver has to send each.
    pub fn take_answers(&mut self, count: usize) -> Vec<(WaiterId, Answer)> {
        self.waiting.take_answers(count)
    }

    /// Removes and returns the answer to one request, if there is one.
    pub fn take_answer_of(&mut self, id: WaiterId) -> Option<Answer> {
        self.waiting.take_answer_of(id)
    }

    /// Notes that the client of this request has gone at `now`, or no longer waits. Returns the request if it was in a
    /// queue.
    pub fn leave_queue(&mut self, id: WaiterId, now: BootTime) -> Option<Waiter> {
        self.breaking
            .iter_mut()
            .filter(|breaking| breaking.client == Some(id))
            .for_each(|breaking| breaking.client = None);
        self.queues().leave_without_lock(id, now)
    }

    /// Removes at most `count` requests from the queue of `key`. The driver answers them itself.
    pub fn dismiss(&mut self, key: Key<'_>, count: usize, now: BootTime) -> Vec<WaiterId> {
        self.queues().dismiss(key, count, now)
    }

    /// Postpones the next check of the queue of `key`, because `refusal` says that nobody can be granted the lock now.
    pub fn postpone(&mut self, key: Key<'_>, refusal: Refusal, now: BootTime) {
        self.queues().postpone(key, refusal, now);
    }

    /// Removes one request, or a slice of the news, that a listener left behind when it ended, at `now`. Returns false
    /// if nothing is left.
    pub fn remove_one_left(&mut self, now: BootTime) -> bool {
        match self.listeners.take_left() {
            Some(Left::Request(id)) => {
                self.queues().leave_without_lock(id, now);
                true
            }
            left => left.is_some(),
        }
    }

    /// Begins to dismiss all requests that wait now, one after the other ([`Node::dismiss_next`]).
    pub fn dismiss_all(&mut self) {
        self.waiting.dismiss_all();
    }

    /// Removes and returns the next dismissed request, which the driver has to answer. `None` if none is left.
    /// `Some(None)` if the next one came after [`Node::dismiss_all`] and stays.
    pub fn dismiss_next(&mut self, now: BootTime) -> Option<Option<WaiterId>> {
        self.queues().dismiss_next(now)
    }

    /// Removes the requests of `owner` for the lock of `key` that this listener made, at `now`. Their reservations
    /// stay. Returns their number.
    pub fn stop_waiting(&mut self, key: Key<'_>, owner: Owner<'_>, listener: ClientId, now: BootTime) -> usize {
        let is_heard = |id| self.listeners.listener_of(id) == Some(listener);
        Queues { waiting: &mut self.waiting, history: &mut self.history }.stop(key, owner, is_heard, now)
    }
}
