//! What a driver does with those who wait, beside performing steps.

use crate::keepalive::ClientId;
use crate::node::Node;
use crate::queue::of_key::{Waiter, WaiterId};
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::Owner;
use crate::values::key::Key;
use crate::values::time::BootTime;

impl Node {
    /// Takes out answers to requests that waited, at most `count`: each has to be sent.
    pub fn take_answers(&mut self, count: usize) -> Vec<(WaiterId, Answer)> {
        self.waiting.take_answers(count)
    }

    /// Takes out the answer to one request, if there is one.
    pub fn take_answer_of(&mut self, id: WaiterId) -> Option<Answer> {
        self.waiting.take_answer_of(id)
    }

    /// The client of this request has gone at `now`, or does not wait any more. The request, if it waited.
    pub fn leave_queue(&mut self, id: WaiterId, now: BootTime) -> Option<Waiter> {
        self.waiting.leave_in_vain(id, now)
    }

    /// Takes requests out of the queue of `name` in `db`, at most `count`, without an answer: the driver has one.
    pub fn dismiss(&mut self, db: u32, name: &[u8], count: usize, now: BootTime) -> Vec<WaiterId> {
        self.waiting.dismiss(db, name, count, now)
    }

    /// Nobody can be granted the lock `name` of `db` now, for this reason.
    pub fn postpone(&mut self, db: u32, name: &[u8], refusal: Refusal, now: BootTime) {
        self.waiting.postpone(db, name, refusal, now);
    }

    /// A request whose listener ended leaves its queue at `now`; `false` if there is none.
    pub fn let_one_leave(&mut self, now: BootTime) -> bool {
        let Some(id) = self.listeners.take_leaving() else { return false };
        self.waiting.leave_in_vain(id, now);
        true
    }

    /// The requests of `owner` for the lock of `key` that this listener hears leave the queue at `now`; what is kept for it stays. How many
    /// they were.
    pub fn stop_waiting(&mut self, key: Key<'_>, owner: Owner<'_>, listener: ClientId, now: BootTime) -> usize {
        let is_heard = |id| self.listeners.listener_of(id) == Some(listener);
        self.waiting.stop(key, owner, is_heard, now)
    }
}
