//! A node without Redis: the rules of `palisade-core` on locks in memory, and around them what the module does: it serves
//! queues, ends leases, keeps a state file, and judges at a start what that proves.
//!
//! It has one database, and can be part of a cluster. Times are those of its own two clocks. Its files are what it hands out and is handed back: whoever
//! runs it decides what a crash leaves of them.

mod files;
mod slots;

use std::collections::BTreeMap;

use palisade_core::limits::{FENCE_SPAN_US, START_LEAD};
use palisade_core::quorum::{Answer, Ask, NodeId};
use palisade_core::record::{self, Arrival, BootId};
use palisade_core::request::{Acquire, Extend, Note, Owner, Patience, Release, Ticket, Ttl, Wait};
use palisade_core::{
    Acquired, Answer as Told, BootTime, Cause, Extended, Fenced, Found as Ties, GuardPolicy, HandedOver, LifeId, Lock,
    Node, NodeState, Now, Owed, Refusal, Released, Start, Token, Tokens, Waited, Waiter, WaiterId, Want, acquire,
    ahead_us, extend, fence, hand_over, promote, release, token_floor, wait,
};

use crate::client::owner;
use crate::messages::{Hears, Request, Says};
use crate::rules::{Rule, Without};

/// Stripes of tokens: few, so that keys share one, and a node is small.
const STRIPES: usize = 4;

/// How many of them may have ceilings of their own: not all, so that the node's follows too.
const STRIPES_APART: usize = 2;

/// Without the rule that far tokens stay apart: tokens are raised up to here, whatever the clock shows.
const FENCE_CAP: u64 = 1 << 52;

/// After so many milliseconds a node is asked again that is not ready yet.
pub const NOT_YET_MS: u32 = 10;

/// The only database.
const DB: u32 = 0;

/// How a node is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// `lock.max-ttl`, in milliseconds.
    pub max_ttl_ms: u32,
    /// `lock.max-clock-skew`, in milliseconds.
    pub skew_ms: u32,
    /// `lock.handoff-window`, in milliseconds.
    pub window_ms: u32,
}

/// What a server finds when it starts.
#[derive(Clone, Debug)]
pub struct Found {
    /// The state file, if there is a readable one.
    pub state: Option<NodeState>,
    /// What ties that to the data.
    pub ties: Ties,
    /// The locks in the file that it loads, by key, as records.
    pub locks: Vec<(u32, Vec<u8>)>,
    /// That file is the AOF.
    pub from_aof: bool,
    /// The AOF is on from here on, synced at every command.
    pub aof_always: bool,
    /// The boot of the machine.
    pub boot: BootId,
}

/// A node that runs.
#[derive(Clone, Debug)]
pub struct Server {
    setup: Setup,
    without: Without,
    id: u128,
    incarnation: u64,
    boot: BootId,
    aof_life: bool,
    owed: Owed,
    node: Node,
    locks: BTreeMap<u32, Lock>,
    /// What is to be written next to the state file: the newest alone.
    to_write: Option<(u64, NodeState)>,
    /// How many states were to be written, which of them must be on the disk before anything is promised, and which is.
    states: u64,
    needed: u64,
    saved: u64,
    /// The last change of ceilings of stripes in the newest of those states.
    stripe_change: u64,
    /// The highest ceiling handed out to be written, or heard of.
    ceiling: u64,
}

