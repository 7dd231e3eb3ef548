//! What comes about by itself: waits that are over, queues to be looked at, leases that end.

use std::sync::Arc;

use super::step::Request;
use crate::keepalive::Renewal;
use crate::lock::deadlines::Due;
use crate::node::Node;
use crate::queue::breaking::Breaking;
use crate::queue::of_key::WaiterId;
use crate::queue::waiting::Answer;
use crate::values::key::Key;
use crate::values::time::BootTime;

/// Something that is due, for one key: [`super::Run`] does it.
#[derive(Debug)]
pub enum Work {
    /// The queue of this name in this database is to be looked at.
    Look(u32, Arc<[u8]>),
    /// This lease may have to be prolonged.
    Renew(Renewal),
    /// A BREAK of many grants goes on.
    Break(Breaking),
    /// This lease has ended.
    Expire(Due),
}

impl Work {
    /// The key for which it is due.
    pub fn key(&self) -> Key<'_> {
        match self {
            Work::Look(db, name) => Key { db: *db, name },
            Work::Renew(renewal) => renewal.key(),
            Work::Break(breaking) => breaking.key(),
            Work::Expire(due) => due.key(),
        }
    }

    /// What is to be done about the key.
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
    /// When the next thing happens that no command brings about: a lease ends, a wait, or what is kept free.
    pub fn next_due(&self) -> Option<BootTime> {
        if !self.breaking.is_empty() {
            return Some(BootTime::default());
        }
        let planned = [self.deadlines.earliest(), self.waiting.next_due(), self.watching.next_due()];
        planned.into_iter().chain([self.keepalives.next_due(), self.listeners.next_due()]).flatten().min()
    }

    /// Answers the one whose wait has been over longest at `now`; `false` if there is none. That changes no key, so it is also
    /// done where the node may not write.
    pub fn time_out(&mut self, now: BootTime) -> bool {
        self.queues().time_out(now)
    }

    /// No grant with the token of `breaking` is left: its client is answered.
    pub fn has_broken(&mut self, breaking: &Breaking) {
        self.waiting.tell(breaking.client, Answer::Broken(breaking.token));
    }

    /// Returns true if grants are broken, slice by slice, for this client, which waits for the end of that.
    pub fn is_breaking(&self, client: WaiterId) -> bool {
        self.breaking.iter().any(|breaking| breaking.client == client)
    }

    /// Takes out the watcher whose time has been up longest at `now`: it is to be told. That changes no key either.
    pub fn take_watcher_timed_out(&mut self, now: BootTime) -> Option<WaiterId> {
        self.watching.take_timed_out(now)
    }

    /// Takes out a watched lock that is to be looked at ([`Node::take_told`]), the one that has been due longest at `now`.
    pub fn take_watch_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        self.watching.pop_due(now)
    }

    /// Takes out what has been due longest at `now` of that which changes keys. Queues come first: a look at one may serve
    /// somebody. With `may_answer` off they are left, because answers to those who wait are sent later. A lease that is kept is prolonged
    /// before any is found to have ended.
    pub fn take_due(&mut self, now: BootTime, may_answer: bool) -> Option<Work> {
        let look = if may_answer { self.waiting.pop_due(now) } else { None };
        look.map(|(db, name)| Work::Look(db, name))
            .or_else(|| self.breaking.pop_front().map(Work::Break))
            .or_else(|| self.keepalives.take_due(now).map(Work::Renew))
            .or_else(|| self.deadlines.pop_due(now).map(Work::Expire))
    }
}
