//! A node without Redis: a driver of the engine of `palisade-core` that keeps locks in memory.
//!
//! It has one database, and can be part of a cluster. Times are those of its own two clocks. Its files are what it hands out and is
//! handed back: whoever runs it decides what a crash leaves of them.

mod files;
mod slots;

use std::collections::BTreeMap;

use palisade_core::BootId;
use palisade_core::engine::{Key, Question, Reply as Outcome, Request as Does, Run, Said, Step, Work};
use palisade_core::limits::{FENCE_SPAN_US, START_LEAD};
use palisade_core::quorum::{Answer, Ask, NodeId};
use palisade_core::record::{self, Arrival};
use palisade_core::request::{Acquire, Extend, Note, Owner, Patience, Release, Ticket, Ttl, Wait};
use palisade_core::{
    Answer as Told, Beginning, BootTime, Found as Ties, GuardPolicy, IncarnationId, Lock, Node, NodeState, Now,
    Refusal, Start, Token, Tokens, WaiterId, ahead_us, token_floor,
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
    boot: BootId,
    aof_life: bool,
    node: Node,
    locks: BTreeMap<u32, Lock>,
    /// What is to be written next to the state file: the newest alone.
    to_write: Option<(u64, NodeState)>,
    /// Who waited for a lock that is not served here any more, and is not told yet.
    sent_away: Vec<WaiterId>,
}

impl Server {
    /// The server starts at `now` with what it found; `id` is its own where no state file tells. Nothing is promised until
    /// the state it [hands out](Server::take_write) is [on the disk](Server::written).
    pub fn start(setup: Setup, without: Without, id: u128, mut found: Found, now: Now) -> Self {
        if let Some(last) = found.state.as_ref().filter(|_| without.is(Rule::TiedData)) {
            found.ties =
                Ties { file: last.file, used_by: Some(last.incarnation()), aof: last.aof.into_iter().collect() };
        }
        let last = found.state.as_ref();
        let floor = token_floor(last, &found.ties, now.wall_us, setup.skew_ms);
        let floor = if without.is(Rule::Ceiling) { now.wall_us } else { floor };
        let beginning = Beginning {
            last,
            found: &found.ties,
            has_file: true,
            new_id: id,
            boot: found.boot,
            max_ttl_ms: setup.max_ttl_ms,
            skew_ms: setup.skew_ms,
            is_master: true,
        };
        let mut node = Node::begin(&beginning, Tokens::with_stripes(floor, STRIPES, STRIPES_APART), now.boot);
        node.waiting.handoff_window_ms = setup.window_ms;
        let mut server = Self {
            setup,
            without,
            boot: found.boot,
            aof_life: found.aof_always && (found.from_aof || found.locks.is_empty()),
            node,
            locks: BTreeMap::new(),
            to_write: None,
            sent_away: vec![],
        };
        for (key, bytes) in &found.locks {
            server.load(*key, bytes, now);
        }
        let loaded = server.digest(|deadline| Start::counts(last, found.boot, deadline));
        let judged = Start { last, found: &found.ties, loaded, from_aof: found.from_aof, boot: found.boot };
        server.node.judge(&judged, server.policy(), now.boot);
        server.shorten_guard(now.boot);
        // Before anything is granted it is on the disk which incarnation uses the data.
        server.node.ledger.stamped();
        server.save_first(now);
        server
    }

    /// As configured, unless the guard is what is to be done without.
    fn policy(&self) -> GuardPolicy {
        if self.without.is(Rule::Guard) { GuardPolicy::Never } else { GuardPolicy::Auto }
    }

    /// Without the rule that a guard is as long as the longest lease.
    fn shorten_guard(&mut self, now: BootTime) {
        if let Some(armed) = self.node.guard.armed(now).filter(|_| self.without.is(Rule::GuardLength)) {
            let ms = u32::try_from(self.node.guard.left_ms(now) / 3).unwrap_or(u32::MAX);
            self.node.guard.lift();
            self.node.guard.arm(armed.cause, now, now.plus_ms(ms));
        }
    }

