//! Clients that wait for a lock: between the queues of the rules and the blocked clients of the server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;

use palisade_core::engine::{Key, Reply as AtOnce, Request};
use palisade_core::request::{Acquire, Break, Form, Owner, Ttl, Wait};
use palisade_core::{Answer, BootTime, ClientId, KeepAlive, Refusal, Token, Told, WaiterId, Want};

use super::{listeners, pass};
use crate::ffi::{Blocked, BlockedClients, Context, KeyName, Reply};
use crate::{clock, state};

thread_local! {
    /// Every client that waits, by the name its request has in the queues.
    static BLOCKED: RefCell<HashMap<WaiterId, Waits>> = RefCell::new(HashMap::new());
}

/// The client of a command, and what it is told of its grant.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// How it is told.
    pub form: Form,
    /// Its lease is kept from then on.
    pub keepalive: Option<KeepAlive>,
    /// If it has to wait, this listener hears what came of it, and it is not blocked.
    pub listener: Option<ClientId>,
}

impl From<Form> for Asker {
    fn from(form: Form) -> Self {
        Self { form, keepalive: None, listener: None }
    }
}

/// A client that waits.
struct Waits {
    blocked: Blocked,
    form: Form,
    /// Boxed: few have one.
    keeps: Option<Box<Keeps>>,
}

/// What is kept when a client is told of its grant.
struct Keeps {
    db: u32,
    name: Box<[u8]>,
    owner: Box<[u8]>,
    ttl: Ttl,
    keepalive: KeepAlive,
}

impl Keeps {
    fn new(db: u32, name: KeyName<'_>, request: &Request<'_>, asker: Asker) -> Option<Self> {
        match (request, asker.keepalive) {
            (Request::Acquire(Acquire { owner, ttl, .. }), Some(keepalive)) => {
                Some(Self { db, name: name.bytes().into(), owner: owner.bytes().into(), ttl: *ttl, keepalive })
            }
            _ => None,
        }
    }

    /// Its client is told now.
    fn begin(&self) {
        let key = Key { db: self.db, name: &self.name };
        // An owner when it came.
        let Ok(owner) = Owner::new(&self.owner) else { return };
        state::with(|node| node.keep_alive(key, owner, self.ttl, self.keepalive, clock::boot_now()));
    }
}

/// What is told to those who wait on a master that becomes a replica, as the server itself tells it.
const DEMOTED: &str = "UNBLOCKED this node became a replica: ask its master";

/// What a client is told whose request waits while a listener hears for it: no answer to a wait is a simple string.
const WAITING: &CStr = c"WAITING";

/// Blocks the client of this command until its request is answered, unless a listener hears that. The name under which that is.
pub fn block(ctx: Context<'_>, name: KeyName<'_>, request: &Request<'_>, asker: Asker) -> WaiterId {
    if let Some(id) = asker.listener.and_then(|listener| listeners::begin(listener, name, request)) {
        return id;
    }
    let command = match request {
        Request::Wait(_) => Wait::SPEC.name,
        Request::Break(_) => Break::SPEC.name,
        _ => Acquire::SPEC.name,
    };
    let blocked = Blocked::new::<Clients>(ctx, command);
    let id = WaiterId(blocked.id());
    let keeps = Keeps::new(ctx.db(), name, request, asker).map(Box::new);
    BLOCKED.with_borrow_mut(|all| all.insert(id, Waits { blocked, form: asker.form, keeps }));
    id
}

/// The client of this command is answered at once: if it is told of a grant to be kept, that begins now.
pub fn keep_alive_at_once(
    ctx: Context<'_>,
    name: KeyName<'_>,
    request: &Request<'_>,
    answer: &Result<AtOnce, Refusal>,
    asker: &Asker,
) {
    if matches!(answer, Ok(AtOnce::Granted(..))) {
        Keeps::new(ctx.db(), name, request, *asker).iter().for_each(Keeps::begin);
    }
}

/// Sends what the rules decided to those who waited: as many as may be answered in this pass of the event loop, the others in
/// the next ones ([`has_more`]).
pub fn deliver() {
    for (id, answer) in state::with(|node| node.take_answers(pass::answers_left())) {
        if id.is_heard() {
            listeners::tell(id, Told::Answer(answer));
            continue;
        }
        keep_alive(id, &answer);
        send(id, |form| reply(answer, form));
    }
    listeners::tell_all();
}

/// A client that waited is told this: if it is of a grant to be kept, that begins now.
fn keep_alive(id: WaiterId, answer: &Answer) {
    if matches!(answer, Answer::Granted { .. }) {
        BLOCKED.with_borrow(|all| all.get(&id).and_then(|waits| waits.keeps.as_deref()).map(Keeps::begin));
    }
}

/// Whether some wait for the next pass to be answered.
pub fn has_more() -> bool {
    state::with(|node| node.waiting().has_answers() || node.waiting().sends_away())
}

