//! Connects the rules' listeners, which receive the answers to waiting requests of other connections, with the clients
//! of the server.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use palisade_core::engine::Request;
use palisade_core::request::{Hear, ListenerName, Patience, Wait};
use palisade_core::{Answer, BootTime, ClientId, News, NewsBody, Refusal, WaiterId};

use super::parked::{self, Reason};
use super::{askers, pass};
use crate::ffi::{BlockedClients, Context, KeyName, Reply, User, in_next_pass};
use crate::{clock, state};

/// The number of listeners whose connection is checked at a time: of idle ones ten times a second, of those whose wait
/// ended in each pass. The server looks each up in a tree of its clients; a thousand take about a tenth of a
/// millisecond, and two milliseconds if all have ended.
const CHECKED_MAX: usize = 1_000;

thread_local! {
    /// For each listener, the user of its connection, whose permissions count for the listener's requests.
    static USERS: RefCell<HashMap<ClientId, User>> = RefCell::new(HashMap::new());
    /// Listeners whose wait for news the server ended. Most of these connections are closed.
    static PERHAPS_GONE: RefCell<Vec<ClientId>> = const { RefCell::new(vec![]) };
    /// The last idle listener (one that does not wait for news) whose connection was checked.
    static LOOKED_AT: Cell<ClientId> = const { Cell::new(ClientId(0)) };
}

/// Returns the answers for the client of this command, which listens under `name`. If there are none, blocks the client
/// until there are.
pub fn hear(ctx: Context<'_>, name: ListenerName<'_>, patience: Patience) -> Result<Reply, Refusal> {
    let client = ctx.connection().ok_or(Refusal::ListensNowhere)?;
    let user = User::of_client(ctx).ok_or(Refusal::ListensNowhere)?;
    let news = state::with(|node| node.listen(client, name, user.name(), || askers::ensure_memory(ctx)))?;
    USERS.with_borrow_mut(|all| all.insert(client, user));
    if !news.is_empty() || patience == Patience::NONE {
        return Ok(list(news));
    }
    let id = parked::park::<Hearers>(ctx, Hear::SPEC.name, Reason::Hears(client));
    let until = clock::boot_now().plus_ms(patience.ms());
    state::with(|node| node.listeners_mut().add_wait(client, id, until));
    Ok(Reply::Later)
}

/// Returns the connection that listens under `name`. Refuses unless its user is that of this command's client.
pub fn named(ctx: Context<'_>, name: ListenerName<'_>) -> Result<ClientId, Refusal> {
    // The server crashes when it is asked for the user of a command that another module sends, or a script of its.
    ctx.connection().ok_or(Refusal::NoListener)?;
    let user = User::of_client(ctx).ok_or(Refusal::NoListener)?;
    state::with(|node| node.listeners().find(name, user.name()))
}

/// Begins a waiting `request` for the lock `name` whose answer `listener` receives. Returns the request's id.
pub fn begin(listener: ClientId, name: KeyName<'_>, request: &Request<'_>) -> Option<WaiterId> {
    let Request::Wait(ask) = request else { return None };
    state::with(|node| node.listeners_mut().begin(listener, name.bytes(), ask.owner))
}

/// Returns whether the user of the request with this id still has permission for the lock `name` of this database; false
/// if the listener ended.
pub fn is_permitted(id: WaiterId, db: u32, name: KeyName<'_>) -> bool {
    let listener = state::with(|node| node.listeners().listener_of(id));
    let may_run =
        |client| USERS.with_borrow(|all| all.get(&client).is_some_and(|user| user.may_run(Wait::SPEC.name, db, name)));
    listener.is_some_and(may_run)
}

/// Adds the outcome of the request `id` to the news of its listener, which [`send_news`] sends.
pub fn add_news(id: WaiterId, told: NewsBody) {
    state::with(|node| node.listeners_mut().add_news(id, told));
}

/// Answers each listener that waits in LOCK.HEAR and has news, with its news.
pub fn send_news() {
    while let Some((id, news)) = state::with(|node| node.listeners_mut().take_ready()) {
        parked::answer(id, |_| Ok(list(news)));
    }
}

/// Answers that there is no news to the listener whose time to wait ended first. Returns false if no listener's time is
/// over.
pub fn time_out(now: BootTime) -> bool {
    let Some(id) = state::with(|node| node.listeners_mut().take_timed_out(now)) else { return false };
    parked::answer(id, |_| Ok(list(vec![])));
    true
}

/// Looks for listeners whose connection was closed while they did not wait for news. Called in the server's cron.
pub fn end_idle_closed(ctx: Context<'_>) {
    let idle = state::with(|node| node.listeners().idle_after(LOOKED_AT.get(), CHECKED_MAX));
    for &client in &idle {
        LOOKED_AT.set(client);
        end_if_closed(ctx, client);
    }
}

/// Checks the connections of listeners whose wait the server ended, and ends the listeners whose connection is closed.
fn end_gone(ctx: Context<'_>) {
    let gone = PERHAPS_GONE.with_borrow_mut(|all| all.split_off(all.len().saturating_sub(CHECKED_MAX)));
    gone.into_iter().for_each(|client| end_if_closed(ctx, client));
    if PERHAPS_GONE.with_borrow(|all| !all.is_empty()) {
        in_next_pass(end_gone);
    }
    // Their requests leave the queues with the timer's work, in slices.
    pass::work_is_due();
}

fn end_if_closed(ctx: Context<'_>, client: ClientId) {
    if !ctx.is_open(client) {
        USERS.with_borrow_mut(|all| all.remove(&client));
        state::with(|node| node.listeners_mut().end(client));
    }
}

fn list(news: Vec<News>) -> Reply {
    let one = |News { key, owner, told }| {
        let told = match told {
            NewsBody::Answer(Answer::Turn(number) | Answer::Granted { number, .. }) => Reply::Integer(number.into()),
            NewsBody::Answer(Answer::Broken(token)) => Reply::Integer(token.get()),
            NewsBody::Answer(Answer::TimedOut(_)) => Reply::Integer(0),
            // An error goes as text, because clients would take an error inside an array for the whole reply.
            NewsBody::Answer(Answer::Refused(refusal)) => Reply::Bytes(refusal.to_string().into_bytes()),
            NewsBody::Error(error) => Reply::Bytes(error.into_string().into_bytes()),
        };
        Reply::List(vec![Reply::Bytes(key.into_vec()), Reply::Bytes(owner.into_vec()), told])
    };
    Reply::List(news.into_iter().map(one).collect())
}

/// The handler for blocked listeners, when the server itself ends their wait. Only memory changes here.
struct Hearers;

impl BlockedClients for Hearers {
    fn answer_unblocked(blocked: WaiterId) -> Result<Reply, Refusal> {
        stops_asking(blocked);
        Ok(list(vec![]))
    }

    fn on_gone(blocked: WaiterId) {
        if let Some(client) = stops_asking(blocked) {
            // The connection may still be open, if an operator ended the wait with an error. One that is being closed
            // looks open too, so it is checked later.
            let is_planned = PERHAPS_GONE.with_borrow_mut(|all| {
                all.push(client);
                all.len() > 1
            });
            if !is_planned {
                in_next_pass(end_gone);
            }
        }
    }
}

/// Notes that the listener blocked under the id `blocked` no longer waits for news. Returns its connection.
fn stops_asking(blocked: WaiterId) -> Option<ClientId> {
    let Reason::Hears(client) = parked::give_back(blocked)? else { return None };
    state::with(|node| node.listeners_mut().remove_wait(client));
    Some(client)
}
