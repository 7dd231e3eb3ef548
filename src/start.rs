//! How a life of the node starts and ends: what the last one left is read when the module is loaded, and judged when
//! the data is; what this one leaves is written when the server shuts down.

use std::cell::Cell;

use palisade_core::{BootTime, LocksDigest, Node, Owed, Start, token_floor};

use crate::ffi::{Context, KeyName, LockKey, Source, notice};
use crate::keeper::Keeper;
use crate::life::{self, Life};
use crate::{clock, cluster, config, state};

thread_local! {
    /// What the server read its data from at its start, if it had any.
    static LOADED_FROM: Cell<Option<Source>> = const { Cell::new(None) };
    /// Something in the AOF was not understood.
    static MISSED: Cell<bool> = const { Cell::new(false) };
    /// The module was loaded with the server, not into one that runs.
    static WITH_SERVER: Cell<bool> = const { Cell::new(false) };
}

/// The module is loaded, data is not. Every token of an earlier life is below the ceiling in the state file; without
/// one, below the clock and its greatest skew.
pub fn begin(ctx: Context<'_>) -> Result<(), String> {
    life::forget();
    let now = clock::now();
    let skew_ms = config::max_clock_skew_ms();
    let (keeper, last) = match config::state_file() {
        Some(path) => {
            let (keeper, last) = Keeper::open(path)?;
            (Some(keeper), last)
        }
        None => (None, None),
    };
    let mut node = Node::new(token_floor(last.as_ref(), now.wall_us, skew_ms));
    state::configured(&mut node);
    if keeper.is_some() {
        // Nothing is issued before the new ceiling is on the disk.
        node.tokens.set_ceiling(0);
    }
    if let Some(armed) = last.as_ref().and_then(|last| last.guard_now(clock::boot_id(), now.boot)) {
        node.guard.restore(armed);
    }
    state::begin(node);
    WITH_SERVER.set(ctx.info_number(c"clients", c"connected_clients") == Some(0));
    life::begin(Life {
        keeper,
        id: last.as_ref().map_or_else(rand::random, |last| last.id),
        incarnation: last.as_ref().map_or(0, |last| last.incarnation) + 1,
        owed: Owed::new(last.as_ref().map_or(0, |last| last.owed_ms), config::max_ttl_ms(), skew_ms, now.boot),
        aof_life: false,
        ceiling: last.as_ref().map_or(0, |last| last.ceiling),
        handed: (0, 0),
        needed: 0,
        decided: false,
        told: BootTime::default(),
        failing: false,
        last,
    });
    life::inspect_configuration(ctx);
    cluster::begin(ctx);
    Ok(())
}

/// The server starts to read its data.
pub fn loading(from: Source) {
    if !life::with(|life| life.decided) {
        LOADED_FROM.set(Some(from));
    }
}

/// A lock in the AOF was not understood: damaged, or written by a module of another version. The AOF then proves nothing.
pub fn missed_a_lock() {
    MISSED.set(true);
}

/// Judges, once the data is loaded, what the last life left, and puts on the disk what a later one must know of this.
/// Nothing is granted before that is done.
pub fn decide(ctx: Context<'_>) {
    if ctx.is_loading() || life::with(|life| life.decided) {
        return;
    }
    let last = life::with(|life| life.last.take());
    let from = LOADED_FROM.get();
    let loaded =
        if last.as_ref().is_some_and(|last| last.end.is_some()) { digest(ctx) } else { LocksDigest::default() };
    let from_aof = from == Some(Source::Aof) && !MISSED.get();
    let judged = Start { last: last.as_ref(), loaded, from_aof, boot: clock::boot_id() };
    let now = clock::now();
    let aof_life =
        WITH_SERVER.get() && ctx.is_master() && from != Some(Source::Snapshot) && everything_goes_to_aof(ctx);
    let proved = life::with(|life| {
        life.decided = true;
        life.aof_life = aof_life;
        let owed_ms = life.owed.ms(now.boot);
        let proved = state::with(|node| judged.judge(config::restart_guard(), owed_ms, node, now.boot));
        let snapshot = life.snapshot(now);
        if let Some(keeper) = &life.keeper {
            life.needed = keeper.save_now(snapshot);
        }
        proved
    });
    life::refresh_ceiling();
    let (id, incarnation) = life::with(|life| (life.id, life.incarnation));
    let remembers = if proved { "remembers every grant" } else { "cannot prove that it remembers every grant" };
    notice(&format!("node {id:032x}, life {incarnation}, {remembers} of its last life"));
    life::log_guard(now);
}

/// The AOF is on, synced at every command, also while it is rewritten.
pub fn everything_goes_to_aof(ctx: Context<'_>) -> bool {
    ctx.parameter_is(c"appendonly", "yes")
        && ctx.parameter_is(c"appendfsync", "always")
        && ctx.parameter_is(c"no-appendfsync-on-rewrite", "no")
}

/// The server ends: leaves the proof of what there was. A replica leaves none: its master may grant more meanwhile. Nor
/// does a node that still remembers evicted locks, since no file does.
pub fn end(ctx: Context<'_>) {
    if !life::with(|life| life.decided && life.keeper.is_some()) {
        return;
    }
    let remembered = ctx.is_master() && state::with(|node| node.evicted.is_empty());
    let digest = remembered.then(|| digest(ctx));
    let now = clock::now();
    life::with(|life| {
        let mut state = life.snapshot(now);
        state.end = digest;
        if let Some(keeper) = &life.keeper {
            keeper.close(state);
        }
    });
}

/// The digest of all locks in memory.
fn digest(ctx: Context<'_>) -> LocksDigest {
    let names: Vec<(u32, Box<[u8]>)> =
        state::with(|node| node.deadlines.names().map(|(db, name)| (db, name.into())).collect());
    let mut digest = LocksDigest::default();
    for (db, name) in names {
        ctx.select(db);
        KeyName::with(&name, |key_name| {
            if let Ok(key) = LockKey::read(ctx, key_name)
                && let Some(lock) = key.lock()
            {
                digest.add(db, &name, lock);
            }
        });
    }
    digest
}
