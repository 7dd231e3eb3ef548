//! One key of a node: who holds it in which mode, for whom it is kept, and who waits.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use palisade_quorum::{Mode, Permit, Wanted};
use tokio::sync::oneshot;

use crate::resp::Reply;

/// For so long a turn is kept.
const WINDOW: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Grant {
    pub owner: Vec<u8>,
    pub mode: Mode,
    pub token: u64,
    pub note: Vec<u8>,
    pub granted: Instant,
    pub until: Instant,
}

pub struct Waiter {
    pub order: (u64, u64),
    pub owner: Vec<u8>,
    pub wanted: Wanted,
    /// The ttl, proposal and note of one that acquires; `None`: it is told that it is its turn.
    pub acquires: Option<(Duration, u64, Vec<u8>)>,
    pub since: Instant,
    pub told: oneshot::Sender<Reply>,
}

#[derive(Default)]
pub struct Key {
    pub grants: Vec<Grant>,
    pub kept: Vec<(Vec<u8>, Mode, Instant)>,
    pub queue: Vec<Waiter>,
    /// The highest token, what this phase's must be above, and the highest of each number in it.
    pub last: u64,
    floor: u64,
    numbers: HashMap<u16, u64>,
}

impl Key {
    pub fn grant_of(&mut self, owner: &[u8]) -> Option<&mut Grant> {
        self.grants.iter_mut().find(|grant| grant.owner == owner)
    }

    /// What is over goes.
    fn expire(&mut self, now: Instant) {
        self.grants.retain(|grant| grant.until > now);
        self.kept.retain(|(_, _, until)| *until > now);
        self.queue.retain(|waiter| !waiter.told.is_closed());
    }

    /// The mode in which `owner` can have it beside all others.
    fn admitted(&self, owner: &[u8], wanted: Wanted) -> Option<Mode> {
        let kept = self.kept.iter().filter(|(other, ..)| other != owner).map(|(_, mode, _)| *mode);
        let taken: Vec<_> = self.grants.iter().map(|grant| grant.mode).chain(kept).collect();
        let fits = |mode: &Mode| taken.iter().all(|other| other.is_compatible(*mode));
        match wanted {
            Wanted::Exclusive => Some(Mode::Exclusive).filter(fits),
            Wanted::Shared => Some(Mode::Shared).filter(fits),
            Wanted::Permit { limit, number } => {
                let numbers = number.map_or(1..=limit, |number| number..=number);
                numbers.filter_map(|number| Permit::new(number, limit)).map(Mode::Permit).find(fits)
            }
        }
    }

    fn grant(&mut self, owner: &[u8], mode: Mode, proposal: u64, ttl: Duration, note: &[u8]) -> u64 {
        if self.grants.is_empty() {
            (self.floor, self.numbers) = (self.last, HashMap::new());
        }
        let floor = match mode {
            Mode::Exclusive => self.last,
            Mode::Shared => self.floor,
            Mode::Permit(permit) => self.floor.max(self.numbers.get(&permit.number()).copied().unwrap_or(0)),
        };
        let token = if proposal > floor { proposal } else { self.last + 1 };
        self.last = self.last.max(token);
        self.saw(mode, token);
        self.kept.retain(|(other, ..)| other != owner);
        self.queue.retain(|waiter| waiter.owner != owner);
        let (granted, until) = (Instant::now(), Instant::now() + ttl);
        self.grants.push(Grant { owner: owner.to_vec(), mode, token, note: note.to_vec(), granted, until });
        token
    }

    fn saw(&mut self, mode: Mode, token: u64) {
        match mode {
            Mode::Exclusive => self.floor = token.max(self.floor),
            Mode::Shared => {}
            Mode::Permit(permit) => {
                let highest = self.numbers.entry(permit.number()).or_default();
                *highest = token.max(*highest);
            }
        }
    }

    /// ACQUIRE: the token and the number, if it is free.
    pub fn acquire(
        &mut self,
        owner: &[u8],
        wanted: Wanted,
        proposal: u64,
        ttl: Duration,
        note: &[u8],
        retry: bool,
    ) -> Result<Option<(u64, u16)>, Reply> {
        self.expire(Instant::now());
        if let Some(own) = self.grant_of(owner) {
            if !retry || !wanted.is(own.mode) {
                return Err(Reply::Error("OWNED this owner already holds the lock"));
            }
            own.until = own.until.max(Instant::now() + ttl);
            return Ok(Some((own.token, own.mode.number())));
        }
        let is_its_turn = self.queue.is_empty() || self.kept.iter().any(|(other, ..)| other == owner);
        let mode = self.admitted(owner, wanted).filter(|_| is_its_turn);
        Ok(mode.map(|mode| (self.grant(owner, mode, proposal, ttl, note), mode.number())))
    }

    /// FENCE.
    pub fn raise(&mut self, owner: &[u8], token: u64) -> Option<u64> {
        let own = self.grant_of(owner)?;
        own.token = own.token.max(token);
        let (mode, token) = (own.mode, own.token);
        self.last = self.last.max(token);
        self.saw(mode, token);
        Some(token)
    }

    /// CONVERT to shared.
    pub fn share(&mut self, owner: &[u8]) -> Option<u64> {
        let last = self.last;
        let own = self.grant_of(owner).filter(|own| matches!(own.mode, Mode::Exclusive | Mode::Shared))?;
        let was = std::mem::replace(&mut own.mode, Mode::Shared);
        let token = own.token;
        if was == Mode::Exclusive {
            self.floor = last;
        }
        Some(token)
    }

    /// Serves those at the head of the queue as long as it can.
    pub fn serve(&mut self) {
        self.expire(Instant::now());
        self.queue.sort_by_key(|waiter| waiter.order);
        while let Some(head) = self.queue.first()
            && let Some(mode) = self.admitted(&head.owner, head.wanted)
        {
            let head = self.queue.remove(0);
            let reply = match &head.acquires {
                None => {
                    self.kept.push((head.owner.clone(), mode, Instant::now() + WINDOW));
                    Reply::Int(mode.number().into())
                }
                Some((ttl, proposal, note)) => {
                    let token = self.grant(&head.owner, mode, *proposal, *ttl, note);
                    granted(token, head.since.elapsed(), mode.number(), head.wanted)
                }
            };
            let _ = head.told.send(reply);
        }
    }
}

/// What an ACQUIRE that may wait answers.
pub fn granted(token: u64, waited: Duration, number: u16, wanted: Wanted) -> Reply {
    let mut list = vec![Reply::Int(token), Reply::Int(waited.as_millis() as u64)];
    if matches!(wanted, Wanted::Permit { .. }) {
        list.push(Reply::Int(number.into()));
    }
    Reply::List(list)
}
