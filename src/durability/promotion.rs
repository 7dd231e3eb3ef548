//! The data that a replica needs when it is promoted. A master sends it, a replica receives it, and a change of role
//! uses it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use palisade_core::{BootTime, MigrationId, Now, StripeCeiling, stripes_to_text};

use super::incarnation;
use crate::ffi::{Context, free};
use crate::{clock, command_names, config, state};

/// The pause between two messages of a master to its replicas, in milliseconds. A message has the ceiling of tokens and
/// the longest lease that may still run.
const TELL_REPLICAS_MS: u64 = 2_000;

thread_local! {
    /// The time of the last message to the replicas.
    static TOLD: Cell<BootTime> = const { Cell::new(BootTime::from_us(0)) };
    /// The number of the last change of a stripe's ceiling that was sent to the replicas.
    static TOLD_STRIPE_CHANGE: Cell<u64> = const { Cell::new(0) };
    /// The migrations under way by which slots leave this node in one step. Valkey aborts such a migration if replicas
    /// receive a command without a key, as LOCK.CEILING is. So no message is sent meanwhile.
    static EXPORTS: RefCell<BTreeSet<MigrationId>> = const { RefCell::new(BTreeSet::new()) };
}

/// Begins anew when the module is loaded: the replicas have received no message yet.
pub fn begin() {
    send_soon();
    TOLD_STRIPE_CHANGE.set(0);
}

/// Notes that replicas have to receive a change soon: the next tick sends it.
pub fn send_soon() {
    TOLD.set(BootTime::default());
}

/// Sends LOCK.CEILING to the replicas as soon as possible, because a replica has connected, or is about to receive the
/// present data. A timer sends it, because the handler of an event must not write. If writes are paused when the timer
/// runs, the next tick sends it.
pub fn send_at_once(ctx: Context<'_>) {
    send_soon();
    ctx.start_timer(0, |ctx| send_to_replicas(ctx, clock::now()));
}

/// Notes that slots begin to leave in one step by the migration `id`, or that this migration is over. When it is over,
/// the next tick sends what replicas have missed.
pub fn on_slots_leaving(id: MigrationId, is_under_way: bool) {
    if is_under_way {
        EXPORTS.with_borrow_mut(|exports| exports.insert(id));
    } else if EXPORTS.with_borrow_mut(|exports| exports.remove(&id)) {
        send_soon();
    }
}

/// Sends a master's replicas the values that one of them needs when it is promoted, if that is due: `TELL_REPLICAS_MS`
/// after the last time, or at once after a token was raised far ahead.
pub fn send_to_replicas(ctx: Context<'_>, now: Now) {
    // If a token was raised far ahead, its stripe has a ceiling of its own. That is sent at once, because no later
    // ceiling of the node would cover it.
    let changes = state::with(|node| node.tokens().stripe_changes());
    let due = now.boot.ms_since(TOLD.get()) >= TELL_REPLICAS_MS || changes > TOLD_STRIPE_CHANGE.get();
    let slots_leave = EXPORTS.with_borrow(|exports| !exports.is_empty());
    if !due || slots_leave || !ctx.is_master() || ctx.is_loading() || ctx.must_not_write() {
        return;
    }
    TOLD.set(now.boot);
    TOLD_STRIPE_CHANGE.set(changes);
    if ctx.info_number(c"replication", c"connected_slaves").is_some_and(|replicas| replicas > 0) {
        let (ceiling, outstanding_ttl_ms, stripes) = state::with(|node| node.replica_news(now));
        let stripes = stripes_to_text(&stripes);
        ctx.replicate_to_replicas(
            command_names::CEILING,
            ceiling,
            outstanding_ttl_ms.into(),
            command_names::STRIPES,
            &stripes,
        );
    }
}

/// Handles a master's message on its replica: the ceilings, and the longest lease that may still run.
pub fn on_master_values(ceiling: u64, outstanding_ttl_ms: u32, stripes: &[StripeCeiling]) {
    state::with(|node| node.on_master_values(ceiling, outstanding_ttl_ms, stripes));
}

/// Handles a change of role. A replica that becomes a master may not know the last grants of its former master.
pub fn on_role(is_master: bool) {
    let now = clock::now();
    incarnation::with(|incarnation| incarnation.aof = None);
    if is_master {
        state::with(|node| node.become_master(config::restart_guard(), now));
        incarnation::log_guard(now);
    } else {
        EXPORTS.take();
        become_replica();
    }
    incarnation::save_at_once(now);
}

/// Makes the node a replica in the rules. What it renewed as a master is freed in the background.
pub fn become_replica() {
    let renewed = state::with(|node| node.become_replica());
    let count = renewed.len();
    free(renewed, count);
}
