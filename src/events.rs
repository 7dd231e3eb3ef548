//! Handles the server's events about its databases, keys and role. No key is written here, so nothing goes to the AOF.

use std::cell::Cell;
use std::ffi::CStr;
use std::ops::RangeInclusive;

use palisade_core::engine::Key;
use palisade_core::{MigrationId, ServerId};

use crate::driver::{blocked_clients, cluster, gates, grant_events, listeners, propagation, slot_sources, timer};
use crate::durability::{dropped_locks, incarnation, promotion, settings, start, tick};
use crate::ffi::{Arrival, BusEvents, Context, Events, KeyName, LockKey, Progress, SlotEvents, Source};
use crate::{clock, state};

/// The handlers of the server's events.
pub struct NodeEvents;

impl Events for NodeEvents {
    fn on_cron(ctx: Context<'_>) {
        clock::read_wall_clock();
        propagation::find_receivers(ctx);
        tick::tick(ctx);
        cluster::tick(ctx);
        listeners::end_idle_closed(ctx);
        timer::catch_up(ctx);
    }

    fn on_fork(ctx: Context<'_>) {
        propagation::on_possible_receiver();
        incarnation::on_fork();
        // A replica may get the child's copy of the data, which does not show what grants have ended. The next message
        // to replicas does, so it is sent at once.
        promotion::send_at_once(ctx);
    }

    fn on_loading(from: Source) {
        propagation::on_possible_receiver();
        LOADING.set(Some(from));
        if from == Source::Master {
            promotion::become_replica();
        }
        start::on_loading(from);
    }

    fn on_all_loaded(ctx: Context<'_>, complete: bool) {
        LOADING.set(None);
        if complete {
            dropped_locks::end_guard_if_reloaded(ctx);
        }
        start::decide(ctx);
    }

    fn on_replica(ctx: Context<'_>) {
        promotion::send_at_once(ctx);
    }

    fn on_role(ctx: Context<'_>, is_master: bool) {
        propagation::on_possible_receiver();
        if is_master {
            // The former master's slots follow right after this event. The node is guarded as a whole, so these slots
            // need no guard of their own.
            state::with(|node| node.cover_slots());
        } else {
            blocked_clients::dismiss_all();
            // The next pass is needed even if nobody waits: it refuses a BREAK in progress.
            timer::run_soon(ctx);
        }
        promotion::on_role(is_master);
    }

    fn on_config_set(ctx: Context<'_>, names: &[&CStr]) {
        propagation::on_possible_receiver();
        settings::on_config_set(ctx, names);
    }

    fn on_shutdown(ctx: Context<'_>) {
        start::end(ctx);
    }

    fn on_evicted(ctx: Context<'_>, name: KeyName<'_>) {
        dropped_locks::on_evicted(Key { db: ctx.db(), name: name.bytes() });
    }

    fn on_flush(ctx: Context<'_>, db: Option<u32>) {
        gates::on_flushed(db);
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
                dropped_locks::on_dropped(last);
                dropped_locks::free(vec![detached]);
            }
            Some(_) if ctx.is_master() => dropped_locks::on_perhaps_dropped(detached),
            // On a replica nothing is done, because the master handles the dropped locks.
            _ => dropped_locks::free(vec![detached]),
        }
        timer::arm(ctx);
    }

    fn on_swap(ctx: Context<'_>, one: u32, other: u32) {
        let lost = state::with(|node| node.swap(one, other));
        if let Some((db, last)) = lost.filter(|_| ctx.is_master()) {
            let replayed = LOADING.get() == Some(Source::Aof);
            if !replayed || !dropped_locks::were_lifted(ctx, &state::with(|node| node.deadlines().copy(db))) {
                dropped_locks::on_dropped(last);
            }
        }
        timer::arm(ctx);
    }

    fn on_loaded(ctx: Context<'_>, name: KeyName<'_>) {
        // Of the keys that are loaded, only those with a lock or a gate need a check.
        if READ.take() {
            Self::on_arrived(ctx, name, Arrival::Moved);
        }
    }

    fn on_arrived(ctx: Context<'_>, name: KeyName<'_>, by: Arrival) {
        let Ok(mut key) = LockKey::read(ctx, name) else {
            if gates::list_if_gate(ctx, name) {
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
    fn on_slot_command(ctx: Context<'_>) {
        cluster::read_slots(ctx);
    }

    fn on_slots_coming(ctx: Context<'_>, by: MigrationId, slots: &[RangeInclusive<u16>], progress: Progress) {
        // Its own files tell of earlier migrations. What the node knows of their locks is judged at its start.
        if LOADING.get().is_some_and(|from| from != Source::Master) {
            return;
        }
        match progress {
            Progress::Begins => cluster::on_arriving(ctx, slots, by),
            Progress::Fails => cluster::on_not_arriving(slots, by),
            Progress::Ends => cluster::on_arrived(ctx, slots, by),
        }
    }

    fn on_slots_leaving(id: MigrationId, progress: Progress) {
        if progress == Progress::Ends {
            cluster::on_left(id);
        }
        promotion::on_slots_leaving(id, progress == Progress::Begins);
    }
}

impl BusEvents for NodeEvents {
    fn on_question(ctx: Context<'_>, from: &ServerId, payload: &[u8]) {
        // A lock that MIGRATE has just moved to that server was not forgotten.
        if state::with(|node| node.slots().has_deleted()) {
            cluster::read_slots(ctx);
        } else {
            // The slot that leaves this node now may have come to it only a moment ago, unread.
            cluster::tick(ctx);
        }
        slot_sources::answer(ctx, from, payload);
    }

    fn on_answer(_ctx: Context<'_>, from: &ServerId, payload: &[u8]) {
        slot_sources::on_answer(from, payload);
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
