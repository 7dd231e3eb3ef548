//! The key of the model: drives the engine of `core` in memory, and records the answers that clients received.

use palisade_core::engine::{Finding, Key, Reply, Request, Run, Step, Work};
use palisade_core::request::{Acquire, Note, Owner, Patience, Reenter, Release, Ttl, Wait};
use palisade_core::{Answer, BootTime, Evictee, Lock, Node, Now, Refusal, Settings, Waiter, WaiterId, Want, Wanted};

use crate::rules::{Rule, Without};

/// The only key, in the only database.
const AT: Key<'static> = Key { db: 0, name: b"k" };

/// A tick of the model, in milliseconds.
pub const TICK_MS: u32 = 100;

/// The length of a lease, in milliseconds.
const TTL_MS: u32 = 2 * TICK_MS;

/// The longest wait of a request, in milliseconds: longer than the model lasts.
const WAIT_MS: u64 = 1_000 * TICK_MS as u64;

/// The length of a reservation, in milliseconds; shorter than a tick.
const WINDOW_MS: u32 = 20;

/// A waiting request, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waits {
    pub id: u64,
    /// The owner that sent the request.
    pub owner: u8,
    /// The id of the request whose place in the queue this one shares: the earliest of the same owner that was waiting
    /// when this one came.
    pub place: u64,
    /// True if the request's client has disconnected, even if the node has not noticed.
    pub is_gone: bool,
}

/// A promise of the node, on which an owner may rely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    pub owner: u8,
    pub until: BootTime,
}

/// One key of one node.
#[derive(Clone, Debug)]
pub struct OneKey {
    pub node: Node,
    pub lock: Option<Lock>,
    pub tick: u32,
    without: Without,
    /// The waiting requests, in order of arrival.
    pub waits: Vec<Waits>,
    /// The last grant, unless its holder released it or an operator broke it.
    pub grant: Option<Grant>,
    /// The owner for whom the free lock is reserved, and the end of the reservation.
    pub kept: Option<Grant>,
    was_guarded: bool,
    /// The owner that was just granted the lock. It is cleared once clients have received the result.
    just_granted: Option<u8>,
    requests: u64,
    /// The first rule that was broken, in words, if any.
    pub broken: Option<String>,
}

impl OneKey {
    pub fn new(without: Without) -> Self {
        let mut node = Node::new(10);
        let handoff_window_ms = if without.is(Rule::ReservationEnds) { u32::MAX / 2 } else { WINDOW_MS };
        node.configure(Settings { handoff_window_ms, ..Settings::default() });
        Self {
            node,
            lock: None,
            tick: 0,
            without,
            waits: vec![],
            grant: None,
            kept: None,
            was_guarded: false,
            just_granted: None,
            requests: 0,
            broken: None,
        }
    }

    pub fn now(&self) -> Now {
        let boot = BootTime::default().plus_ms((1 + self.tick) * TICK_MS);
        Now::new(boot, 1_000_000 + boot.as_us())
    }

    /// Returns the name under which an owner sends its request. With `OwnersShareAPlace` switched off, each request has
    /// a name of its own.
    fn name(&self, owner: u8) -> Vec<u8> {
        let is_second = self.waits.iter().any(|waits| waits.owner == owner);
        let suffix = self.without.is(Rule::OwnersShareAPlace) && is_second;
        vec![b'a' + owner, b'0' + u8::from(suffix)]
    }

    pub fn acquire(&mut self, owner: u8, waits: bool) {
        let name = self.name(owner);
        let patience = Patience::new(Some(if waits { WAIT_MS } else { 0 })).unwrap_or_default();
        let (Ok(name), Ok(ttl)) = (Owner::new(&name), Ttl::new(Some(TTL_MS.into()), TTL_MS)) else { return };
        let ask = Acquire {
            owner: name,
            ttl,
            wanted: Wanted::Exclusive,
            retry: false,
            fence: None,
            note: Note::default(),
            patience,
            behind: Default::default(),
        };
        let barges = self.without.is(Rule::NoBarging) && self.is_free();
        let aside = barges.then(|| std::mem::take(self.node.tamper().waiting));
        let _ = self.perform(&Request::Acquire(ask), owner);
        if let Some(aside) = aside {
            *self.node.tamper().waiting = aside;
        }
        self.answers();
    }