/// Answers those who wait for the lock of `key` with an error of the server's own: as many as may be answered in this
/// pass. The queue of the others is looked at in the next.
pub fn dismiss(key: Key<'_>, error: &str) {
    for id in state::with(|node| node.dismiss(key, pass::answers_left(), clock::boot_now())) {
        if id.is_heard() {
            listeners::tell(id, Told::Error(error.into()));
        } else {
            send(id, |_| Ok(Reply::Error(error.to_owned())));
        }
    }
    listeners::tell_all();
}

/// Whether the user of a client that waits may still have the lock `name`: rules of access may have changed since it came.
pub fn is_permitted(id: WaiterId, name: KeyName<'_>) -> bool {
    if id.is_heard() {
        return listeners::is_permitted(id, name);
    }
    BLOCKED.with_borrow(|all| all.get(&id).is_none_or(|waits| waits.blocked.is_permitted(name)))
}

/// The node became a replica: it grants nobody anything, so nobody waits here. Most servers end all waits themselves before
/// they tell; a Valkey in a cluster, or one whose client can be redirected, does not. They leave their queues and are told from the next
/// pass of the event loop on, as many in each as there is time for.
pub fn dismiss_all() {
    state::with(|node| node.send_all_away());
}

/// Tells one of those who waited when the node became a replica; `false` if there is none.
pub fn send_one_away(now: BootTime) -> bool {
    let Some(gone) = state::with(|node| node.send_one_away(now)) else { return false };
    match gone {
        Some(id) if id.is_heard() => listeners::tell(id, Told::Error(DEMOTED.into())),
        Some(id) => send(id, |_| Ok(Reply::Error(DEMOTED.to_owned()))),
        None => {}
    }
    true
}

fn send(id: WaiterId, told: impl FnOnce(Form) -> Result<Reply, Refusal>) {
    if let Some(Waits { blocked, form, .. }) = BLOCKED.with_borrow_mut(|all| all.remove(&id)) {
        pass::answer(blocked, told(form));
    }
}

/// How a command is answered.
#[inline(always)]
pub fn reply_at_once(answer: &AtOnce, asker: &Asker) -> Reply {
    match answer {
        AtOnce::Token(token) => Reply::Integer(token.get()),
        AtOnce::Granted(token, _) if asker.form == Form::Token => Reply::Integer(token.get()),
        AtOnce::Granted(token, number) => granted(*token, *number, 0, asker.form),
        AtOnce::Holds(holds) => Reply::Integer(u64::from(*holds)),
        AtOnce::Turn(number) => Reply::Integer(u64::from(*number)),
        AtOnce::Noted(number) => Reply::Integer(number.get()),
        AtOnce::Null => Reply::Null,
        AtOnce::Later if asker.listener.is_some() => Reply::Simple(WAITING),
        AtOnce::Later => Reply::Later,
    }
}

fn reply(answer: Answer, form: Form) -> Result<Reply, Refusal> {
    match answer {
        Answer::Granted { token, number, waited_ms } => Ok(granted(token, number, waited_ms, form)),
        Answer::Turn(number) => Ok(Reply::Integer(number.into())),
        Answer::Broken(token) => Ok(Reply::Integer(token.get())),
        Answer::TimedOut(want) => Ok(in_vain(want)),
        Answer::Refused(refusal) => Err(refusal),
    }
}

/// How a grant is told.
fn granted(token: Token, number: u16, waited_ms: u64, form: Form) -> Reply {
    let token = Reply::Integer(token.get());
    match form {
        Form::Token => token,
        Form::TokenAndWait => Reply::List(vec![token, Reply::Integer(waited_ms)]),
        Form::Permit => Reply::List(vec![token, Reply::Integer(waited_ms), Reply::Integer(number.into())]),
    }
}

/// What is told to one who did not get what it waited for.
fn in_vain(want: Want) -> Reply {
    match want {
        Want::Lock { .. } => Reply::Null,
        Want::Turn => Reply::Integer(0),
    }
}

/// What becomes of clients whose wait the server ends. Only memory changes here.
struct Clients;

impl BlockedClients for Clients {
    fn unblocked(client: u64) -> Result<Reply, Refusal> {
        // It may have its answer already, and only not have been sent it.
        let answer = state::with(|node| node.take_answer_of(WaiterId(client)));
        if let Some(answer) = &answer {
            keep_alive(WaiterId(client), answer);
        }
        let (want, form) = leave(client);
        match answer {
            Some(answer) => reply(answer, form.unwrap_or(Form::Token)),
            None if state::with(|node| node.is_breaking(WaiterId(client))) => Err(Refusal::BreakGoesOn),
            None => Ok(want.map_or(Reply::Null, in_vain)),
        }
    }

    fn gone(client: u64) {
        leave(client);
    }
}

/// The client's request leaves the queue, and its handle goes back to the server.
fn leave(client: u64) -> (Option<Want>, Option<Form>) {
    let id = WaiterId(client);
    let form = BLOCKED.with_borrow_mut(|all| all.remove(&id)).map(|Waits { blocked, form, .. }| {
        blocked.give_back();
        form
    });
    (state::with(|node| node.leave_queue(id, clock::boot_now())).map(|waiter| waiter.want), form)
}