impl Server {
    /// The server starts at `now` with what it found; `id` is its own where no state file tells. Nothing is promised until
    /// the state it [hands out](Server::take_write) is [on the disk](Server::written).
    pub fn start(setup: Setup, without: Without, id: u128, mut found: Found, now: Now) -> Self {
        if let Some(last) = found.state.as_ref().filter(|_| without.is(Rule::TiedData)) {
            found.ties = Ties { file: last.file, used_by: Some(last.life()), aof: last.aof.into_iter().collect() };
        }
        let last = found.state.as_ref();
        let floor = token_floor(last, &found.ties, now.wall_us, setup.skew_ms);
        let floor = if without.is(Rule::Ceiling) { now.wall_us } else { floor };
        let mut node = Node::with_tokens(Tokens::with_stripes(floor, STRIPES, STRIPES_APART));
        node.skew_ms = setup.skew_ms;
        node.waiting.handoff_window_ms = setup.window_ms;
        node.tokens.set_ceiling(last.map_or(0, |last| last.ceiling));
        if let Some(last) = last {
            node.tokens.restore_stripes(&last.stripes);
        }
        if let Some(armed) = last.and_then(|last| last.guard_now(found.boot, now.boot)) {
            node.guard.restore(armed);
        }
        let owed = Owed::new(last.map_or(0, |last| last.owed_ms), setup.max_ttl_ms, setup.skew_ms, now.boot);
        // A copy must not pass for the node that it was copied from.
        let same_node = last.filter(|last| !last.is_copy(found.ties.file));
        let mut server = Self {
            setup,
            without,
            id: same_node.map_or(id, |last| last.id),
            incarnation: same_node.map_or(0, |last| last.incarnation) + 1,
            boot: found.boot,
            aof_life: found.aof_always && (found.from_aof || found.locks.is_empty()),
            owed,
            node,
            locks: BTreeMap::new(),
            to_write: None,
            states: 0,
            needed: 0,
            saved: 0,
            stripe_change: 0,
            ceiling: last.map_or(0, |last| last.ceiling),
        };
        for (key, bytes) in &found.locks {
            server.load(*key, bytes, now);
        }
        let loaded = server.digest(|deadline| Start::counts(last, found.boot, deadline));
        let judged = Start { last, found: &found.ties, loaded, from_aof: found.from_aof, boot: found.boot };
        let owed_ms = server.owed.ms(now.boot);
        let (policy, owed_ms) = server.policy(owed_ms);
        judged.judge(policy, owed_ms, &mut server.node, now.boot);
        server.save_first(now);
        server
    }

    /// As configured, unless the guard is what is to be done without.
    fn policy(&self, owed_ms: u32) -> (GuardPolicy, u32) {
        match self.without.0 {
            Some(Rule::Guard) => (GuardPolicy::Never, owed_ms),
            Some(Rule::GuardLength) => (GuardPolicy::Auto, owed_ms / 3),
            _ => (GuardPolicy::Auto, owed_ms),
        }
    }

    fn load(&mut self, key: u32, bytes: &[u8], now: Now) {
        if let Ok(lock) = record::decode(bytes, Arrival::Storage, now.boot, self.boot) {
            self.node.tokens.learn(&name(key), lock.token());
            self.store(key, lock);
        }
    }

    /// Which life of which node it is.
    pub fn life(&self) -> LifeId {
        LifeId { node: self.id, incarnation: self.incarnation }
    }

    /// Everything that it grants is in its AOF.
    pub fn is_aof_life(&self) -> bool {
        self.aof_life
    }

    /// Which server it is.
    pub fn id(&self) -> NodeId {
        NodeId(self.id)
    }

    // What it is asked.

    /// `request` arrives; `None`: its answer comes later, or nobody wants one.
    pub fn hear(&mut self, request: &Request, now: Now) -> Option<Hears> {
        let (key, owner) = (request.key, owner(request.who, self.without));
        match request.says {
            Says::Ask(ask) => Some(Hears::Answer(self.ask(key, &owner, ask, now))),
            Says::Release => {
                self.release(key, &owner, now);
                None
            }
            Says::Wait { .. } if !self.serves(key) => Some(Hears::Told(false)),
            Says::Wait { ms, ticket } => match self.wait(key, &owner, ms, ticket, request.waiter(), now) {
                Ok(told) => told.map(Hears::Told),
                Err(_) => Some(Hears::Told(false)),
            },
        }
    }

    /// What the node answers `owner`, who asks for `key`.
    pub fn ask(&mut self, key: u32, owner: &[u8], ask: Ask, now: Now) -> Answer {
        let Some(owner) = Owner::new(owner).ok().filter(|_| self.serves(key)) else { return Answer::Failed };
        let answered = match ask {
            Ask::Acquire { ttl_ms, proposal, retry } => self.acquire(key, owner, ttl_ms, proposal, retry, now),
            Ask::Fence { token } => self.fence(key, owner, token, now),
            Ask::Extend { ttl_ms, token } => self.extend(key, owner, ttl_ms, token, now),
        };
        match answered {
            Ok(Some(token)) => Answer::Token(token),
            Ok(None) => Answer::No,
            // As a client reads the errors.
            Err(
                refusal @ (Refusal::Guarded { .. }
                | Refusal::SlotGuarded { .. }
                | Refusal::Suspect { .. }
                | Refusal::Evicted { .. }),
            ) => Answer::Guarded { ms: refusal.passes_in_ms().unwrap_or(0) },
            Err(Refusal::NotYet) => Answer::NotYet { ms: NOT_YET_MS },
            Err(_) => Answer::Failed,
        }
    }

