//! The registry of blocked clients, each with the reason: it waits for a lock, watches one, or listens.

use std::cell::RefCell;
use std::collections::HashMap;

use palisade_core::engine::{Key, Request};
use palisade_core::request::{Acquire, Form, Owner, Ttl};
use palisade_core::{BootTime, ClientId, KeepAlive, KeepAlives, Refusal, WaiterId};

use super::pass;
use crate::ffi::{Blocked, BlockedClients, Context, KeyName, Reply};
use crate::{clock, state};

thread_local! {
    /// All blocked clients, by the ids of their requests.
    static PARKED: RefCell<HashMap<WaiterId, Parked>> = RefCell::default();
}

/// A blocked client, and why it is blocked.
pub struct Parked {
    blocked: Blocked,
    /// The reason why the client is blocked.
    pub why: Reason,
}

/// The reason why a client is blocked.
pub enum Reason {
    /// A request waits for a lock, or for the end of a BREAK. The KEEPALIVE that a grant begins is in a box, because
    /// few requests have one.
    Waits(Form, Option<Box<Keeps>>),
    /// The client watches a lock.
    Watches,
    /// The client is the connection of this listener, and waits for news.
    Hears(ClientId),
}

/// A lease to keep alive from the moment when its client is answered.
pub struct Keeps {
    db: u32,
    name: Box<[u8]>,
    owner: Box<[u8]>,
    ttl: Ttl,
    keepalive: KeepAlive,
}

impl Keeps {
    /// Returns the lease to keep alive if `request` has `keepalive`, and `None` if not.
    pub fn new(db: u32, name: KeyName<'_>, request: &Request<'_>, keepalive: Option<KeepAlive>) -> Option<Self> {
        match (request, keepalive) {
            (Request::Acquire(Acquire { owner, ttl, .. }), Some(keepalive)) => {
                Some(Self { db, name: name.bytes().into(), owner: owner.bytes().into(), ttl: *ttl, keepalive })
            }
            _ => None,
        }
    }

    /// Begins to keep the lease alive, because its client is being answered with the grant that began at `granted`.
    pub fn begin(&self, granted: BootTime) {
        self.with(|all, key, owner| all.keep(key, owner, granted, self.ttl, self.keepalive, clock::boot_now()));
    }

    fn begin_wait(&self) {
        self.with(|all, key, owner| all.begin_wait(key, owner, self.ttl));
    }

    fn end_wait(&self) {
        self.with(|all, key, owner| all.end_wait(key, owner, self.ttl));
    }

    fn with(&self, change: impl FnOnce(&mut KeepAlives, Key<'_>, Owner<'_>)) {
        // The owner was valid when the request arrived.
        let Ok(owner) = Owner::new(&self.owner) else { return };
        state::with(|node| change(node.keepalives_mut(), Key { db: self.db, name: &self.name }, owner));
    }
}

/// Blocks the client of this `command`, for the reason `why`. Returns the id under which it is answered.
pub fn park<C: BlockedClients>(ctx: Context<'_>, command: &'static str, why: Reason) -> WaiterId {
    let blocked = Blocked::new::<C>(ctx, command);
    let id = blocked.id();
    if let Reason::Waits(_, Some(keeps)) = &why {
        keeps.begin_wait();
    }
    PARKED.with_borrow_mut(|all| all.insert(id, Parked { blocked, why }));
    id
}

/// Answers the client blocked under `id`, if it is still blocked.
pub fn answer(id: WaiterId, told: impl FnOnce(&Parked) -> Result<Reply, Refusal>) {
    if let Some(parked) = remove(id) {
        let told = told(&parked);
        pass::answer(parked.blocked, told);
    }
}

/// Removes the client blocked under `id` without an answer, because the server itself has answered or lost it. Returns
/// why it was blocked.
pub fn give_back(id: WaiterId) -> Option<Reason> {
    let Parked { blocked, why } = remove(id)?;
    blocked.give_back();
    Some(why)
}

fn remove(id: WaiterId) -> Option<Parked> {
    let parked = PARKED.with_borrow_mut(|all| all.remove(&id))?;
    if let Reason::Waits(_, Some(keeps)) = &parked.why {
        keeps.end_wait();
    }
    Some(parked)
}

/// Returns whether the user of the client blocked under `id` may still run its command on the key `name` of this
/// database. ACL rules may have changed since the command arrived.
pub fn is_permitted(id: WaiterId, db: u32, name: KeyName<'_>) -> bool {
    PARKED.with_borrow(|all| all.get(&id).is_none_or(|parked| parked.is_permitted(db, name)))
}

impl Parked {
    /// Returns whether this client's user may still run its command on the key `name` of this database.
    pub fn is_permitted(&self, db: u32, name: KeyName<'_>) -> bool {
        self.blocked.is_permitted(db, name)
    }
}
