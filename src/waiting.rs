//! Clients that wait for a lock: between the queues of the rules and the blocked clients of the server.

use std::cell::RefCell;
use std::collections::HashMap;

use palisade_core::request::{Note, Owner, Patience, Ticket};
use palisade_core::{Answer, BootTime, Now, Refusal, Waiter, WaiterId, Want};

use crate::commands::{Acquire, Wait};
use crate::ffi::{Blocked, BlockedClients, Command, Context, KeyName, LockKey, NotALock, Reply};
use crate::hand_over::{self, Cause};
use crate::{alarm, clock, state};

thread_local! {
    /// Every client that waits, by the name its request has in the queues.
    static BLOCKED: RefCell<HashMap<WaiterId, Blocked>> = RefCell::new(HashMap::new());
}

/// What is told to those who wait on a master that becomes a replica, as the server itself tells it.
const DEMOTED: &str = "UNBLOCKED this node became a replica: ask its master";

/// What is told to those whose user lost a permission while they waited.
const FORBIDDEN: &str = "NOPERM this user may not run this command on this key any more: see ACL GETUSER";

/// A request that takes its place in the queue.
pub struct Joins<'a> {
    /// Who waits.
    pub owner: Owner<'a>,
    /// For people.
    pub note: Note<'a>,
    /// What for.
    pub want: Want,
    /// How long.
    pub patience: Patience,
    /// Where it wants to stand.
    pub ticket: Option<Ticket>,
}

/// Blocks the client of this command until the lock of `key` is its own, or whatever comes of it.
pub fn join(ctx: Context<'_>, key: &LockKey<'_>, joins: Joins<'_>, now: Now) -> Reply {
    let (db, name) = (ctx.db(), key.name().bytes());
    let Joins { owner, note, want, patience, ticket } = joins;
    let command = match want {
        Want::Lock { .. } => Acquire::SPEC.name,
        Want::Turn => Wait::SPEC.name,
    };
    let blocked = Blocked::new::<Clients>(ctx, command);
    let id = WaiterId(blocked.id());
    BLOCKED.with_borrow_mut(|all| all.insert(id, blocked));
    let waiter = Waiter::new(id, owner, note, want, now.boot, patience.ms());
    let held_by_another = key.lock().is_some_and(|lock| !lock.is_expired(now.boot) && !lock.is_of(owner));
    state::with(|node| {
        node.waiting.join(db, name, waiter, ticket);
        // Free or its own, and yet it has to wait: nothing happens to the key that would bring its turn about.
        if !held_by_another {
            node.waiting.look_at(db, name, now.boot);
        }
    });
    alarm::arm(ctx);
    Reply::Later
}

/// Sends what the rules decided to those who waited.
pub fn deliver() {
    for (id, answer) in state::with(|node| node.waiting.take_answers()) {
        send(id, reply(answer));
    }
}

/// Answers everybody who waits for the lock `name` of `db` with an error of the server's own.
pub fn dismiss(db: u32, name: &[u8], error: &str) {
    for id in state::with(|node| node.waiting.dismiss(db, name)) {
        send(id, Ok(Reply::Error(error.to_owned())));
    }
}

/// Answers those before the first in the queue of `key` whose user may still have it: rules may have changed since they came.
pub fn dismiss_forbidden(ctx: Context<'_>, key: KeyName<'_>) {
    let db = ctx.db();
    while let Some(id) = state::with(|node| node.waiting.of(db, key.bytes()).next().map(|first| first.id)) {
        if BLOCKED.with_borrow(|all| all.get(&id).is_none_or(|blocked| blocked.is_permitted(key))) {
            return;
        }
        state::with(|node| node.waiting.leave(id));
        send(id, Ok(Reply::Error(FORBIDDEN.to_owned())));
    }
}

/// The node became a replica: it grants nobody anything, so nobody waits here. Most servers end all waits themselves before
/// they tell; a Valkey in a cluster, or one whose client can be redirected, does not.
pub fn dismiss_all() {
    for (id, blocked) in BLOCKED.take() {
        state::with(|node| node.waiting.leave(id));
        blocked.answer(Ok(Reply::Error(DEMOTED.to_owned())));
    }
}

fn send(id: WaiterId, answer: Result<Reply, Refusal>) {
    if let Some(blocked) = BLOCKED.with_borrow_mut(|all| all.remove(&id)) {
        blocked.answer(answer);
    }
}

/// Answers the one whose time has been up longest; `false` if there is none.
pub fn time_out_one(now: BootTime) -> bool {
    state::with(|node| node.waiting.time_out(now))
}

/// Looks at the queue that has been due longest; `false` if none is due.
pub fn look_at_one(ctx: Context<'_>, now: BootTime) -> bool {
    let Some((db, name)) = state::with(|node| node.waiting.pop_due(now)) else { return false };
    ctx.select(db);
    KeyName::with(&name, |key_name| match LockKey::write(ctx, key_name) {
        Ok(mut key) => hand_over::serve(ctx, &mut key, Cause::Itself, Now { boot: now, ..clock::now() }),
        Err(NotALock) => state::with(|node| node.waiting.put_off(db, &name, Refusal::WrongType, now)),
    });
    true
}

/// The lock `name` of `db` left without a command of ours: its queue is looked at in the next pass of the event loop,
/// after whatever took it.
pub fn left(ctx: Context<'_>, db: u32, name: &[u8]) {
    let queued = state::with(|node| {
        node.waiting.look_at(db, name, BootTime::default());
        node.waiting.has_queue(db, name)
    });
    if queued {
        alarm::arm(ctx);
    }
}

/// Every queue is looked at from the next pass of the event loop on.
pub fn look_at_all(ctx: Context<'_>) {
    state::with(|node| node.waiting.look_at_all());
    alarm::arm(ctx);
}

fn reply(answer: Answer) -> Result<Reply, Refusal> {
    match answer {
        Answer::Granted { token, waited_ms } => {
            Ok(Reply::List(vec![Reply::Integer(token.get()), Reply::Integer(waited_ms)]))
        }
        Answer::Turn => Ok(Reply::Integer(1)),
        Answer::InVain(want) => Ok(in_vain(want)),
        Answer::Refused(refusal) => Err(refusal),
    }
}

/// What is told to one who did not get what it waited for.
pub fn in_vain(want: Want) -> Reply {
    match want {
        Want::Lock { .. } => Reply::Null,
        Want::Turn => Reply::Integer(0),
    }
}

/// What becomes of clients whose wait the server ends. Only memory changes here.
struct Clients;

impl BlockedClients for Clients {
    fn unblocked(client: u64) -> Result<Reply, Refusal> {
        Ok(leave(client).map_or(Reply::Null, in_vain))
    }

    fn gone(client: u64) {
        leave(client);
    }
}

/// The client's request leaves the queue, and its handle goes back to the server.
fn leave(client: u64) -> Option<Want> {
    let id = WaiterId(client);
    if let Some(blocked) = BLOCKED.with_borrow_mut(|all| all.remove(&id)) {
        blocked.give_back();
    }
    state::with(|node| node.waiting.leave(id)).map(|waiter| waiter.want)
}
