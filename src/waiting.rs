//! Clients that wait for a lock: between the queues of the rules and the blocked clients of the server.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use palisade_core::limits::{ANSWERS_A_PASS_MAX, DISK_WAIT_MS};
use palisade_core::request::{Note, Owner, Patience, Ticket};
use palisade_core::{Answer, BootTime, Now, Refusal, Token, Waiter, WaiterId, Want};

use crate::commands::{Acquire, Wait};
use crate::ffi::{Blocked, BlockedClients, Command, Context, KeyName, LockKey, NotALock, Reply};
use crate::hand_over::{self, Cause};
use crate::{alarm, clock, state};

thread_local! {
    /// Every client that waits, by the name its request has in the queues.
    static BLOCKED: RefCell<HashMap<WaiterId, (Blocked, Form)>> = RefCell::new(HashMap::new());
    /// Those who waited when the node became a replica and are not told yet: in no queue any more.
    static LEAVING: RefCell<BTreeMap<WaiterId, Blocked>> = const { RefCell::new(BTreeMap::new()) };
    /// So many may still be answered in this pass of the event loop.
    static MAY_ANSWER: Cell<usize> = const { Cell::new(ANSWERS_A_PASS_MAX) };
    /// The most that were answered in one pass.
    static MOST_ANSWERED: Cell<usize> = const { Cell::new(0) };
}

/// How a grant is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The token alone.
    Token,
    /// The token, and how long it was waited for.
    TokenAndWait,
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
    /// How it is told of its grant.
    pub form: Form,
}

/// Blocks the client of this command until the lock of `key` is its own, or whatever comes of it.
pub fn join(ctx: Context<'_>, key: &LockKey<'_>, joins: Joins<'_>, now: Now) -> Reply {
    let held_by_another = key.lock().is_some_and(|lock| !lock.is_expired(now.boot) && !lock.is_of(joins.owner));
    let ms = joins.patience.ms();
    // Free or its own, and yet it has to wait: nothing happens to the key that would bring its turn about.
    enter(ctx, key, joins, now, !held_by_another, |id, Joins { owner, note, want, .. }| {
        Waiter::new(id, owner, note, want, now.boot, ms)
    })
}

/// Blocks the client of this command, which does not want to wait for anybody, while the node's state file is in its way.
pub fn join_for_disk(ctx: Context<'_>, key: &LockKey<'_>, joins: Joins<'_>, now: Now) -> Reply {
    enter(ctx, key, joins, now, true, |id, Joins { owner, note, want, .. }| {
        Waiter::new(id, owner, note, want, now.boot, DISK_WAIT_MS).at_once()
    })
}

fn enter<'a>(
    ctx: Context<'_>,
    key: &LockKey<'_>,
    joins: Joins<'a>,
    now: Now,
    is_to_be_looked_at: bool,
    waiter: impl FnOnce(WaiterId, Joins<'a>) -> Waiter,
) -> Reply {
    let (db, name) = (ctx.db(), key.name().bytes());
    let command = match joins.want {
        Want::Lock { .. } => Acquire::SPEC.name,
        Want::Turn => Wait::SPEC.name,
    };
    let blocked = Blocked::new::<Clients>(ctx, command);
    let id = WaiterId(blocked.id());
    BLOCKED.with_borrow_mut(|all| all.insert(id, (blocked, joins.form)));
    let ticket = joins.ticket;
    let waiter = waiter(id, joins);
    state::with(|node| {
        node.waiting.join(db, name, waiter, ticket);
        if is_to_be_looked_at {
            node.waiting.look_at(db, name, now.boot);
        }
    });
    alarm::arm(ctx);
    Reply::Later
}

/// Sends what the rules decided to those who waited: as many as may be answered in this pass of the event loop, the others in
/// the next ones. Each costs the server more than it costs the rules, and it does that work in one go.
pub fn deliver(ctx: Context<'_>) {
    let (answers, more) = state::with(|node| (node.waiting.take_answers(MAY_ANSWER.get()), node.waiting.has_answers()));
    for (id, answer) in answers {
        send(id, |form| reply(answer, form));
    }
    if more {
        alarm::arm(ctx);
    }
}

/// A new pass of the event loop.
pub fn new_pass() {
    MAY_ANSWER.set(ANSWERS_A_PASS_MAX);
}

/// Whether anybody may still be answered in this pass.
pub fn may_answer() -> bool {
    MAY_ANSWER.get() > 0
}

/// Whether some wait for the next pass to be answered.
pub fn has_more() -> bool {
    state::with(|node| node.waiting.has_answers()) || LEAVING.with_borrow(|leaving| !leaving.is_empty())
}

/// The most clients that were answered in one pass of the event loop, since load.
pub fn most_answered() -> usize {
    MOST_ANSWERED.get()
}