    fn load(&mut self, key: u32, bytes: &[u8], now: Now) {
        if let Ok(mut lock) = record::decode(bytes, Arrival::Storage, now.boot, self.boot) {
            self.node.arrived(Key { db: DB, name: &name(key) }, &mut lock, now.boot);
            self.locks.insert(key, lock);
        }
    }

    /// Which incarnation of which node it is.
    pub fn incarnation(&self) -> IncarnationId {
        self.node.ledger.incarnation()
    }

    /// Everything that it grants is in its AOF.
    pub fn is_aof_life(&self) -> bool {
        self.aof_life
    }

    /// Which server it is.
    pub fn id(&self) -> NodeId {
        NodeId(self.incarnation().node)
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
        if self.without.is(Rule::ProposalAboveLast) {
            // It forgets what it issued before.
            let ceiling = self.node.tokens.ceiling();
            self.node.tokens = Tokens::with_stripes(proposal.get() - 1, STRIPES, STRIPES_APART);
            self.node.tokens.set_ceiling(ceiling);
        }
        let token = token(self.perform(key, &Does::Acquire { ask, may_block: false }, None, now)?);
        // What every answer that has a token promises: it is valid until sent + ttl, whether it is a repetition or not.
        let lasts = |lock: &Lock| lock.deadline() >= now.boot.plus_ms(ttl_ms);
        assert!(token.is_none() || self.locks.get(&key).is_some_and(lasts));
        Ok(token)
    }

    fn fence(&mut self, key: u32, owner: Owner<'_>, token: Token, now: Now) -> Result<Option<Token>, Refusal> {
        self.node.ready(now.boot)?;
        if self.without.is(Rule::FenceBeyondTheClock) && token.get() > ahead_us(now.wall_us, self.setup.skew_ms) {
            return Err(Refusal::FenceTooFar { max: now.wall_us });
        }
        if self.without.is(Rule::FarTokensApart) {
            self.follow_to_a_cap(key, owner, token, now)?;
        }
        Ok(self::token(self.perform(key, &Does::Fence(owner, token), None, now)?))
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
        self.node.ledger.hear_of_ceiling(token.get() + START_LEAD);
        self.save(now);
        let ceiling = self.node.ledger.ceiling();
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
        let ttl = Ttl::new(Some(ttl_ms.into()), self.setup.max_ttl_ms)?;
        let ask = Extend { owner, ttl, token: Some(token) };
        Ok(self::token(self.perform(key, &Does::Extend(ask), None, now)?))
    }

    /// `owner` gives `key` back, and waits for it no longer; whether it held it.
    pub fn release(&mut self, key: u32, owner: &[u8], now: Now) -> bool {
        let Ok(owner) = Owner::new(owner) else { return false };
        let ask = Release { owner, level: None, token: None };
        matches!(self.perform(key, &Does::Release(ask), None, now), Ok(Outcome::Holds(_)))
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
        Ok(match self.perform(key, &Does::Wait(ask), Some(id), now)? {
            Outcome::Turn(is_turn) => Some(is_turn),
            _ => None,
        })
    }

    /// Performs what the engine decides, step by step. A request that has to wait is told by `waiter`.
    fn perform(
        &mut self,
        key: u32,
        request: &Does<'_>,
        waiter: Option<WaiterId>,
        now: Now,
    ) -> Result<Outcome, Refusal> {
        let name = name(key);
        let mut run = Run::new(Key { db: DB, name: &name }, request);
        let mut said = Said::Yes;
        loop {
            let step = run.next(self.locks.get_mut(&key), said, &mut self.node, now);
            said = Said::Yes;
            match step {
                Step::Store(_) | Step::Replace => {
                    if let Some(lock) = run.granted() {
                        self.store(key, lock);
                    }
                }
                Step::Delete(_) => self.end(key),
                Step::Ask(Question::IsServedHere) if !self.serves(key) => said = Said::No,
                Step::Redirect => self.sent_away.extend(self.node.waiting.dismiss(DB, &name, usize::MAX)),
                Step::Block => said = waiter.map_or(Said::No, Said::Blocked),
                Step::Write => self.save(now),
                Step::Changed(_) | Step::Tell(_) | Step::Ask(_) | Step::LookAtSlots => {}
                Step::Done(answer) => return answer,
            }
        }
    }

