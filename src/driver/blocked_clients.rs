//! Clients that wait for a lock: connects the queues of the rules with the server's blocked clients.

use std::ffi::CStr;

use palisade_core::engine::{Key, Reply as AtOnce, Request};
use palisade_core::request::{Acquire, Break, Form, Wait};
use palisade_core::{Answer, BootTime, ClientId, KeepAlive, NewsBody, Refusal, Token, WaiterId, Want};

use super::parked::{self, Keeps, Reason};
use super::{listeners, pass};
use crate::ffi::{BlockedClients, Context, KeyName, LockKey, Reply};
use crate::{clock, state};

/// All that the answer to a command depends on beside its request: form, KEEPALIVE and listener.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The form of the reply to a grant.
    pub form: Form,
    /// The KEEPALIVE that begins when the lock is granted, if the request asks for one.
    pub keepalive: Option<KeepAlive>,
    /// The listener that receives the answer if the request has to wait. Without one the client is blocked.
    pub listener: Option<ClientId>,
}

impl From<Form> for Asker {
    fn from(form: Form) -> Self {
        Self { form, keepalive: None, listener: None }
    }
}

/// The error for clients that wait on a master when it becomes a replica. The server itself uses this text.
const DEMOTED: &str = "UNBLOCKED this node became a replica: ask its master";

/// The answer to a LOCK.WAIT whose result a listener will receive. It is a simple string, which no result of a wait is.
const WAITING: &CStr = c"WAITING";

/// Blocks the client of this command until its request is answered, unless it has a listener. Returns the request's id.
pub fn block(ctx: Context<'_>, name: KeyName<'_>, request: &Request<'_>, asker: Asker) -> WaiterId {
    if let Some(id) = asker.listener.and_then(|listener| listeners::begin(listener, name, request)) {
        return id;
    }
    let command = match request {
        Request::Wait(_) => Wait::SPEC.name,
        Request::Break(_) => Break::SPEC.name,
        _ => Acquire::SPEC.name,
    };
    let keeps = Keeps::new(ctx.db(), name, request, asker.keepalive).map(Box::new);
    parked::park::<Clients>(ctx, command, Reason::Waits(asker.form, keeps))
}

/// Begins a KEEPALIVE if the client of this command is answered with a grant at once.
pub fn keep_alive_at_once(
    ctx: Context<'_>,
    key: &LockKey<'_>,
    request: &Request<'_>,
    answer: &Result<AtOnce, Refusal>,
    asker: &Asker,
) {
    let (Ok(AtOnce::Granted(..)), Request::Acquire(ask), Some(lock)) = (answer, request, key.lock()) else { return };
    if let Some(own) = lock.find(ask.owner) {
        let keeps = Keeps::new(ctx.db(), key.name(), request, asker.keepalive);
        keeps.iter().for_each(|keeps| keeps.begin(lock.grant(own).granted()));
    }
}

/// Sends the rules' answers to waiting clients, as many as may be answered in one pass of the event loop. [`has_more`]
/// says whether others are left.
pub fn deliver() {
    for (id, answer) in state::with(|node| node.take_answers(pass::answers_left())) {
        if id.is_heard() {
            listeners::add_news(id, NewsBody::Answer(answer));
        } else {
            parked::answer(id, |parked| waiter_reply(&parked.why, answer));
        }
    }
    listeners::send_news();
}

/// Returns the reply to a waiting client. If it is a grant, its KEEPALIVE begins now.
fn waiter_reply(why: &Reason, answer: Answer) -> Result<Reply, Refusal> {
    let Reason::Waits(form, keeps) = why else { return Ok(Reply::Null) };
    if let (Answer::Granted { granted, .. }, Some(keeps)) = (&answer, keeps) {
        keeps.begin(*granted);
    }
    reply(answer, *form)
}

/// Returns whether answers are left for the next pass of the event loop.
pub fn has_more() -> bool {
    state::with(|node| node.waiting().has_answers() || node.waiting().is_dismissing())
}

