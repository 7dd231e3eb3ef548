//! Fuzzes one node and its keys: with requests of several owners and, between them, with actions of operators and of
//! the server. Time passes too.
//!
//! The engine decides requests; `driver.rs` performs its steps and checks them. After each request, `world.rs` and
//! `oracle.rs` check the invariants of [`palisade_core`], and `answers.rs` checks the answer.

use arbitrary::{Arbitrary, Result, Unstructured};
use palisade_core::engine::Request as Asked;
use palisade_core::limits::{
    ENTRY_BYTES, GUARD_LIMIT_MS, LOG_LEN_DEFAULT, MAX_CLOCK_SKEW_LIMIT_MS, MAX_TTL_DEFAULT_MS, NOTE_BYTES_MAX,
    NOTE_SEQUENCE_MAX,
};
use palisade_core::request::{
    Acquire, Annotate, Behind, Conversion, Convert, Extend, Known, Level, Note, NoteSequence, Owner, Patience, Reenter,
    Release, Ticket, Ttl, Wait, permit,
};
use palisade_core::{KeyPrefixes, Lock, Refusal, Settings, Token, Wanted, check};

use crate::choice::{Name, Number, Passes, Raised, Wavering};
use crate::oracle::{Done, Place};
use crate::world::{START, Timer, World, name_of};

/// A key. There are few, so that requests compete.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Key(u8);

impl Key {
    /// Returns one of two databases and one of three names, most often the first of each.
    fn place(self) -> Place {
        let name = match self.0 % 8 {
            0..5 => 0,
            5..7 => 1,
            _ => 2,
        };
        (u32::from(self.0 >= 192), name)
    }
}

/// A token that a client names.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Named {
    /// The key's present token, plus this number.
    Near(i8),
    /// The time that the wall clock shows, plus this number of microseconds.
    Clock(i32),
    Any(Number),
}

/// The mode that a request asks for: exclusive, shared, or one of some permits. The limit may be invalid.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Mode(u8);

impl Mode {
    fn wanted(self) -> Done<Wanted> {
        let (limit, number) = (u64::from(self.0 >> 4) % 6, u64::from(self.0 >> 6));
        match self.0 % 8 {
            0 | 1 => Ok(Wanted::Exclusive),
            2..5 => Ok(Wanted::Shared),
            5 | 6 => permit(limit, None),
            _ if limit == 5 => permit(u64::from(u16::MAX) + number / 2, Some(number * u64::from(u16::MAX) / 2)),
            _ => permit(limit, Some(number)),
        }
    }
}

/// A step of the run. Numbers are as clients send them; invalid ones are refused before they reach the rules.
#[derive(Debug, Arbitrary)]
enum Step {
    Acquire {
        key: Key,
        owner: Name,
        ttl: Number,
        wait: Option<Number>,
        fence: Option<Named>,
        retry: Wavering,
        note: u16,
        mode: Mode,
    },
    Asks(Request),
    Happens(Event),
    /// Time passes. Due work is done, unless writes are paused.
    Passes {
        time: Passes,
        paused: Wavering,
    },
}

#[derive(Debug, Arbitrary)]
enum Request {
    Release { key: Key, owner: Name, level: Option<Number>, token: Option<Named> },
    Extend { key: Key, owner: Name, ttl: Number, token: Option<Named> },
    Reenter { key: Key, owner: Name, raised: Raised, ttl: Option<Number> },
    Fence { key: Key, owner: Name, token: Named },
    Check { key: Key, token: Named },
    Wait { key: Key, owner: Name, ms: Number, ticket: Option<Number>, mode: Mode },
    Break { key: Key },
    BreakToken { key: Key, token: Named },
    Convert { key: Key, owner: Name, shares: bool, token: Option<Named> },
    Note { key: Key, owner: Name, text: u16, number: Option<u8>, token: Option<Named> },
    Watch { key: Key, ms: Number, knows: Option<u8>, number: Option<u8> },
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
    /// DUMP of one key, and RESTORE as another.
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
    /// A client disconnects: one with a waiting request, or one for whose connection a lease is kept.
    Leave {
        which: u8,
        watches: bool,
    },
    Arm {
        ms: Number,
    },
    Lift,
    /// The operator sets `lock.max-waiters`, `lock.handoff-window` and `lock.max-clock-skew`.
    Configure {
        max_waiters: u8,
        window_ms: u8,
        skew_ms: u16,
    },
    /// Sets the ceiling on the disk to this far ahead of the clock, or removes it.
    Ceiling {
        ahead_us: Option<u32>,
    },
    /// The wall clock is set.
    Clock {
        us: u64,
    },
}

/// Runs a node that is made from the bytes: its first token, the time before which its grants are suspect, and all
/// steps. Each run is made twice: once without obstacles, and once with a late disk and a server that sometimes
/// refuses.
pub fn run(input: &[u8]) {
    for wavers in [false, true] {
        let _ = all(&mut Unstructured::new(input), wavers);
    }
}