    fn acquire(
        &mut self,
        key: u32,
        owner: Owner<'_>,
        ttl_ms: u32,
        proposal: Token,
        retry: bool,
        now: Now,
    ) -> Result<Option<Token>, Refusal> {
        let ttl = Ttl::new(Some(ttl_ms.into()), self.setup.max_ttl_ms)?;
        let (note, patience) = (Note::default(), Patience::NONE);
        let ask = Acquire { owner, ttl, retry, fence: Some(proposal), note, patience };
        self.serve(key, now);
        self.ready()?;
        if self.without.is(Rule::ProposalAboveLast) {
            // It forgets what it issued before.
            let ceiling = self.node.tokens.ceiling();
            self.node.tokens = Tokens::with_stripes(proposal.get() - 1, STRIPES, STRIPES_APART);
            self.node.tokens.set_ceiling(ceiling);
        }
        let acquired =
            self.with_tokens(now, |node, locks| acquire(DB, &name(key), locks.get_mut(&key), &ask, node, now));
        let token = match acquired? {
            Acquired::Granted(lock) => {
                let token = lock.token();
                self.store(key, lock);
                token
            }
            Acquired::Prolonged(token) => {
                self.watch(key);
                token
            }
            Acquired::Unchanged(token) => token,
            Acquired::Contended | Acquired::Queues | Acquired::WaitsForDisk => return Ok(None),
        };
        // What every answer that has a token promises: it is valid until sent + ttl, whether it is a repetition or not.
        assert!(self.locks.get(&key).is_some_and(|lock| lock.deadline() >= now.boot.plus_ms(ttl_ms)));
        Ok(Some(token))
    }

    fn fence(&mut self, key: u32, owner: Owner<'_>, token: Token, now: Now) -> Result<Option<Token>, Refusal> {
        self.ready()?;
        if self.without.is(Rule::FenceBeyondTheClock) && token.get() > ahead_us(now.wall_us, self.setup.skew_ms) {
            return Err(Refusal::FenceTooFar { max: now.wall_us });
        }
        if self.without.is(Rule::FarTokensApart) {
            self.follow_to_a_cap(key, owner, token, now)?;
        }
        let fenced =
            self.with_tokens(now, |node, locks| fence(&name(key), locks.get_mut(&key), owner, token, node, now));
        Ok(match fenced? {
            Fenced::Raised(token) | Fenced::Unchanged(token) => Some(token),
            Fenced::NotHeld => None,
        })
    }

    /// Without the rule that far tokens stay apart: whatever is below the cap is taken, and the node's own ceiling follows.
    fn follow_to_a_cap(&mut self, key: u32, owner: Owner<'_>, token: Token, now: Now) -> Result<(), Refusal> {
        let held = self.locks.get(&key).filter(|lock| lock.is_of(owner) && !lock.is_expired(now.boot));
        if held.is_none_or(|lock| token <= lock.token()) {
            return Ok(());
        }
        if token.get() > FENCE_CAP {
            return Err(Refusal::FenceTooFar { max: FENCE_CAP });
        }
        self.ceiling = self.ceiling.max(token.get() + START_LEAD);
        self.save_first(now);
        let ceiling = self.ceiling;
        self.node.tokens.set_ceiling(ceiling.max(self.node.tokens.ceiling()));
        Ok(())
    }

    /// A client that may only use keys of its own raises the token of one as far as it is let: of a key that shares no stripe with
    /// the first `keys`.
    pub fn raise_far(&mut self, keys: u32, now: Now) {
        let key = key_apart(keys);
        let ahead_us = if self.without.is(Rule::FarTokensApart) { FENCE_CAP - now.wall_us } else { FENCE_SPAN_US };
        let (Some(near), Some(far)) = (Token::new(now.wall_us), Token::new(now.wall_us + ahead_us)) else { return };
        self.ask(key, HOSTILE, Ask::Acquire { ttl_ms: self.setup.max_ttl_ms, proposal: near, retry: true }, now);
        self.ask(key, HOSTILE, Ask::Fence { token: far }, now);
    }

