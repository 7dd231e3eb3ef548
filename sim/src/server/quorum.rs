//! The commands of a client that locks on several nodes: ACQUIRE with a token, FENCE, EXTEND, RELEASE, LOCK.WAIT.

use palisade_core::engine::{Reply as Outcome, Request as Does};
use palisade_core::limits::{FENCE_SPAN_US, START_LEAD};
use palisade_core::quorum::{Answer, Ask, free};
use palisade_core::request::{Acquire, Conversion, Convert, Extend, Note, Owner, Patience, Release, Ticket, Ttl, Wait};
use palisade_core::{Lock, Now, Refusal, Token, Tokens, WaiterId, Wanted, ahead_us};

use super::Server;
use super::keys::{NOT_YET_MS, STRIPES, STRIPES_APART, key_apart, key_of, name};
use crate::rules::Rule;

/// The limit up to which tokens are raised with `FarTokensApart` switched off, independently of the clock.
const FENCE_CAP: u64 = 1 << 52;

impl Server {
    /// Returns the node's answer to `owner`, which asks for `key`.
    pub fn ask(&mut self, key: u32, owner: &[u8], ask: Ask, wanted: Wanted, now: Now) -> Answer {
        let Some(owner) = Owner::new(owner).ok().filter(|_| self.serves(key)) else { return Answer::Failed };
        let answered = match ask {
            Ask::Acquire { ttl_ms, proposal, retry } => {
                self.acquire(key, owner, ttl_ms, (proposal, retry, self.asks(wanted)), now)
            }
            Ask::Fence { token } => self.fence(key, owner, token, now),
            Ask::Extend { ttl_ms, token } => Ttl::new(Some(ttl_ms.into()), self.setup.max_ttl_ms)
                .and_then(|ttl| self.perform(key, &Does::Extend(Extend { owner, ttl, token: Some(token) }), None, now)),
            Ask::Share => {
                self.perform(key, &Does::Convert(Convert { owner, to: Conversion::Shared, token: None }), None, now)
            }
        };
        match answered {
            Ok(Outcome::Token(token) | Outcome::Granted(token, _)) => Answer::Token(token),
            Ok(_) => Answer::No,
            // The errors are turned into answers as a client understands them.
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
        (proposal, retry, wanted): (Token, bool, Wanted),
        now: Now,
    ) -> Result<Outcome, Refusal> {
        let ttl = Ttl::new(Some(ttl_ms.into()), self.setup.max_ttl_ms)?;
        let (note, patience) = (Note::default(), Patience::NONE);
        let ask =
            Acquire { owner, ttl, wanted, retry, fence: Some(proposal), note, patience, behind: Default::default() };
        let forgets_for_readers = self.without.is(Rule::ReadersAboveWriters) && wanted == Wanted::Shared;
        if self.without.is(Rule::ProposalAboveLast) || forgets_for_readers {
            // With `ProposalAboveLast` switched off, the node forgets the tokens that it issued before.
            let ceiling = self.node.tokens().ceiling();
            *self.node.tamper().tokens = Tokens::with_stripes(proposal.get() - 1, STRIPES, STRIPES_APART);
            self.node.tamper().tokens.set_ceiling(ceiling);
        }
        let answer = self.perform(key, &Does::Acquire(ask), None, now)?;
        // Every answer with a token, even to a repetition, promises a lease of at least the ttl from the sending of the
        // request.
        let lasts =
            |lock: &Lock| lock.find(owner).is_some_and(|own| lock.grant(own).deadline() >= now.boot.plus_ms(ttl_ms));
        assert!(answer == Outcome::Null || self.locks.get(&key).is_some_and(lasts));
        Ok(answer)
    }

    fn fence(&mut self, key: u32, owner: Owner<'_>, token: Token, now: Now) -> Result<Outcome, Refusal> {
        self.node.ready(now.boot)?;
        if self.without.is(Rule::FenceBeyondTheClock) && token.get() > ahead_us(now.wall_us, self.setup.skew_ms) {
            return Err(Refusal::FenceTooFar { max: now.wall_us });
        }
        if self.without.is(Rule::FarTokensApart) {
            self.follow_to_a_cap(key, owner, token, now)?;
        }
        self.perform(key, &Does::Fence(owner, token), None, now)
    }

    /// Raises tokens with `FarTokensApart` switched off: accepts any token up to [`FENCE_CAP`], and raises the node's
    /// own ceiling above the token.
    fn follow_to_a_cap(&mut self, key: u32, owner: Owner<'_>, token: Token, now: Now) -> Result<(), Refusal> {
        let held = self.locks.get(&key).and_then(|lock| Some(lock.grant(lock.find(owner)?)));
        if held.is_none_or(|grant| grant.is_expired(now.boot) || token <= grant.token()) {
            return Ok(());
        }
        if token.get() > FENCE_CAP {
            return Err(Refusal::FenceTooFar { max: FENCE_CAP });
        }
        self.node.tamper().ledger.raise_ceiling(token.get() + START_LEAD);
        self.save(now);
        let ceiling = self.node.ledger().ceiling();
        let before = self.node.tokens().ceiling();
        self.node.tamper().tokens.set_ceiling(ceiling.max(before));
        Ok(())
    }

    /// Raises the token of a key that shares no stripe with the first `keys` keys, as far as the node allows. A hostile
    /// client that has access only to its own keys can do this.
    pub fn raise_far(&mut self, keys: u32, now: Now) {
        let key = key_apart(keys);
        let ahead_us = if self.without.is(Rule::FarTokensApart) { FENCE_CAP - now.wall_us } else { FENCE_SPAN_US };
        let (Some(near), Some(far)) = (Token::new(now.wall_us), Token::new(now.wall_us + ahead_us)) else { return };
        let acquire = Ask::Acquire { ttl_ms: self.setup.max_ttl_ms, proposal: near, retry: true };
        self.ask(key, HOSTILE, acquire, Wanted::Exclusive, now);
        self.ask(key, HOSTILE, Ask::Fence { token: far }, Wanted::Exclusive, now);
    }

    /// Releases `key` for `owner`, and withdraws its waiting requests. Returns true if `owner` held the lock.
    pub fn release(&mut self, key: u32, owner: &[u8], now: Now) -> bool {
        let Ok(owner) = Owner::new(owner) else { return false };
        let ask = Release { owner, level: None, token: None };
        matches!(self.perform(key, &Does::Release(ask), None, now), Ok(Outcome::Holds(_)))
    }

    /// Returns the mode that the node is asked for. With some rules switched off, it differs from the client's.
    pub(super) fn asks(&self, wanted: Wanted) -> Wanted {
        match wanted {
            Wanted::Exclusive if self.without.is(Rule::ReadersKeepWritersOut) => Wanted::Shared,
            Wanted::Permit { number, .. } if self.without.is(Rule::BothLimits) => {
                Wanted::Permit { limit: u16::MAX, number }
            }
            wanted => wanted,
        }
    }

    /// Returns the permits of `key` that are free for a new client, one bit each.
    pub(super) fn free(&self, key: u32, wanted: Wanted, now: Now) -> u64 {
        let Wanted::Permit { limit, .. } = wanted else { return 0 };
        let grants = self.locks.get(&key).into_iter().flat_map(Lock::grants);
        let held: Vec<_> = grants.filter(|(_, grant)| !grant.is_expired(now.boot)).map(|(mode, _)| mode).collect();
        let waits = self.node.waiting().len_of(key_of(&name(key))) > 0;
        free(limit, &held, waits).into_iter().fold(0, |numbers, number| numbers | 1 << number)
    }

    /// Lets `owner` wait for `key`, for at most `wait_ms`. Returns the reserved permit's number, 1 for the whole lock,
    /// or 0 if it is not the owner's turn. `None`: the answer comes later, to request `id`.
    ///
    /// # Errors
    ///
    /// The node does not let the request wait.
    pub fn wait(
        &mut self,
        key: u32,
        owner: &[u8],
        (wanted, wait_ms, ticket): (Wanted, u32, u64),
        id: WaiterId,
        now: Now,
    ) -> Result<Option<u16>, Refusal> {
        let owner = Owner::new(owner)?;
        let (patience, ticket) = (Patience::new(Some(wait_ms.into()))?, Some(Ticket::new(Some(ticket))?));
        let (note, behind) = Default::default();
        let ask = Wait { owner, wanted: self.asks(wanted), patience, ticket, note, behind };
        Ok(match self.perform(key, &Does::Wait(ask), Some(id), now)? {
            Outcome::Turn(number) => Some(number),
            _ => None,
        })
    }
}

/// The name of the hostile client that raises tokens.
const HOSTILE: &[u8] = b"hostile";
