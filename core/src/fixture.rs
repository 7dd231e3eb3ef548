//! Locks and requests for the tables of cases by which the rules are tested.

use crate::keepalive::{ClientId, KeepAlive};
use crate::lock::Lock;
use crate::lock::grant::{Grant, GrantId};
use crate::node::Node;
use crate::request::{Acquire, Note, Owner, Patience, Release, Ttl};
use crate::values::key::Key;
use crate::values::limits::MAX_TTL_LIMIT_MS;
use crate::values::mode::{Mode, Permit, Wanted};
use crate::values::time::{BootTime, Now};
use crate::values::token::Token;

/// The key in most of these cases.
pub const KEY: Key<'static> = key_of(b"k");

/// Returns the key `name` of the first database.
pub const fn key_of(name: &[u8]) -> Key<'_> {
    Key { db: 0, name }
}

/// Returns a node that is ready to grant: it has started, and nothing guards it.
pub fn node() -> Node {
    Node::new(10)
}

pub fn owner(name: &str) -> Owner<'_> {
    Owner::new(name.as_bytes()).unwrap()
}

pub fn ttl(ms: u64) -> Ttl {
    Ttl::new(Some(ms), MAX_TTL_LIMIT_MS).unwrap()
}

pub fn token(value: u64) -> Token {
    Token::new(value).unwrap()
}

/// Returns an ACQUIRE of the owner `name`: exclusive, for a second, without a wait.
pub fn asks(name: &str) -> Acquire<'_> {
    Acquire {
        owner: owner(name),
        ttl: ttl(1_000),
        wanted: Wanted::Exclusive,
        retry: false,
        fence: None,
        note: Note::default(),
        patience: Patience::NONE,
        behind: Default::default(),
    }
}

/// Returns a RELEASE by the owner `name`.
pub fn releases(name: &str) -> Release<'_> {
    Release { owner: owner(name), level: None, token: None }
}

/// Keeps the lease of the owner "me" alive, as KEEPALIVE does: a lease of one second, from `now` on for `ms`
/// milliseconds, while the connection `client` is open.
pub fn keep_alive(node: &mut Node, client: u64, ms: u64, now: u64) {
    let keep = KeepAlive::new(ClientId(client), Some(ms), ttl(1_000)).unwrap();
    node.keepalives.keep(KEY, owner("me"), at(0).boot, ttl(1_000), keep, at(now).boot);
}

/// Returns the mode of the permit `number` of `limit` permits.
pub fn permit(number: u16, limit: u16) -> Mode {
    Mode::Permit(Permit::new(number, limit).unwrap())
}

/// Returns the moment `ms` milliseconds after boot.
pub fn ms(ms: u64) -> BootTime {
    BootTime::from_us(ms * 1_000)
}

/// Returns the moment `ms` milliseconds after boot, at which the wall clock shows 1 000 µs more.
pub fn at(ms: u64) -> Now {
    Now::new(BootTime::from_us(ms * 1_000), ms * 1_000 + 1_000)
}

/// Returns a lock that `owner` holds exclusively.
pub fn exclusive(owner: Owner<'_>, note: Note<'_>, token: Token, granted: BootTime, ttl: Ttl) -> Lock {
    Lock::Exclusive(Grant::new(owner, note, token, granted, ttl))
}

/// Returns a lock of "me", granted at 0 ms for 1 000 ms with token 7 and `holds` holds.
pub fn mine(holds: u32) -> Lock {
    let mut lock = exclusive(owner("me"), Note::default(), token(7), BootTime::default(), ttl(1_000));
    lock.grant_mut(GrantId::default()).set_holds(holds);
    lock
}

/// Returns a lock of "me" that is suspect, as after a RESTORE: it can only be released, or end.
pub fn suspect() -> Lock {
    let mut lock = mine(1);
    lock.mark_suspect();
    lock
}
