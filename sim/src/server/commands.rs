//! The commands of a client that locks on this node alone: ACQUIRE, which may wait, EXTEND, REENTER, CONVERT, RELEASE.

use palisade_core::engine::{Reply as Outcome, Request as Does};
use palisade_core::request::{
    Acquire, Conversion, Convert, Extend, Level, Note, Owner, Patience, Reenter, Release, Ttl,
};
use palisade_core::{Lock, Mode, Now, Refusal, Token, WaiterId, Wanted};

use super::Server;
use super::keys::{key_of, name};
use super::watch::Change;
use crate::messages::{Command, Replied, Request};
use crate::rules::Rule;

impl Server {
    /// Receives `command` from `owner`. Returns `None` if the answer comes later or no client waits for one.
    pub(super) fn command(&mut self, request: &Request, command: Command, owner: &[u8], now: Now) -> Option<Replied> {
        if let Command::Closed { number } = command {
            self.closed(Request { number, ..*request }.waiter(), now);
            return None;
        }
        if !self.serves(request.key) {
            return Some(Replied::Refused);
        }
        let key = request.key;
        let before = self.locks.get(&key).filter(|lock| !lock.is_expired(now.boot)).cloned();
        let name = self.name_of(key, command, owner, before.as_ref());
        let answer = self.does(request, command, &name, now);
        let after = self.locks.get(&key).filter(|lock| !lock.is_expired(now.boot));
        self.watch.answers(command, (key, owner), &answer, &Change { before: before.as_ref(), after }, now);
        self.watch.holds(key, after, now);
        match answer {
            Ok(Outcome::Token(token)) if matches!(command, Command::Convert { .. }) => {
                Some(Replied::Converted { token: token.get() })
            }
            Ok(Outcome::Token(_)) => Some(Replied::Extended),
            Ok(Outcome::Granted(token, number)) => Some(Replied::Granted { token: token.get(), number, waited_ms: 0 }),
            Ok(Outcome::Holds(holds)) => Some(Replied::Holds(holds)),
            Ok(Outcome::Null | Outcome::Turn(_) | Outcome::Noted(_)) => Some(Replied::Null),
            Ok(Outcome::Later) => {
                self.join(request.waiter(), key, owner, command);
                None
            }
            Err(Refusal::Owned) => Some(Replied::Owned),
            Err(_) => Some(Replied::Refused),
        }
    }

    fn does(&mut self, request: &Request, command: Command, owner: &[u8], now: Now) -> Result<Outcome, Refusal> {
        let (key, owner, max_ttl_ms) = (request.key, Owner::new(owner)?, self.setup.max_ttl_ms);
        let ttl = |ms: u32| Ttl::new(Some(ms.into()), max_ttl_ms);
        match command {
            Command::Acquire { ttl_ms, wait_ms, retry } => {
                let wanted = self.asks(request.wanted);
                let (note, patience) = (Note::default(), Patience::new(Some(wait_ms.into()))?);
                let retry = retry && !self.without.is(Rule::RepetitionIsAnswered);
                let ask = Acquire {
                    owner,
                    ttl: ttl(ttl_ms)?,
                    wanted,
                    retry,
                    fence: None,
                    note,
                    patience,
                    behind: Default::default(),
                };
                let held = self.locks.get(&key).filter(|lock| !lock.is_expired(now.boot));
                let joins =
                    wanted == Wanted::Shared && held.is_some_and(|lock| lock.mode(lock.first_id()) == Mode::Shared);
                let passes = self.without.is(Rule::NoBarging) && held.is_none()
                    || self.without.is(Rule::ReadersWaitForWriters) && joins;
                let aside = passes.then(|| std::mem::take(self.node.tamper().waiting));
                let does = Does::Acquire(ask);
                let answer = self.perform(key, &does, Some(request.waiter()).filter(|_| !passes), now);
                if let Some(aside) = aside {
                    *self.node.tamper().waiting = aside;
                }
                answer
            }
            Command::Extend { ttl_ms } => {
                self.perform(key, &Does::Extend(Extend { owner, ttl: ttl(ttl_ms)?, token: None }), None, now)
            }
            Command::Reenter { level, ttl_ms } => {
                let level = level.map(|level| Level::new(Some(level.into()))).transpose()?;
                let ask = Reenter { owner, level, ttl: ttl_ms.map(ttl).transpose()?, adopts: false };
                self.perform(key, &Does::Reenter(ask), None, now)
            }
            Command::Release { level } => {
                let ask = Release { owner, level: Some(Level::new(Some(level.into()))?), token: None };
                self.perform(key, &Does::Release(ask), None, now)
            }
            Command::Convert { shares } => {
                let to = if shares { Conversion::Shared } else { Conversion::Exclusive };
                let answer = self.perform(key, &Does::Convert(Convert { owner, to, token: None }), None, now);
                let own = self.locks.get(&key).and_then(|lock| Some(lock.mode(lock.find(owner)?)));
                // With `ConvertsAlone` switched off, the node answers a reader that it is now the writer, although
                // others read too.
                if self.without.is(Rule::ConvertsAlone) && answer == Ok(Outcome::Null) && own == Some(Mode::Shared) {
                    let above = Token::new(self.node.tokens().last(&name(key)) + 1);
                    return Ok(above.map_or(Outcome::Null, Outcome::Token));
                }
                answer
            }
            Command::Closed { .. } => Ok(Outcome::Null),
        }
    }

    /// Returns the owner name under which the command is performed. With some rules switched off, it differs from
    /// `owner`.
    fn name_of(&self, key: u32, command: Command, owner: &[u8], held: Option<&Lock>) -> Vec<u8> {
        match command {
            Command::Reenter { .. } if self.without.is(Rule::HolderReenters) => {
                held.map_or(owner, |lock| lock.first().owner()).to_vec()
            }
            Command::Acquire { .. }
                if self.without.is(Rule::OwnersShareAPlace) && self.watch.waits_already(key, owner) =>
            {
                [owner, b"2"].concat()
            }
            _ => owner.to_vec(),
        }
    }

    /// Records that the request has taken its place in the queue.
    fn join(&mut self, id: WaiterId, key: u32, owner: &[u8], command: Command) {
        let Command::Acquire { retry, .. } = command else { return };
        let name = name(key);
        let queue = || self.node.waiting().of(key_of(&name));
        let Some(until) = queue().find(|waiter| waiter.id == id).map(|waiter| waiter.until) else { return };
        let is_answered = |other| queue().all(|waiter| waiter.id != other);
        self.watch.join(id, key, owner, (until, retry), is_answered);
    }

    /// Closes the connection on which request `id` waits.
    fn closed(&mut self, id: WaiterId, now: Now) {
        let leaves = !self.without.is(Rule::DeadHeadPasses);
        if leaves {
            self.node.leave_queue(id, now.boot);
        }
        self.watch.is_gone(id, leaves);
    }
}