fn all(bytes: &mut Unstructured<'_>, wavers: bool) -> Result<()> {
    let floor = Number::arbitrary(bytes)?.0;
    let unproved_ms = u8::arbitrary(bytes)?;
    let mut world = World::new(floor, START.plus_ms(unproved_ms.into()), wavers);
    while !bytes.is_empty() {
        let step = bytes.arbitrary()?;
        crate::tell(&(world.boot, &step));
        if let Err(refusal) = world.step(step) {
            assert!(!refusal.to_string().is_empty());
        }
        world.deliver();
        world.is_sound();
        world.check_kept();
    }
    world.end();
    Ok(())
}

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
        let last = || self.node.tokens().last(&name_of(place));
        let value = match named {
            Named::Near(by) => {
                // If the lock has several holders, this is sometimes the token of another one than the first.
                let near = |lock: &Lock| match lock.len() {
                    1 => lock.first().token().get().saturating_add_signed(by.into()),
                    count => {
                        let one = lock.grants().nth(usize::from(by.unsigned_abs()) % count);
                        one.map_or(0, |(_, grant)| grant.token().get()).saturating_add_signed((by / 32).into())
                    }
                };
                self.locks.get(&place).map_or_else(|| last().saturating_add_signed(by.into()), near)
            }
            Named::Clock(by) => self.now().wall_us.saturating_add_signed(by.into()),
            Named::Any(Number(value)) => value,
        };
        Token::new(value).ok_or(Refusal::Token { argument: "token" })
    }

    fn step(&mut self, step: Step) -> Done {
        match step {
            Step::Acquire { key, owner, ttl: ms, wait, fence, retry, note, mode } => {
                let place = key.place();
                self.wavers(retry.doubts(), retry.disk_gets_done());
                let text = vec![b'n'; usize::from(note) % (NOTE_BYTES_MAX + 2)];
                // Half of the requests are in a transaction, where the client cannot be blocked and is answered at
                // once. For half of all requests, the server serves the queue just before.
                let may_block = note % 2 == 0;
                let patience = wait.map(patience).transpose()?.filter(|_| may_block);
                let ask = Acquire {
                    owner: Owner::new(owner.bytes())?,
                    ttl: ttl(ms)?,
                    wanted: mode.wanted()?,
                    retry: retry.is_set(),
                    fence: fence.map(|named| self.token(place, named)).transpose()?,
                    note: Note::new(&text)?,
                    patience: patience.unwrap_or(Patience::NONE),
                    behind: Behind::new(Some(u64::from(note % 8)))?,
                };
                let wish = self.keeping.wish(note, ask.ttl)?;
                self.acquire(place, &ask, wish, may_block, note & 2 == 0)
            }
            Step::Asks(request) => self.ask(request),
            Step::Happens(event) => {
                self.occurs(event);
                Ok(())
            }
            Step::Passes { time, paused } => {
                self.wavers(paused.doubts(), paused.disk_gets_done());
                let timer = match paused.doubts() >> 2 {
                    _ if self.disk.is_none() => Timer::Due,
                    12.. => Timer::AnswersNobody,
                    3 | 7 | 11 => Timer::Late,
                    _ => Timer::Due,
                };
                self.passes(time, paused.is_set(), timer);
                Ok(())
            }
        }
    }

    fn ask(&mut self, request: Request) -> Done {
        match request {
            Request::Release { key, owner, level: holds, token } => {
                let place = key.place();
                let token = token.map(|named| self.token(place, named)).transpose()?;
                let ask = Release { owner: Owner::new(owner.bytes())?, level: holds.map(level).transpose()?, token };
                self.release(place, &ask)?;
            }
            Request::Extend { key, owner, ttl: ms, token } => {
                let place = key.place();
                let token = token.map(|named| self.token(place, named)).transpose()?;
                let ask = Extend { owner: Owner::new(owner.bytes())?, ttl: ttl(ms)?, token };
                self.in_place(place, &Asked::Extend(ask))?;
            }
            Request::Reenter { key, owner, raised: Raised { level: holds, adopts }, ttl: ms } => {
                let place = key.place();
                let (level, ttl) = (holds.map(level).transpose()?, ms.map(ttl).transpose()?);
                let ask = Reenter { owner: Owner::new(owner.bytes())?, level, ttl, adopts };
                self.in_place(place, &Asked::Reenter(ask))?;
            }
            Request::Fence { key, owner, token } => {
                let place = key.place();
                let (owner, token) = (Owner::new(owner.bytes())?, self.token(place, token)?);
                self.in_place(place, &Asked::Fence(owner, token))?;
            }
            Request::Check { key, token } => {
                let place = key.place();
                let token = self.token(place, token)?;
                let left = check(self.locks.get(&place), token, &self.node, self.now())?;
                assert_eq!(left, self.oracle.left_ms(place, token, self.boot));
            }
            Request::Wait { key, owner, ms, ticket, mode } => {
                let ticket = ticket.map(|Number(number)| Ticket::new(Some(number))).transpose()?;
                let (owner, wanted, patience) = (Owner::new(owner.bytes())?, mode.wanted()?, patience(ms)?);
                let behind = Behind::new(Some(u64::from(patience.ms() % 8)))?;
                let ask = Wait { owner, wanted, patience, ticket, note: Note::default(), behind };
                self.wait(key.place(), &ask)?;
            }
            Request::Break { key } => self.break_it(key.place(), None),
            Request::BreakToken { key, token } => {
                let place = key.place();
                let token = self.token(place, token)?;
                self.break_it(place, Some(token));
            }
            Request::Convert { key, owner, shares, token } => {
                let place = key.place();
                let token = token.map(|named| self.token(place, named)).transpose()?;
                let to = if shares { Conversion::Shared } else { Conversion::Exclusive };
                self.convert(place, &Convert { owner: Owner::new(owner.bytes())?, to, token })?;
            }
            Request::Note { key, owner, text, number, token } => {
                let place = key.place();
                let token = token.map(|named| self.token(place, named)).transpose()?;
                let text = vec![b't'; usize::from(text) % (NOTE_BYTES_MAX + 2)];
                // The numbers are few, so that some come twice, and the largest one is among them.
                let number = number.map(|n| if n == u8::MAX { NOTE_SEQUENCE_MAX } else { u64::from(n % 8) });
                let sequence = number.map(|number| NoteSequence::new(Some(number))).transpose()?;
                let ask = Annotate { owner: Owner::new(owner.bytes())?, note: Note::new(&text)?, sequence, token };
                self.annotate(place, &ask)?;
            }
            Request::Watch { key, ms, knows, number } => {
                let place = key.place();
                let sequence = number.map(|n| NoteSequence::new(Some(u64::from(n % 8)))).transpose()?;
                // A client that knows the present state waits for a change. The node answers others at once.
                let grant =
                    |lock: &Lock, n| lock.grants().nth(usize::from(n) % lock.len()).map(|(_, grant)| grant.token());
                let token = knows.and_then(|n| self.locks.get(&place).and_then(|lock| grant(lock, n)));
                let known = token.map_or(Known::Free, |token| Known::Grant(token, sequence));
                self.watch(place, known, patience(ms)?)?;
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
            Event::Leave { which, watches: true } => self.watcher_leaves(which),
            Event::Leave { which: which @ 128.., watches: false } => self.hang_up(which),
            Event::Leave { which, watches: false } => self.leave(which),
            Event::Arm { ms: Number(ms) } => {
                let until = self.boot.plus_ms(u32::try_from(ms % u64::from(GUARD_LIMIT_MS)).unwrap_or(0));
                self.node.guard_by_operator(Some(until.ms_since(self.boot) as u32), self.boot);
                self.save(true);
            }
            Event::Lift => {
                self.oracle.nothing_was_dropped();
                if self.node.guard_by_operator(None, self.boot) {
                    self.save(true);
                }
            }
            Event::Configure { max_waiters, window_ms, skew_ms } => {
                self.node.configure(Settings {
                    max_waiters: max_waiters.into(),
                    max_waiting_bytes: u64::from(max_waiters) * ENTRY_BYTES,
                    handoff_window_ms: window_ms.into(),
                    max_clock_skew_ms: u32::from(skew_ms).min(MAX_CLOCK_SKEW_LIMIT_MS),
                    log_max_len: u32::from(max_waiters) % LOG_LEN_DEFAULT,
                    log_slower_than_ms: (skew_ms > 0).then(|| window_ms.into()),
                    events: window_ms % 2 == 1,
                });
                let prefixes = ["", "k", "k %FF l"][usize::from(window_ms) % 3];
                self.node.count_by(&KeyPrefixes::parse(prefixes.as_bytes()).expect("prefixes within bounds"));
            }
            Event::Ceiling { ahead_us } if self.disk.is_some() => self.disk_is(ahead_us),
            Event::Ceiling { ahead_us } => {
                let ceiling = ahead_us.map_or(u64::MAX, |ahead_us| self.now().wall_us + u64::from(ahead_us));
                self.node.tamper().tokens.set_ceiling(ceiling);
                let (changes, now) = (self.node.tokens().stripe_changes(), self.now().boot);
                self.node.tamper().tokens.stripes_saved(changes);
                self.node.tamper().tokens.sweep_stripes(now);
            }
            Event::Clock { us } => self.wall_us = us,
        }
    }

    /// Begins to write the node's state. With `None` the write is completed at once, and the state file is the node's
    /// own. Otherwise the write stays under way. The lowest bit then says whether the node may promise nothing before
    /// it is completed; if the next three are set, another server has taken the state file.
    fn disk_is(&mut self, bits: Option<u32>) {
        self.save(bits.is_some_and(|bits| bits & 1 == 1));
        let Some(disk) = &mut self.disk else { return };
        disk.is_taken = bits.is_some_and(|bits| bits & 14 == 14);
        if bits.is_none() {
            disk.finish();
        }
    }
}