    fn extend(
        &mut self,
        key: u32,
        owner: Owner<'_>,
        ttl_ms: u32,
        token: Token,
        now: Now,
    ) -> Result<Option<Token>, Refusal> {
        self.ready()?;
        let ttl = Ttl::new(Some(ttl_ms.into()), self.setup.max_ttl_ms)?;
        let ask = Extend { owner, ttl, token: Some(token) };
        let extended = extend(self.locks.get_mut(&key), &ask, &mut self.node, now)?;
        self.watch(key);
        Ok(match extended {
            Extended::Prolonged(token) | Extended::Unchanged(token) => Some(token),
            Extended::NotHeld => None,
        })
    }

    /// `owner` gives `key` back, and waits for it no longer; whether it held it.
    pub fn release(&mut self, key: u32, owner: &[u8], now: Now) -> bool {
        let Ok(owner) = Owner::new(owner) else { return false };
        let ask = Release { owner, level: None, token: None };
        let released = release(DB, &name(key), self.locks.get_mut(&key), &ask, &mut self.node, now);
        if released == Released::Freed {
            self.end(key);
        }
        self.serve(key, now);
        released != Released::NotHeld
    }

    /// `owner` waits for `key`, for `wait_ms` at the longest: whether it is its turn; `None`: it is told later, by `id`.
    ///
    /// # Errors
    /// It is not let wait.
    pub fn wait(
        &mut self,
        key: u32,
        owner: &[u8],
        wait_ms: u32,
        ticket: u64,
        id: WaiterId,
        now: Now,
    ) -> Result<Option<bool>, Refusal> {
        let owner = Owner::new(owner)?;
        let (patience, ticket) = (Patience::new(Some(wait_ms.into()))?, Some(Ticket::new(Some(ticket))?));
        let ask = Wait { owner, patience, ticket };
        let ready = self.ready();
        let waited = ready.and_then(|()| wait(DB, &name(key), self.locks.get(&key), &ask, &mut self.node, now));
        let room = || self.node.waiting.room_for(DB, &name(key), owner);
        Ok(match waited.or_else(|refusal| refusal.or_queue(patience, room, Waited::Queues))? {
            Waited::Turn => Some(true),
            Waited::InVain => Some(false),
            Waited::Queues => {
                let held = self.locks.get(&key).is_some_and(|lock| !lock.is_expired(now.boot) && !lock.is_of(owner));
                let waiter = Waiter::new(id, owner, Note::default(), Want::Turn, now.boot, wait_ms);
                self.node.waiting.join(DB, &name(key), waiter, ticket);
                if !held {
                    self.node.waiting.look_at(DB, &name(key), now.boot);
                }
                None
            }
        })
    }

    /// All locks are dropped (FLUSHALL).
    pub fn flush(&mut self, now: Now) {
        let last = self.node.deadlines.last(DB);
        self.node.deadlines.detach(None);
        self.locks.clear();
        if let Some(last) = last.filter(|last| now.boot <= *last)
            && !self.without.is(Rule::Guard)
        {
            self.node.guard.arm(Cause::Flush, now.boot, last);
        }
        self.node.waiting.look_at_all();
        self.save_first(now);
    }

    /// It was a replica of the server whose locks are these, which had issued tokens up to `ceiling`, and is a master now.
    pub fn promote(&mut self, ceiling: u64, owed_ms: u32, now: Now) {
        self.aof_life = false;
        self.ceiling = self.ceiling.max(ceiling);
        self.owed.raise(owed_ms, self.setup.skew_ms, now.boot);
        let (policy, owed_ms) = self.policy(self.owed.ms(now.boot));
        let ceiling = if self.without.is(Rule::Ceiling) { 0 } else { self.ceiling };
        promote(policy, ceiling, owed_ms, &mut self.node, now);
        self.save_first(now);
    }