    pub fn wait_for_turn(&mut self, owner: u8) {
        let name = self.name(owner);
        let (Ok(name), Ok(patience)) = (Owner::new(&name), Patience::new(Some(WAIT_MS))) else { return };
        let was_free = self.is_free() && self.others_wait(owner).is_none();
        let (note, behind) = Default::default();
        let ask = Wait { owner: name, wanted: Wanted::Exclusive, patience, ticket: None, note, behind };
        if self.perform(&Request::Wait(ask), owner) == Ok(Reply::Turn(1)) && self.is_free() && !self.is_kept_for(owner)
        {
            self.is_told(owner, was_free);
        }
        self.answers();
    }

    pub fn release(&mut self, owner: u8) {
        let name = self.name(owner);
        let Ok(name) = Owner::new(&name) else { return };
        // The release also withdraws the owner's waiting requests and its reservation.
        self.kept = self.kept.filter(|kept| kept.owner != owner);
        self.waits.iter_mut().filter(|waits| waits.owner == owner).for_each(|waits| waits.is_gone = true);
        let holds = self.lock.as_ref().map_or(0, |lock| lock.first().holds());
        self.grant = self.grant.filter(|grant| grant.owner != owner || holds > 1);
        let _ = self.perform(&Request::Release(Release { owner: name, level: None, token: None }), owner);
        self.answers();
    }

    pub fn reenter(&mut self, owner: u8) {
        let name = self.name(owner);
        let Ok(name) = Owner::new(&name) else { return };
        let _ = self.perform(&Request::Reenter(Reenter { owner: name, level: None, ttl: None, adopts: false }), owner);
        self.answers();
    }

    pub fn break_it(&mut self) {
        self.grant = None;
        let _ = self.perform(&Request::Break(None), 0);
        self.answers();
    }

    /// Deletes the key by hand. The grant then no longer counts, since the person who deletes it is responsible for the
    /// consequences.
    pub fn delete(&mut self) {
        self.grant = None;
        self.take_out();
        self.node.on_lock_gone(AT);
    }

    /// Evicts the key to free memory. Its holder does not learn of it.
    pub fn evict(&mut self) {
        if let Some(lock) = self.take_out() {
            let now = self.now();
            self.node.evict(AT, Evictee::of(&lock), now);
            self.node.on_lock_gone(AT);
        }
    }

    /// Flushes all keys. The holder does not learn of it.
    pub fn flush(&mut self) {
        let dropped = self.node.flush(None).last();
        self.lock = None;
        if let Some(last) = dropped {
            self.node.on_dropped(last, self.now().boot);
        }
    }

    pub fn arm(&mut self, ticks: u32) {
        self.was_guarded = true;
        self.node.guard_by_operator(Some(ticks * TICK_MS), self.now().boot);
    }

    /// Ends a client's connection.
    pub fn is_gone(&mut self, which: usize) {
        let Some(waits) = self.waits.get_mut(which) else { return };
        waits.is_gone = true;
        if !self.without.is(Rule::DeadHeadPasses) {
            let id = WaiterId(waits.id);
            self.node.leave_queue(id, self.now().boot);
            self.waits.remove(which);
        }
    }

    /// Lets a tick pass, and does the due work.
    pub fn passes(&mut self) {
        self.tick += 1;
        self.settle();
    }

