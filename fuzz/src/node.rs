//! One node and its keys: requests of several owners, and what operators, the server and time do between them.
//!
//! After each step the invariants of [`palisade_core`] are checked (`world.rs`, `oracle.rs`).

use arbitrary::{Arbitrary, Result, Unstructured};
use palisade_core::limits::{GUARD_LIMIT_MS, MAX_CLOCK_SKEW_LIMIT_MS, MAX_TTL_DEFAULT_MS, NOTE_BYTES_MAX};
use palisade_core::request::{Acquire, Extend, Level, Note, Owner, Patience, Reenter, Release, Ticket, Ttl, Wait};
use palisade_core::{
    Acquired, Cause, Extended, Fenced, Lock, Node, Now, Reentered, Refusal, Released, Token, Waited, Want, acquire,
    break_lock, check, extend, fence, reenter, release, wait,
};

use crate::choice::{Name, Number, Passes};
use crate::oracle::Place;
use crate::world::{START, World, name_of};

/// A key: few, so that they meet.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Key(u8);

impl Key {
    /// One of two databases, one of three names; mostly the same.
    fn place(self) -> Place {
        let name = match self.0 % 8 {
            0..5 => 0,
            5..7 => 1,
            _ => 2,
        };
        (u32::from(self.0 >= 192), name)
    }
}

/// A token that somebody names.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Named {
    /// The key's current one and this much.
    Near(i8),
    /// The wall clock and this many microseconds.
    Clock(i32),
    Any(Number),
}

/// What happens, a quarter of it each. Numbers are as clients send them; what is out of bounds is refused before it gets to
/// the rules.
#[derive(Debug, Arbitrary)]
enum Step {
    Acquire {
        key: Key,
        owner: Name,
        ttl: Number,
        wait: Option<Number>,
        fence: Option<Named>,
        retry: bool,
        note: u16,
    },
    Asks(Request),
    Happens(Event),
    /// Time goes on; what is due is looked after, unless writes are paused.
    Passes {
        time: Passes,
        paused: bool,
    },
}

#[derive(Debug, Arbitrary)]
enum Request {
    Release { key: Key, owner: Name, level: Option<Number>, token: Option<Named> },
    Extend { key: Key, owner: Name, ttl: Number, token: Option<Named> },
    Reenter { key: Key, owner: Name, level: Option<Number>, ttl: Option<Number> },
    Fence { key: Key, owner: Name, token: Named },
    Check { key: Key, token: Named },
    Wait { key: Key, owner: Name, ms: Number, ticket: Option<Number> },
    Break { key: Key },
}

#[derive(Debug, Arbitrary)]
enum Event {
    Delete {
        key: Key,
    },
    Rename {
        key: Key,
        to: Key,
    },
    /// DUMP of one key, RESTORE as another.
    Restore {
        key: Key,
        to: Key,
    },
    Evict {
        key: Key,
    },
    Flush {
        db: Option<bool>,
    },
    Swap,
    /// The client of a waiting request goes.
    Leave {
        which: u8,
    },
    Arm {
        ms: Number,
    },
    Lift,
    /// The operator's limits: of waiters, of the moment that a lock is kept free, of clocks.
    Configure {
        max_waiters: u8,
        window_ms: u8,
        skew_ms: u16,
    },
    /// The disk has the ceiling this far ahead of the clock, or there is none.
    Ceiling {
        ahead_us: Option<u32>,
    },
    /// The wall clock is set.
    Clock {
        us: u64,
    },
}

/// Made of the bytes: where tokens start, since when the node remembers, and what happens.
pub fn run(input: &[u8]) {
    let _ = all(&mut Unstructured::new(input));
}

fn all(bytes: &mut Unstructured<'_>) -> Result<()> {
    let floor = Number::arbitrary(bytes)?.0;
    let unproved_ms = u8::arbitrary(bytes)?;
    let mut world = World::new(floor, START.plus_ms(unproved_ms.into()));
    for step in bytes.arbitrary_iter()? {
        let step = step?;
        crate::tell(&(world.boot, &step));
        if let Err(refusal) = world.step(step) {
            assert!(!refusal.to_string().is_empty());
        }
        world.deliver();
        world.is_sound();
    }
    world.ends();
    Ok(())
}

type Done<T = ()> = std::result::Result<T, Refusal>;

/// What a key holds.
type Held<'a> = Option<&'a mut Lock>;

fn ttl(Number(ms): Number) -> Done<Ttl> {
    Ttl::new(Some(ms), MAX_TTL_DEFAULT_MS)
}

fn level(Number(holds): Number) -> Done<Level> {
    Level::new(Some(holds))
}

fn patience(Number(ms): Number) -> Done<Patience> {
    Patience::new(Some(ms))
}

