//! How a lock that got free reaches the first who waits for it, in the very step in which it got free.

use std::cell::Cell;
use std::ffi::CStr;

use palisade_core::{BootTime, HandedOver, Now, Refusal, hand_over};

use crate::ffi::{Context, LockKey, is_poisoned};
use crate::{alarm, clock, cluster, effects, life, state, waiting};

/// What a lock's end, or a look at its queue, comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A client's write command: the server has checked that writing is in order.
    Command,
    /// Time: nobody has.
    Itself,
}

/// For how long it stands whether enough replicas follow, in milliseconds. The server itself looks once a second.
const REPLICAS_STAND_MS: u64 = 100;

/// The lock of `key` ends, with `event`: it passes to the first who waits for it, or the key goes. The caller delivers
/// the answers.
pub fn end(ctx: Context<'_>, key: &mut LockKey<'_>, event: &'static CStr, cause: Cause, now: Now) {
    ctx.notify(event, key.name());
    if !has_queue(ctx, key) {
        return effects::freed(ctx, key);
    }
    if ctx.is_cluster() {
        // Whether the slot is still served here shows only for a key that is not there.
        effects::freed(ctx, key);
    }
    if !pass(ctx, key, true, cause, now) {
        effects::freed(ctx, key);
    }
    alarm::arm(ctx);
}

/// If `key` is free and somebody waits for its lock, it passes on. The caller delivers the answers.
pub fn serve(ctx: Context<'_>, key: &mut LockKey<'_>, cause: Cause, now: Now) {
    if !has_queue(ctx, key) {
        return;
    }
    if key.lock().is_some_and(|lock| lock.is_expired(now.boot)) {
        state::with(|node| node.counters.expiries += 1);
        return end(ctx, key, effects::EXPIRED, cause, now);
    }
    pass(ctx, key, false, cause, now);
    alarm::arm(ctx);
}

fn has_queue(ctx: Context<'_>, key: &LockKey<'_>) -> bool {
    state::with(|node| node.waiting.has_queue(ctx.db(), key.name().bytes()))
}

/// Passes the lock to the first who waits, if it is free or has just `ended`; whether it did.
fn pass(ctx: Context<'_>, key: &mut LockKey<'_>, ended: bool, cause: Cause, now: Now) -> bool {
    let (db, name) = (ctx.db(), key.name().bytes());
    let is_free = ended || key.lock().is_none();
    if is_free {
        cluster::know(ctx, key.name());
    }
    if is_free
        && ctx.is_cluster()
        && let Some(redirect) = cluster::redirect(ctx, key.name())
    {
        waiting::dismiss(db, name, &redirect);
        return false;
    }
    if is_free && !waiting::dismiss_forbidden(ctx, key.name(), now.boot) {
        return false;
    }
    let somebody_waits = state::with(|node| node.waiting.len_of(db, name) > 0);
    let may_pass = if somebody_waits { may_pass(ctx, cause, now.boot) } else { Ok(()) };
    let passed = may_pass.and_then(|()| {
        life::with_tokens(now, |node| {
            let held = if ended { None } else { key.lock_mut() };
            hand_over(db, name, held, node, now)
        })
    });
    match passed {
        Ok(HandedOver::Granted(lock)) => {
            effects::granted(ctx, key, lock, effects::HANDED_OVER, now);
            true
        }
        Ok(HandedOver::Prolonged) => {
            effects::changed(ctx, key, now);
            ctx.notify(effects::EXTENDED, key.name());
            true
        }
        Ok(HandedOver::Free | HandedOver::Held) => false,
        Err(refusal) => {
            state::with(|node| node.waiting.put_off(db, name, refusal, now.boot));
            false
        }
    }
}

/// Refuses while this node may not grant.
fn may_pass(ctx: Context<'_>, cause: Cause, now: BootTime) -> Result<(), Refusal> {
    if is_poisoned() {
        return Err(Refusal::Poisoned);
    }
    life::ready(ctx)?;
    if cause == Cause::Itself && !enough_replicas(ctx, now) {
        // The server would refuse an ACQUIRE (NOREPLICAS), and it is this refusal that keeps a master that lost its
        // replicas from granting what its successor grants too.
        return Err(Refusal::NotYet);
    }
    Ok(())
}

/// As many replicas follow as min-replicas-to-write asks for.
fn enough_replicas(ctx: Context<'_>, now: BootTime) -> bool {
    thread_local! {
        static LOOKED: Cell<Option<(BootTime, bool)>> = const { Cell::new(None) };
    }
    if let Some((when, enough)) = LOOKED.get()
        && now.ms_since(when) < REPLICAS_STAND_MS
    {
        return enough;
    }
    // The field is there only if a number is asked for.
    let enough = ctx.info_number(c"replication", c"min_slaves_good_slaves").is_none_or(|good| {
        let needed = ctx.parameter(c"min-replicas-to-write").and_then(|needed| needed.parse().ok());
        needed.is_none_or(|needed: u64| good >= needed)
    });
    LOOKED.set(Some((clock::boot_now(), enough)));
    enough
}
