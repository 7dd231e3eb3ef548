//! Refuses a request, or queues one that has to wait.

use super::at::At;
use super::run::{Run, Stage};
use super::step::{Finding, Question, Reply, Request, Step};
use crate::lock::Lock;
use crate::queue::of_key::{Waiter, WaiterId, Want};
use crate::queue::shares::{Asker, UserId};
use crate::refusal::Refusal;
use crate::request::{Acquire, Ticket, Wait};
use crate::rules::acquire::{Acquired, acquire_later};
use crate::values::limits::DISK_WAIT_MS;
use crate::values::time::Now;

impl Run<'_> {
    /// Answers with the refusal, unless waiting may help: the state file may be on the disk by now, and a request that
    /// allows time to wait joins the queue.
    #[cold]
    pub(super) fn refuse(&mut self, refusal: Refusal, at: &mut At<'_>) -> Option<Step> {
        if refusal == Refusal::NotYet && !self.asked_disk {
            self.asked_disk = true;
            return self.then(Stage::Ready, Step::Ask(Question::OnDisk));
        }
        let queues = match self.request {
            Request::Acquire(ask) => acquire_later(self.key, ask, refusal, at.node)
                .map(|acquired| Stage::Blocks { for_disk: acquired == Acquired::WaitsForDisk }),
            Request::Wait(ask) => {
                let room = || at.node.waiting.room_for(self.key, ask.owner);
                refusal.or_queue(ask.patience.ms(), room, Stage::Blocks { for_disk: false })
            }
            _ => Err(refusal),
        };
        self.stage = queues.unwrap_or_else(|refusal| Stage::Answers(Err(refusal)));
        (refusal == Refusal::NotYet && at.node.is_write_needed(at.now)).then_some(Step::Write)
    }

    #[cold]
    pub(super) fn asker_said(&mut self, for_disk: bool, at: &At<'_>) -> Option<Step> {
        match self.may_wait(at) {
            Ok(user) => self.then(Stage::Blocked { for_disk, user }, Step::Block),
            // The request only had to wait for the state file, so it is answered that the disk is the reason.
            Err(_) if for_disk => self.answer(Err(Refusal::NotYet)),
            Err(refusal) => self.answer(Err(refusal)),
        }
    }

    /// Returns the user who sent the request, or a refusal if the queue has no room for the request.
    fn may_wait(&self, at: &At<'_>) -> Result<UserId, Refusal> {
        let asker = match at.said {
            Finding::Asks(asker) => asker,
            Finding::Refused(refusal) => return Err(refusal),
            _ => Asker::default(),
        };
        let about = match *self.request {
            Request::Acquire(Acquire { owner, note, .. }) | Request::Wait(Wait { owner, note, .. }) => (owner, note),
            _ => return Ok(asker.user),
        };
        at.node.ensure_may_wait(self.key, about, asker).map(|()| asker.user)
    }

    /// Joins the queue if the server has blocked the client; the answer comes later. If it could not, a request that
    /// would wait only for the disk is refused with NOTYET.
    #[cold]
    pub(super) fn blocked(&mut self, user: UserId, for_disk: bool, at: &mut At<'_>) -> Option<Step> {
        if let Finding::Blocked(id) = at.said
            && let Some((mut waiter, ticket)) = waiter(self.request, id, for_disk, at.now)
        {
            waiter.user = user;
            self.join(waiter, ticket, for_disk, at);
        }
        let cannot_wait = for_disk && at.said == Finding::No;
        self.answer(if cannot_wait { Err(Refusal::NotYet) } else { Ok(Reply::Later) })
    }

    /// Adds the waiter to the queue, under the id of the blocked client.
    fn join(&mut self, mut waiter: Waiter, ticket: Option<Ticket>, for_disk: bool, at: &mut At<'_>) {
        self.touches_queue = true;
        let now = at.now.boot;
        let held = at.held.as_deref().filter(|lock| !lock.is_expired(now));
        let is_own = held.is_some_and(|lock| lock.find(waiter.owner()).is_some());
        let is_others = held.is_some() && !is_own;
        let is_joint = matches!(held, Some(Lock::Joint(_)));
        waiter.is_of_holder |= is_own && is_joint;
        let is_first = at.node.queues().join(self.key, waiter, ticket);
        // A ticket may put the request first in the queue, and it may be compatible with the holders of a joint lock.
        let may_join = is_joint && is_first;
        // The lock is free, or the requester's own, yet the request has to wait. No event on the key would cause a look
        // at the queue, so this plans one.
        if for_disk || !is_others || may_join {
            at.node.waiting.wake_at(self.key, now);
        }
    }
}

/// Builds the waiter for `request`, with its ticket. `None` for a request that never waits.
fn waiter(request: &Request<'_>, id: WaiterId, for_disk: bool, now: Now) -> Option<(Waiter, Option<Ticket>)> {
    match *request {
        Request::Acquire(Acquire { owner, ttl, wanted, retry, fence, note, patience, behind }) => {
            let want = Want::Lock { ttl, fence, retry };
            let ms = if for_disk { DISK_WAIT_MS } else { patience.ms() };
            let mut waiter = Waiter::new(id, owner, note, want, now.boot, ms);
            (waiter.wanted, waiter.behind, waiter.at_once) = (wanted, behind, for_disk);
            Some((waiter, None))
        }
        Request::Wait(Wait { owner, wanted, patience, ticket, note, behind }) => {
            let mut waiter = Waiter::new(id, owner, note, Want::Turn, now.boot, patience.ms());
            (waiter.wanted, waiter.behind) = (wanted, behind);
            Some((waiter, ticket))
        }
        _ => None,
    }
}