impl World {
    fn token(&self, place: Place, named: Named) -> Done<Token> {
        let last = || self.node.tokens.last(&name_of(place));
        let value = match named {
            Named::Near(by) => {
                self.locks.get(&place).map_or_else(last, |lock| lock.token().get()).saturating_add_signed(by.into())
            }
            Named::Clock(by) => self.now().wall_us.saturating_add_signed(by.into()),
            Named::Any(Number(value)) => value,
        };
        Token::new(value).ok_or(Refusal::Token)
    }

    fn step(&mut self, step: Step) -> Done {
        match step {
            Step::Acquire { key, owner, ttl: ms, wait, fence, retry, note } => {
                let place = key.place();
                let text = vec![b'n'; usize::from(note) % (NOTE_BYTES_MAX + 2)];
                let ask = Acquire {
                    owner: Owner::new(owner.bytes())?,
                    ttl: ttl(ms)?,
                    retry,
                    fence: fence.map(|named| self.token(place, named)).transpose()?,
                    note: Note::new(&text)?,
                    patience: wait.map(patience).transpose()?.unwrap_or(Patience::NONE),
                };
                self.acquire(place, &ask)
            }
            Step::Asks(request) => self.asks(request),
            Step::Happens(event) => {
                self.occurs(event);
                Ok(())
            }
            Step::Passes { time, paused } => {
                self.passes(time, paused);
                Ok(())
            }
        }
    }

    fn asks(&mut self, request: Request) -> Done {
        match request {
            Request::Release { key, owner, level: holds, token } => {
                let place = key.place();
                let token = token.map(|named| self.token(place, named)).transpose()?;
                let ask = Release { owner: Owner::new(owner.bytes())?, level: holds.map(level).transpose()?, token };
                self.release(place, &ask);
            }
            Request::Extend { key, owner, ttl: ms, token } => {
                let place = key.place();
                let token = token.map(|named| self.token(place, named)).transpose()?;
                let ask = Extend { owner: Owner::new(owner.bytes())?, ttl: ttl(ms)?, token };
                let rule = |held: Held<'_>, node: &mut Node, now| extend(held, &ask, node, now);
                let changed = |extended: &Extended| matches!(extended, Extended::Prolonged(_));
                self.in_place(place, rule, changed)?;
            }
            Request::Reenter { key, owner, level: holds, ttl: ms } => {
                let place = key.place();
                let (level, ttl) = (holds.map(level).transpose()?, ms.map(ttl).transpose()?);
                let ask = Reenter { owner: Owner::new(owner.bytes())?, level, ttl };
                let rule = |held: Held<'_>, node: &mut Node, now| reenter(held, &ask, node, now);
                let changed = |reentered: &Reentered| matches!(reentered, Reentered::Changed(_));
                self.in_place(place, rule, changed)?;
            }
            Request::Fence { key, owner, token } => {
                let place = key.place();
                let (owner, token) = (Owner::new(owner.bytes())?, self.token(place, token)?);
                let name = name_of(place);
                let rule = |held: Held<'_>, node: &mut Node, now| fence(&name, held, owner, token, node, now);
                self.in_place(place, rule, |fenced| matches!(fenced, Fenced::Raised(_)))?;
            }
            Request::Check { key, token } => {
                let place = key.place();
                let token = self.token(place, token)?;
                let left = check(self.locks.get(&place), token, &self.node, self.now())?;
                assert_eq!(left, self.oracle.left_ms(place, token, self.boot));
            }
            Request::Wait { key, owner, ms, ticket } => {
                let ticket = ticket.map(|Number(number)| Ticket::new(Some(number))).transpose()?;
                let ask = Wait { owner: Owner::new(owner.bytes())?, patience: patience(ms)?, ticket };
                self.wait(key.place(), &ask)?;
            }
            Request::Break { key } => {
                let place = key.place();
                let now = self.now();
                if let Some(token) = break_lock(self.locks.get_mut(&place), &mut self.node, now) {
                    assert_eq!(token, self.locks[&place].token());
                    self.end(place);
                }
            }
        }
        Ok(())
    }

    fn occurs(&mut self, event: Event) {
        match event {
            Event::Delete { key } => {
                self.unlink(key.place());
            }
            Event::Rename { key, to } => self.rename(key.place(), to.place()),
            Event::Restore { key, to } => self.restore(key.place(), to.place()),
            Event::Evict { key } => self.evict(key.place()),
            Event::Flush { db } => self.flush(db.map(u32::from)),
            Event::Swap => self.swap(),
            Event::Leave { which } => self.leave(which),
            Event::Arm { ms: Number(ms) } => {
                let until = self.boot.plus_ms(u32::try_from(ms % u64::from(GUARD_LIMIT_MS)).unwrap_or(0));
                self.node.guard.arm(Cause::Operator, self.boot, until);
            }
            Event::Lift => {
                self.node.guard.lift();
                self.oracle.nothing_was_dropped();
                self.node.waiting.look_at_all();
            }
            Event::Configure { max_waiters, window_ms, skew_ms } => {
                self.node.waiting.max = max_waiters.into();
                self.node.waiting.handoff_window_ms = window_ms.into();
                self.node.skew_ms = u32::from(skew_ms).min(MAX_CLOCK_SKEW_LIMIT_MS);
            }
            Event::Ceiling { ahead_us } => {
                let ceiling = ahead_us.map_or(u64::MAX, |ahead_us| self.now().wall_us + u64::from(ahead_us));
                self.node.tokens.set_ceiling(ceiling);
                self.node.tokens.stripes_saved(self.node.tokens.stripe_changes());
                self.node.tokens.sweep_stripes(self.now().boot);
                self.hindered |= ahead_us.is_some();
            }
            Event::Clock { us } => self.wall_us = us,
        }
    }

