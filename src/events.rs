//! Handles the server's events about its databases, keys and role. No key is written here, so nothing goes to the AOF.

use std::cell::Cell;
use std::ffi::CStr;
use std::ops::RangeInclusive;

use palisade_core::ServerId;
use palisade_core::engine::Key;

use crate::driver::{blocked_clients, cluster, gates, grant_events, listeners, propagation, slot_sources, timer};
use crate::durability::{dropped_locks, incarnation, promotion, settings, start, tick};
use crate::ffi::{Arrival, BusEvents, Context, Events, Import, Job, KeyName, LockKey, SlotEvents, Source};
use crate::{clock, state};

/// The handlers of the server's events.
pub struct NodeEvents;

impl Events for NodeEvents {
    fn cron(ctx: Context<'_>) {
        clock::look_at_wall_clock();
        propagation::look(ctx);
        tick::tick(ctx);
        cluster::tick(ctx);
        listeners::look_after(ctx);
        timer::look_after(ctx);
    }

    fn forked(ctx: Context<'_>) {
        propagation::may_have_begun();
        incarnation::forked();
        // A replica may get the child's copy of the data, which does not show what grants have ended. The next message
        // to replicas does, so it is sent at once.
        promotion::tell_at_once(ctx);
    }

    fn loading(from: Source) {
        propagation::may_have_begun();
        LOADING.set(Some(from));
        if from == Source::Master {
            state::with(|node| node.become_replica());
        }
        start::loading(from);
    }

    fn loaded_all(ctx: Context<'_>, complete: bool) {
        LOADING.set(None);
        if complete {
            dropped_locks::reloaded(ctx);
        }
        start::decide(ctx);
    }

    fn replica_came(ctx: Context<'_>) {
        promotion::tell_at_once(ctx);
    }

    fn role(ctx: Context<'_>, is_master: bool) {
        propagation::may_have_begun();
        if is_master {
            // The former master's slots follow right after this event. The node is guarded as a whole, so these slots
            // need no guard of their own.
            state::with(|node| node.cover_slots());
        } else {
            blocked_clients::dismiss_all();
            // The next pass is needed even if nobody waits: it refuses a BREAK in progress.
            timer::go_on_soon(ctx);
        }
        promotion::role_changed(is_master);
    }

    fn configured(ctx: Context<'_>, names: &[&CStr]) {
        propagation::may_have_begun();
        settings::configured(ctx, names);
    }

    fn shutdown(ctx: Context<'_>) {
        start::end(ctx);
    }

    fn evicted(ctx: Context<'_>, name: KeyName<'_>) {
        dropped_locks::evicted(Key { db: ctx.db(), name: name.bytes() });
    }

    fn flush(ctx: Context<'_>, db: Option<u32>) {
        gates::flushed(db);
        let detached = state::with(|node| node.flush(db));
        if ctx.is_master() && LOADING.get().is_none() {
            dropped_locks::log_flushed(ctx, &detached);
            grant_events::publish_soon(ctx);
        }
        // If the flush is a command in the AOF, it is final. Otherwise the locks may be loaded again.
        let replayed = LOADING.get() == Some(Source::Aof);
        match detached.last() {
            Some(_) if replayed && dropped_locks::were_lifted(ctx, &detached) => dropped_locks::free(vec![detached]),
            Some(last) if replayed && ctx.is_master() => {
                dropped_locks::dropped(last);
                dropped_locks::free(vec![detached]);
            }
            Some(_) if ctx.is_master() => dropped_locks::dropped_perhaps(detached),
            // On a replica nothing is done, because the master handles the dropped locks.
            _ => dropped_locks::free(vec![detached]),
        }
        timer::arm(ctx);
    }

    fn swap(ctx: Context<'_>, one: u32, other: u32) {
        let lost = state::with(|node| node.swap(one, other));
        if let Some((db, last)) = lost.filter(|_| ctx.is_master()) {
            let replayed = LOADING.get() == Some(Source::Aof);
            if !replayed || !dropped_locks::were_lifted(ctx, &state::with(|node| node.deadlines().copy(db))) {
                dropped_locks::dropped(last);
            }
        }
        timer::arm(ctx);
    }

    fn loaded(ctx: Context<'_>, name: KeyName<'_>) {
        // Of the keys that are loaded, only those with a lock or a gate need a check.
        if READ.take() {
            Self::arrived(ctx, name, Arrival::Moved);
        }
    }

    fn arrived(ctx: Context<'_>, name: KeyName<'_>, by: Arrival) {
        let Ok(mut key) = LockKey::read(ctx, name) else {
            if gates::arrived(ctx, name) {
                timer::arm(ctx);
            }
            return;
        };
        let db = key.db();
        let Some(lock) = key.lock_mut() else { return };
        if by == Arrival::Restored {
            lock.mark_suspect();
        }
        state::with(|node| node.on_lock_arrived(Key { db, name: name.bytes() }, lock, clock::boot_now()));
        timer::arm(ctx);
    }
}

impl SlotEvents for NodeEvents {
    fn slots_change(ctx: Context<'_>) {
        cluster::look(ctx);
    }

    fn slots_migrate(ctx: Context<'_>, slots: &[RangeInclusive<u16>], import: Import) {
        match import {
            Import::Begins => cluster::arriving(ctx, slots),
            Import::Fails => cluster::not_arriving(slots),
            Import::Ends => cluster::came(ctx, slots),
        }
    }

    fn slots_leave(job: Job, is_under_way: bool) {
        promotion::slots_leave(job, is_under_way);
    }
}

impl BusEvents for NodeEvents {
    fn asked(ctx: Context<'_>, from: &ServerId, payload: &[u8]) {
        // The slot that leaves this node now may have come to it only a moment ago, unread.
        cluster::tick(ctx);
        // A lock that MIGRATE has just moved to that server was not forgotten.
        if state::with(|node| node.slots().has_dropped(None)) {
            cluster::confirm_slot_flush(ctx);
        }
        slot_sources::answer(ctx, from, payload);
    }

    fn answered(_ctx: Context<'_>, from: &ServerId, payload: &[u8]) {
        slot_sources::hear(from, payload);
    }
}

thread_local! {
    /// The source from which the server is loading its data; `None` if it is not loading.
    static LOADING: Cell<Option<Source>> = const { Cell::new(None) };
    /// True if a lock or a gate was read from a record since the last key was loaded.
    static READ: Cell<bool> = const { Cell::new(false) };
}

/// Notes that a lock or a gate was read from a record. If the server keeps it, an event about its key follows.
pub fn value_was_read() {
    READ.set(true);
}