    /// An operator lifts the guard.
    pub fn lift(&mut self) {
        self.node.guard.lift();
    }

    // What comes about by itself.

    /// When something does, at the earliest.
    pub fn next_due(&self) -> Option<BootTime> {
        self.node.next_due()
    }

    /// What is due by `now`: leases that ended, queues to be looked at, waits that are over.
    pub fn run(&mut self, now: Now) {
        loop {
            while self.node.waiting.time_out(now.boot) {}
            if let Some((_, name)) = self.node.waiting.pop_due(now.boot) {
                self.serve(key(&name), now);
            } else if let Some(due) = self.node.deadlines.pop_due(now.boot) {
                let key = key(&due.name);
                if self.locks.get(&key).is_some_and(|lock| due.is_of(lock)) {
                    self.end(key);
                    if !self.without.is(Rule::QueueIsLookedAt) {
                        self.serve(key, now);
                    }
                }
            } else {
                return;
            }
        }
    }

    /// Who is told what: it is free (`true`), or not in time.
    pub fn told(&mut self) -> Vec<(WaiterId, bool)> {
        let answers = self.node.waiting.take_answers(usize::MAX);
        answers.into_iter().map(|(id, told)| (id, told == Told::Turn)).collect()
    }

    fn serve(&mut self, key: u32, now: Now) {
        let name = name(key);
        if !self.node.waiting.has_queue(DB, &name) {
            return;
        }
        if self.locks.get(&key).is_some_and(|lock| lock.is_expired(now.boot)) {
            self.end(key);
        }
        let served = self
            .ready()
            .and_then(|()| self.with_tokens(now, |node, locks| hand_over(DB, &name, locks.get_mut(&key), node, now)));
        match served {
            Ok(HandedOver::Granted(lock)) => self.store(key, lock),
            Ok(HandedOver::Prolonged) => self.watch(key),
            Ok(HandedOver::Free | HandedOver::Held) => {}
            Err(refusal) => self.node.waiting.put_off(DB, &name, refusal, now.boot),
        }
    }

    fn end(&mut self, key: u32) {
        if let Some(mut lock) = self.locks.remove(&key) {
            self.node.deadlines.forget(DB, &mut lock);
        }
    }

    fn store(&mut self, key: u32, lock: Lock) {
        match self.locks.get_mut(&key) {
            Some(held) => held.replace(lock),
            None => drop(self.locks.insert(key, lock)),
        }
        self.watch(key);
    }

    fn watch(&mut self, key: u32) {
        if let Some(lock) = self.locks.get_mut(&key) {
            self.node.deadlines.watch(DB, &name(key), lock);
        }
    }

    // For those who look on.

    /// Somebody waits for a lock that is free, and nothing keeps the node from passing it on.
    pub fn lets_wait_for_nothing(&self, now: BootTime) -> bool {
        let free = |name: &[u8]| self.locks.get(&key(name)).is_none_or(|lock| lock.is_expired(now));
        self.ready().is_ok()
            && self.node.guard.serve(now).is_ok()
            && self.node.waiting.names(DB).any(|name| {
                free(name) && self.node.slots.serve(name, now).is_ok() && self.node.waiting.len_of(DB, name) > 0
            })
    }

    /// The node's own memory.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The locks in memory.
    pub fn locks(&self) -> &BTreeMap<u32, Lock> {
        &self.locks
    }
}

/// Who raises tokens.
const HOSTILE: &[u8] = b"hostile";

/// A key that shares its stripe of tokens with none of the first `keys`.
fn key_apart(keys: u32) -> u32 {
    (keys..).find(|key| !shares_stripe(*key, keys)).unwrap_or(keys)
}

/// Whether `key` shares its stripe of tokens with one of the first `keys`.
pub fn shares_stripe(key: u32, keys: u32) -> bool {
    let mut tokens = Tokens::with_stripes(0, STRIPES, STRIPES_APART);
    tokens.learn(&name(key), Token::new(1).expect("it is a token"));
    (0..keys).any(|other| tokens.last(&name(other)) != 0)
}

/// The name of a key.
pub fn name(key: u32) -> [u8; 4] {
    key.to_be_bytes()
}

fn key(name: &[u8]) -> u32 {
    name.try_into().map_or(0, u32::from_be_bytes)
}