    fn acquire(&mut self, place: Place, ask: &Acquire<'_>) -> Done {
        // Whoever waits is before the one who asks now.
        self.serve(place);
        self.deliver();
        let Acquire { owner, ttl, fence, retry, note, patience } = *ask;
        let before = self.state(place);
        let may_queue = self.waits_in_time(place);
        let (name, now) = (name_of(place), self.now());
        let acquired = acquire(place.0, &name, self.locks.get_mut(&place), ask, &mut self.node, now);
        if !matches!(acquired, Ok(Acquired::Granted(_) | Acquired::Contended)) {
            assert_eq!(self.state(place), before, "{acquired:?} changes nothing");
        }
        match acquired.or_else(|refusal| refusal.or_queue(patience, &self.node, Acquired::Queues))? {
            Acquired::Granted(lock) => {
                let told = self.oracle.is_kept(place, self.boot);
                assert!(told || !may_queue, "{owner:?} passed those who wait");
                self.store(place, lock);
            }
            Acquired::Unchanged(token) => assert!(retry && before.0.is_some_and(|lock| lock.token() == token)),
            Acquired::Contended => assert_eq!(patience.ms(), 0),
            Acquired::Queues => self.join(place, owner, note, Want::Lock { ttl, fence, retry }, patience, None),
        }
        Ok(())
    }

    fn wait(&mut self, place: Place, ask: &Wait<'_>) -> Done {
        let before = self.state(place);
        let told = self.oracle.is_kept(place, self.boot);
        let (name, now) = (name_of(place), self.now());
        let waited = wait(place.0, &name, self.locks.get(&place), ask, &mut self.node, now);
        assert_eq!(self.state(place), before, "it grants nothing");
        let Wait { owner, patience, ticket } = *ask;
        match waited.or_else(|refusal| refusal.or_queue(patience, &self.node, Waited::Queues))? {
            Waited::Turn if !told && !self.is_held_by(place, owner.bytes()) => {
                assert!(!self.is_held(place) && !self.waits_in_time(place), "{owner:?} passed those who wait");
                self.tell(place, owner.bytes());
            }
            Waited::Turn => {}
            Waited::InVain => assert_eq!(patience.ms(), 0),
            Waited::Queues => self.join(place, owner, Note::default(), Want::Turn, patience, ticket),
        }
        Ok(())
    }

    fn release(&mut self, place: Place, ask: &Release<'_>) {
        let before = self.locks.get(&place).cloned();
        if ask.token.is_none() {
            self.take_back(place, ask.owner.bytes());
        }
        let (name, now) = (name_of(place), self.now());
        match release(place.0, &name, self.locks.get_mut(&place), ask, &mut self.node, now) {
            Released::Freed => {
                assert!(self.is_held_by(place, ask.owner.bytes()));
                self.end(place);
            }
            Released::Lowered(left) => {
                let lock = &self.locks[&place];
                assert!(lock.is_of(ask.owner) && lock.holds() == left && left > 0);
                assert!(before.is_some_and(|before| left < before.holds() && lock.deadline() == before.deadline()));
                self.oracle.changed(place, lock);
            }
            Released::Unchanged(_) | Released::NotHeld => assert_eq!(self.locks.get(&place), before.as_ref()),
        }
    }

    /// A rule that changes a lock in place, if it says so.
    fn in_place<T: std::fmt::Debug>(
        &mut self,
        place: Place,
        rule: impl FnOnce(Held<'_>, &mut Node, Now) -> Done<T>,
        changed: impl FnOnce(&T) -> bool,
    ) -> Done {
        let (mut before, now) = (self.state(place), self.now());
        let done = rule(self.locks.get_mut(&place), &mut self.node, now);
        if done.as_ref().is_ok_and(changed) {
            let lock = self.locks.get_mut(&place).expect("only what is there is changed");
            assert!(!lock.is_expired(self.boot) && Some(&*lock) != before.0.as_ref());
            self.oracle.changed(place, lock);
            self.node.deadlines.watch(place.0, &name_of(place), lock);
        } else {
            if done.is_ok() {
                // It was asked for, and counted.
                before.4 = self.node.counters;
            }
            assert_eq!(self.state(place), before, "{done:?} changes nothing");
        }
        done.map(drop)
    }
}
