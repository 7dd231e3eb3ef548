//! Clients that watch a lock: connects the rules' watchers with the blocked clients of the server.

use palisade_core::engine::Key;
use palisade_core::request::Watch;
use palisade_core::{BootTime, Refusal, WaiterId};

use super::parked::{self, Reason};
use super::{askers, cluster, pass, sight};
use crate::ffi::{BlockedClients, Context, KeyName, LockKey, OtherType, Reply};
use crate::state;

/// Blocks the client of this command, if there is room for it. It is answered when the lock in `key` is not in the
/// state that it knows, or when its time is over.
pub fn block(ctx: Context<'_>, key: &LockKey<'_>, ask: &Watch, now: BootTime) -> Result<(), Refusal> {
    let asker = askers::asker(ctx, None)?;
    let name = key.name();
    let at = Key { db: ctx.db(), name: name.bytes() };
    state::with(|node| node.ensure_may_watch(at, asker))?;
    let id = parked::park::<Watchers>(ctx, Watch::SPEC.name, Reason::Watches);
    state::with(|node| node.add_watcher(at, (id, asker), key.lock(), ask, now));
    Ok(())
}

/// Answers the watchers of the lock in `key` that know another state than the present one, as many as may be answered
/// in one pass of the event loop. If more are left, the lock is checked again.
pub fn answer(ctx: Context<'_>, key: &LockKey<'_>, now: BootTime) {
    let name = key.name();
    let (at, count) = (Key { db: ctx.db(), name: name.bytes() }, pass::answers_left());
    let told = state::with(|node| {
        let told = node.take_outdated(at, key.lock(), count, now);
        let sight = (!told.is_empty()).then(|| Reply::Map(sight::fields(key.lock(), at, node, now)));
        sight.map(|sight| (told, sight))
    });
    let Some((told, sight)) = told else { return };
    for id in told {
        parked::answer(
            id,
            |parked| if parked.is_permitted(at.db, name) { Ok(sight.clone()) } else { Err(Refusal::Forbidden) },
        );
    }
}

/// Does the work for watchers that has been due longest: answers one whose time is over, or checks a lock. Returns
/// false if nothing is due. Writes no key.
pub fn do_due_work(ctx: Context<'_>, now: BootTime) -> bool {
    if let Some(id) = state::with(|node| node.take_watcher_timed_out(now)) {
        parked::answer(id, |_| Ok(Reply::Null));
        return true;
    }
    let Some((db, name)) = state::with(|node| node.take_watch_due(now)) else { return false };
    ctx.select(db);
    let at = Key { db, name: &name };
    KeyName::with(&name, |name| match LockKey::read(ctx, name) {
        Ok(key) => match elsewhere(ctx, &key) {
            None => answer(ctx, &key, now),
            Some(error) => dismiss(at, || Ok(Reply::Error(error.clone()))),
        },
        Err(OtherType) => dismiss(at, || Err(Refusal::WrongType)),
    });
    true
}

/// Returns the error for watchers of a lock that another node may serve: in a cluster its slot may have moved away with
/// the lock. `None` if it is served here.
fn elsewhere(ctx: Context<'_>, key: &LockKey<'_>) -> Option<String> {
    if !ctx.is_cluster() || key.lock().is_some() {
        return None;
    }
    // Whether a replica may answer is decided by the server, so the client is to ask again.
    if ctx.is_master() { cluster::redirect(ctx, key.name()) } else { Some(ASK_AGAIN.to_owned()) }
}

/// The error for a watcher on a cluster's replica that no longer has the lock, or its slot.
const ASK_AGAIN: &str = "TRYAGAIN the lock, or its slot, left this replica: ask again";

fn dismiss(key: Key<'_>, told: impl Fn() -> Result<Reply, Refusal>) {
    for id in state::with(|node| node.dismiss_watchers(key, pass::answers_left())) {
        parked::answer(id, |_| told());
    }
}

/// The handler for blocked clients that watch a lock, when the server itself ends their wait. Only memory changes here.
struct Watchers;

impl BlockedClients for Watchers {
    fn answer_unblocked(client: WaiterId) -> Result<Reply, Refusal> {
        Self::on_gone(client);
        Ok(Reply::Null)
    }

    fn on_gone(client: WaiterId) {
        state::with(|node| node.stop_watching(client));
        parked::give_back(client);
    }
}