    /// Does the work that is due at this moment: ends leases and serves the queue.
    pub fn settle(&mut self) {
        let now = self.now();
        loop {
            while self.node.time_out(now.boot) {}
            // With `GuardEndServes` switched off, a queue that a guard postponed is never served again.
            let is_over = self.was_guarded && self.node.guard().armed(now.boot).is_none();
            let looks = !self.without.is(Rule::GuardEndServes) || !is_over || self.lock.is_some();
            match self.node.take_due(now.boot, true) {
                Some(Work::Look(..)) if looks => drop(self.perform(&Request::Look, 0)),
                Some(Work::Look(..)) => {}
                Some(Work::Renew(renewal)) => drop(self.perform(&Request::Renew(&renewal), 0)),
                Some(Work::Break(breaking)) => drop(self.perform(&Request::BreakOn(&breaking), 0)),
                Some(Work::Expire(due)) => drop(self.perform(&Request::Expire(&due), 0)),
                None => break,
            }
            self.answers();
        }
        self.answers();
    }

    fn perform(&mut self, request: &Request<'_>, owner: u8) -> Result<Reply, Refusal> {
        let now = self.now();
        let mut run = Run::new(AT, request);
        let mut said = Finding::Yes;
        loop {
            let step = run.next(self.lock.as_mut(), said, &mut self.node, now);
            said = Finding::Yes;
            match step {
                Step::Store(_) | Step::Replace => {
                    if let Some(lock) = run.take_granted() {
                        self.is_granted(&lock);
                        match &mut self.lock {
                            Some(held) => drop(held.replace(*lock)),
                            None => self.lock = Some(*lock),
                        }
                    }
                }
                Step::Delete(_) => drop(self.take_out()),
                Step::Block => said = Finding::Blocked(self.join(owner)),
                Step::Done(answer) => return answer,
                Step::Changed(..)
                | Step::Left(_)
                | Step::Publish(_)
                | Step::AnswerWatchers
                | Step::Ask(_)
                | Step::ReadSlots
                | Step::Redirect
                | Step::Write => {}
            }
        }
    }

    fn join(&mut self, owner: u8) -> WaiterId {
        self.requests += 1;
        if self.without.is(Rule::FirstInFirstOut) {
            self.first_to_the_end();
        }
        let own = self.waits.iter().filter(|waits| waits.owner == owner && !waits.is_gone);
        let place = own.map(|waits| waits.place).min().unwrap_or(self.requests);
        self.waits.push(Waits { id: self.requests, owner, place, is_gone: false });
        WaiterId(self.requests)
    }

    fn first_to_the_end(&mut self) {
        let now = self.now().boot;
        let first = self.node.waiting().of(AT).next().map(|first| first.id);
        if let Some(first) = first.and_then(|first| self.node.leave_queue(first, now)) {
            let Waiter { id, want, since, .. } = first;
            let last =
                Waiter::new(id, first.owner(), first.note(), want, since, u32::try_from(WAIT_MS).unwrap_or(u32::MAX));
            self.node.tamper().waiting.join(AT, last, None);
        }
    }

    fn take_out(&mut self) -> Option<Lock> {
        let mut lock = self.lock.take()?;
        self.node.cancel_expiry(AT, &mut lock);
        Some(lock)
    }

    pub fn is_free(&self) -> bool {
        self.lock.as_ref().is_none_or(|lock| lock.is_expired(self.now().boot))
    }

    fn is_kept_for(&self, owner: u8) -> bool {
        self.kept.is_some_and(|kept| kept.owner == owner && self.now().boot <= kept.until)
    }

    /// Returns the first request of another owner that waits for the lock or a turn, if any.
    fn others_wait(&self, owner: u8) -> Option<&Waits> {
        self.waits.iter().find(|waits| !waits.is_gone && waits.owner != owner)
    }