/// Answers those who wait for the lock `name` of `db` with an error of the server's own: as many as may be answered in this
/// pass. The queue of the others is looked at in the next.
pub fn dismiss(db: u32, name: &[u8], error: &str) {
    for id in state::with(|node| node.waiting.dismiss(db, name, MAY_ANSWER.get())) {
        send(id, |_| Ok(Reply::Error(error.to_owned())));
    }
}

/// Answers those before the first in the queue of `key` whose user may still have it: rules may have changed since they came.
/// `false`: they are more than may be answered in this pass, and the queue is looked at again in the next.
pub fn dismiss_forbidden(ctx: Context<'_>, key: KeyName<'_>, now: BootTime) -> bool {
    let (db, name) = (ctx.db(), key.bytes());
    while let Some(id) = state::with(|node| node.waiting.of(db, name).next().map(|first| first.id)) {
        if BLOCKED.with_borrow(|all| all.get(&id).is_none_or(|(blocked, _)| blocked.is_permitted(key))) {
            return true;
        }
        if MAY_ANSWER.get() == 0 {
            state::with(|node| node.waiting.look_at(db, name, now));
            return false;
        }
        state::with(|node| node.waiting.leave(id));
        send(id, |_| Ok(Reply::Error(FORBIDDEN.to_owned())));
    }
    true
}

/// The node became a replica: it grants nobody anything, so nobody waits here. Most servers end all waits themselves before
/// they tell; a Valkey in a cluster, or one whose client can be redirected, does not. They leave their queues at once, whatever
/// comes next, and are told from the next pass of the event loop on, as many in each as may be answered.
pub fn dismiss_all(ctx: Context<'_>) {
    let all = BLOCKED.take();
    if all.is_empty() {
        return;
    }
    state::with(|node| all.keys().for_each(|id| drop(node.waiting.leave(*id))));
    LEAVING.with_borrow_mut(|leaving| leaving.extend(all.into_iter().map(|(id, (blocked, _))| (id, blocked))));
    alarm::go_on_soon(ctx);
}

/// Tells one of those who waited when the node became a replica; `false` if there is none.
pub fn send_one_away() -> bool {
    let Some((_, blocked)) = LEAVING.with_borrow_mut(BTreeMap::pop_first) else { return false };
    answer(blocked, Ok(Reply::Error(DEMOTED.to_owned())));
    true
}

fn send(id: WaiterId, told: impl FnOnce(Form) -> Result<Reply, Refusal>) {
    if let Some((blocked, form)) = BLOCKED.with_borrow_mut(|all| all.remove(&id)) {
        answer(blocked, told(form));
    }
}

fn answer(blocked: Blocked, told: Result<Reply, Refusal>) {
    blocked.answer(told);
    MAY_ANSWER.set(MAY_ANSWER.get().saturating_sub(1));
    MOST_ANSWERED.set(MOST_ANSWERED.get().max(ANSWERS_A_PASS_MAX - MAY_ANSWER.get()));
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

fn reply(answer: Answer, form: Form) -> Result<Reply, Refusal> {
    match answer {
        Answer::Granted { token, waited_ms } => Ok(granted(token, waited_ms, form)),
        Answer::Turn => Ok(Reply::Integer(1)),
        Answer::InVain(want) => Ok(in_vain(want)),
        Answer::Refused(refusal) => Err(refusal),
    }
}

/// How a grant is told.
pub fn granted(token: Token, waited_ms: u64, form: Form) -> Reply {
    match form {
        Form::Token => Reply::Integer(token.get()),
        Form::TokenAndWait => Reply::List(vec![Reply::Integer(token.get()), Reply::Integer(waited_ms)]),
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
        if has_left(client) {
            return Ok(Reply::Error(DEMOTED.to_owned()));
        }
        // It may have its answer already, and only not have been sent it.
        let answer = state::with(|node| node.waiting.take_answer_of(WaiterId(client)));
        let (want, form) = leave(client);
        match answer {
            Some(answer) => reply(answer, form.unwrap_or(Form::Token)),
            None => Ok(want.map_or(Reply::Null, in_vain)),
        }
    }

    fn gone(client: u64) {
        if !has_left(client) {
            leave(client);
        }
    }
}

/// The client was to be told that the node became a replica: its handle goes back to the server.
fn has_left(client: u64) -> bool {
    let blocked = LEAVING.with_borrow_mut(|leaving| leaving.remove(&WaiterId(client)));
    blocked.map(Blocked::give_back).is_some()
}

/// The client's request leaves the queue, and its handle goes back to the server.
fn leave(client: u64) -> (Option<Want>, Option<Form>) {
    let id = WaiterId(client);
    let form = BLOCKED.with_borrow_mut(|all| all.remove(&id)).map(|(blocked, form)| {
        blocked.give_back();
        form
    });
    (state::with(|node| node.waiting.leave(id)).map(|waiter| waiter.want), form)
}