/// Answers requests that wait for the lock of `key` with an error of the server's own, as many as may be answered in
/// one pass. For the others the node checks the queue again in the next pass.
pub fn dismiss(key: Key<'_>, error: &str) {
    for id in state::with(|node| node.dismiss(key, pass::answers_left(), clock::boot_now())) {
        answer_error(id, error);
    }
    listeners::send_news();
}

/// Returns whether the user of a waiting client still has permission for the lock `name` of this database: ACL rules may
/// have changed since the request arrived.
pub fn is_permitted(id: WaiterId, db: u32, name: KeyName<'_>) -> bool {
    if id.is_heard() {
        return listeners::is_permitted(id, db, name);
    }
    parked::is_permitted(id, db, name)
}

/// Dismisses all waiting requests, because the node became a replica and grants nothing any more. Most servers end all
/// waits themselves before this event. A Valkey in a cluster does not, and neither does a Valkey for clients that it
/// can redirect. The requests are answered from the next pass of the event loop on, as many in each pass as there is
/// time for.
pub fn dismiss_all() {
    state::with(|node| node.dismiss_all());
}

/// Answers one of the requests that [`dismiss_all`] dismissed; returns false if none is left.
pub fn dismiss_next(now: BootTime) -> bool {
    let Some(gone) = state::with(|node| node.dismiss_next(now)) else { return false };
    gone.into_iter().for_each(|id| answer_error(id, DEMOTED));
    true
}

/// Answers a waiting request with an error of the server's own.
fn answer_error(id: WaiterId, error: &str) {
    if id.is_heard() {
        listeners::add_news(id, NewsBody::Error(error.into()));
    } else {
        parked::answer(id, |_| Ok(Reply::Error(error.to_owned())));
    }
}

/// Returns the reply to a command that is answered at once.
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
        Answer::Granted { token, number, waited_ms, .. } => Ok(granted(token, number, waited_ms, form)),
        Answer::Turn(number) => Ok(Reply::Integer(number.into())),
        Answer::Broken(token) => Ok(Reply::Integer(token.get())),
        Answer::TimedOut(want) => Ok(failed_wait_reply(want)),
        Answer::Refused(refusal) => Err(refusal),
    }
}

/// Returns the reply for a grant, in the form that the request asked for.
fn granted(token: Token, number: u16, waited_ms: u64, form: Form) -> Reply {
    let token = Reply::Integer(token.get());
    match form {
        Form::Token => token,
        Form::TokenAndWait => Reply::List(vec![token, Reply::Integer(waited_ms)]),
        Form::Permit => Reply::List(vec![token, Reply::Integer(waited_ms), Reply::Integer(number.into())]),
    }
}

/// Returns the reply for a wait that failed: Null, or the integer 0 for a turn.
fn failed_wait_reply(want: Want) -> Reply {
    match want {
        Want::Lock { .. } => Reply::Null,
        Want::Turn => Reply::Integer(0),
    }
}

/// The handler for blocked clients that wait for a lock, when the server itself ends their wait. Only memory changes
/// here.
struct Clients;

impl BlockedClients for Clients {
    fn answer_unblocked(client: WaiterId) -> Result<Reply, Refusal> {
        // The rules may already have an answer for the client that has not been sent.
        let (answer, breaks) = state::with(|node| (node.take_answer_of(client), node.is_breaking(client)));
        let (why, want) = leave(client);
        match answer {
            Some(answer) => why.map_or(Ok(Reply::Null), |why| waiter_reply(&why, answer)),
            None if breaks => Err(Refusal::BreakGoesOn),
            None => Ok(want.map_or(Reply::Null, failed_wait_reply)),
        }
    }

    fn on_gone(client: WaiterId) {
        leave(client);
    }
}

/// Removes the client's request from the queue, and the client from the registry. Returns why it was blocked, and what
/// its request wanted. The lock may now pass to the next request.
fn leave(client: WaiterId) -> (Option<Reason>, Option<Want>) {
    let why = parked::give_back(client);
    pass::work_is_due();
    (why, state::with(|node| node.leave_queue(client, clock::boot_now())).map(|waiter| waiter.want))
}