    /// Checks the rules that apply whenever the lock is granted.
    fn is_granted(&mut self, lock: &Lock) {
        let (now, owner) = (self.now().boot, lock.first().owner()[0] - b'a');
        if self.node.guard().armed(now).is_some() {
            self.breaks("exclusion: granted while guarded");
        }
        if self.grant.is_some_and(|grant| now <= grant.until && grant.owner != owner) {
            self.breaks("exclusion: somebody else holds it");
        }
        let kept = self.kept.take().filter(|kept| now <= kept.until);
        if kept.is_some_and(|kept| kept.owner != owner) {
            self.breaks("order of the queue: it is kept for somebody else");
        }
        let first = self.waits.iter().filter(|waits| !waits.is_gone).min_by_key(|waits| waits.place).copied();
        if kept.is_none() && first.is_some_and(|first| first.owner != owner) {
            self.breaks("order of the queue: somebody waited longer");
        }
        if self.waits.iter().any(|waits| waits.owner == owner && waits.is_gone)
            && !self.waits.iter().any(|waits| waits.owner == owner && !waits.is_gone)
            && first.is_some()
        {
            self.breaks("order of the queue: its client is gone");
        }
        self.grant = Some(Grant { owner, until: lock.first().deadline() });
        self.just_granted = Some(owner);
    }

    fn is_told(&mut self, owner: u8, in_order: bool) {
        if !in_order {
            self.breaks("order of the queue: told before its turn");
        }
        self.kept = Some(Grant { owner, until: self.now().boot.plus_ms(WINDOW_MS) });
    }

    /// Delivers the node's answers to the clients that wait for them.
    fn answers(&mut self) {
        for (WaiterId(id), answer) in self.node.take_answers(usize::MAX) {
            let Some(at) = self.waits.iter().position(|waits| waits.id == id) else {
                self.breaks("one answer to a request that waits");
                continue;
            };
            let waits = self.waits.remove(at);
            // A turn answers all requests of its owner that wait for a turn.
            if answer == Answer::Turn(1) && self.is_free() && !self.is_kept_for(waits.owner) {
                let in_order = self.waits.iter().all(|other| other.is_gone || other.place >= waits.place);
                self.is_told(waits.owner, in_order);
            }
        }
        // A grant answers all requests of its owner.
        if let Some(owner) = self.just_granted.take()
            && self.waits.iter().any(|waits| waits.owner == owner && !waits.is_gone)
        {
            self.breaks("order of the queue: an owner waits for itself");
        }
    }

    fn breaks(&mut self, what: &str) {
        self.broken.get_or_insert_with(|| what.to_owned());
    }

    /// Checks that every waiter is served in time, once leases and guards end, if no client sends anything any longer.
    /// Returns a description of the failure, or `None`.
    pub fn goes_wrong(&self) -> Option<String> {
        let mut later = self.clone();
        for _ in 0..LONG_TICKS {
            later.passes();
        }
        let waits = later.waits.iter().any(|waits| !waits.is_gone);
        later.broken.or_else(|| waits.then(|| "progress: somebody waits for ever".to_owned()))
    }

    /// Returns the part of the state that determines the key's future.
    pub fn essence(&self) -> impl std::hash::Hash + Eq + use<> {
        let lock = self
            .lock
            .as_ref()
            .map(|lock| (lock.first().owner().to_vec(), lock.first().deadline(), lock.first().holds()));
        let order: Vec<_> = self.node.waiting().of(AT).map(|waiter| (waiter.id, waiter.want == Want::Turn)).collect();
        let now = self.now().boot;
        let reserved = self.node.waiting().reservation(AT, now).map(|(owner, until)| (owner.bytes().to_vec(), until));
        let guard = self.node.guard().armed(now).map(|armed| (armed.since, armed.until));
        (
            (self.tick, lock, order, reserved, guard),
            (self.node.next_due(), self.node.evicted().len()),
            (self.waits.clone(), self.grant, self.kept, self.broken.clone()),
        )
    }
}

/// A number of ticks that is longer than all leases and guards of a model together.
const LONG_TICKS: u32 = 40;