    /// All locks are dropped (FLUSHALL).
    pub fn flush(&mut self, now: Now) {
        let dropped = self.node.flush(None).last();
        self.locks.clear();
        if let Some(last) = dropped.filter(|_| !self.without.is(Rule::Guard)) {
            self.node.dropped(last, now.boot);
        }
        self.save_first(now);
    }

    /// It was a replica of the server whose locks are these, which had issued tokens up to `ceiling`, and is a master now.
    pub fn promote(&mut self, ceiling: u64, outstanding_ttl_ms: u32, now: Now) {
        self.aof_life = false;
        let ceiling = if self.without.is(Rule::Ceiling) { 0 } else { ceiling };
        self.node.heard(ceiling, outstanding_ttl_ms, &[]);
        self.node.leads(self.policy(), now);
        self.shorten_guard(now.boot);
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
            while self.node.time_out(now.boot) {}
            // Nobody is answered here, so nothing is refused either.
            let _ = match self.node.take_due(now.boot, true) {
                Some(Work::Look(_, name)) => self.perform(key(&name), &Does::Look, None, now),
                Some(Work::Expire(due)) if self.without.is(Rule::QueueIsLookedAt) => {
                    self.end(key(&due.name));
                    continue;
                }
                Some(Work::Expire(due)) => self.perform(key(&due.name), &Does::Expire(&due), None, now),
                None => return,
            };
        }
    }

    /// Who is told what: it is free (`true`), or not in time.
    pub fn told(&mut self) -> Vec<(WaiterId, bool)> {
        let answers = self.node.waiting.take_answers(usize::MAX).into_iter();
        let told = answers.map(|(id, told)| (id, told == Told::Turn));
        self.sent_away.drain(..).map(|id| (id, false)).chain(told).collect()
    }

    fn end(&mut self, key: u32) {
        if let Some(mut lock) = self.locks.remove(&key) {
            self.node.unlinked(Key { db: DB, name: &name(key) }, &mut lock);
        }
    }

    fn store(&mut self, key: u32, lock: Lock) {
        match self.locks.get_mut(&key) {
            Some(held) => held.replace(lock),
            None => drop(self.locks.insert(key, lock)),
        }
    }

    // For those who look on.

    /// Somebody waits for a lock that is free, and nothing keeps the node from passing it on.
    pub fn lets_wait_for_nothing(&self, now: BootTime) -> bool {
        let free = |name: &[u8]| self.locks.get(&key(name)).is_none_or(|lock| lock.is_expired(now));
        self.node.ready(now).is_ok()
            && self.node.guard.ensure_open(now).is_ok()
            && self.node.waiting.names(DB).any(|name| {
                free(name) && self.node.slots.ensure_open(name, now).is_ok() && self.node.waiting.len_of(DB, name) > 0
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

/// What an answer says of a grant.
fn token(outcome: Outcome) -> Option<Token> {
    if let Outcome::Token(token) = outcome { Some(token) } else { None }
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
    tokens.observe(&name(key), Token::new(1).expect("it is a token"));
    (0..keys).any(|other| tokens.last(&name(other)) != 0)
}

/// The name of a key.
pub fn name(key: u32) -> [u8; 4] {
    key.to_be_bytes()
}

fn key(name: &[u8]) -> u32 {
    name.try_into().map_or(0, u32::from_be_bytes)
}
