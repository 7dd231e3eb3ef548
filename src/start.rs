//! How a life of the node starts and ends: what the last one left is read when the module is loaded, and judged when
//! the data is; what this one leaves is written when the server shuts down.

use std::cell::Cell;

use palisade_core::{BootTime, CleanEnd, Found, LocksDigest, Master, Node, NodeState, Owed, Start, token_floor};

use crate::aof_folder::AofFolder;
use crate::data_stamp::DataStamp;
use crate::ffi::{Context, KeyName, LockKey, Source, notice};
use crate::keeper::Keeper;
use crate::life::{self, Handed, Life};
use crate::{clock, cluster, config, state};

thread_local! {
    /// What the server read its data from at its start, if it had any.
    static LOADED_FROM: Cell<Option<Source>> = const { Cell::new(None) };
    /// Something in the AOF was not understood.
    static MISSED: Cell<bool> = const { Cell::new(false) };
    /// The module was loaded with the server, not into one that runs.
    static WITH_SERVER: Cell<bool> = const { Cell::new(false) };
}

/// What the last life left, until it is decided what it proves.
pub struct LastLife {
    /// Its state file, if there is a readable one.
    pub state: Option<NodeState>,
    /// What was found beside it, before the server read its data.
    pub found: Found,
}

/// The module is loaded, data is not. Every token of an earlier life is below the ceiling in the state file; without
/// one, below the clock and its greatest skew.
pub fn begin(ctx: Context<'_>) -> Result<(), String> {
    life::forget();
    let skew_ms = config::max_clock_skew_ms();
    let (keeper, read) = match config::state_file() {
        Some(path) => {
            let (keeper, read) = Keeper::open(path)?;
            (Some(keeper), read)
        }
        None => (None, None),
    };
    let file = read.as_ref().map(|read| read.file);
    let last = read.map(|read| read.state);
    clock::begin(last.as_ref().map(|last| last.ceiling));
    let now = clock::now();
    let stamp = DataStamp::here();
    let aof = AofFolder::of(ctx).map_or_else(Vec::new, |folder| folder.files());
    let found = Found { file, used_by: stamp.read(), aof };
    let mut node = Node::new(token_floor(last.as_ref(), &found, now.wall_us, skew_ms));
    state::configured(&mut node);
    if let Some(keeper) = &keeper {
        // Nothing is issued before the new ceiling is on the disk: no stripe is below the last one.
        node.tokens.set_ceiling(keeper.ceiling());
    }
    if let Some(last) = &last {
        node.tokens.restore_stripes(&last.stripes);
    }
    if let Some(armed) = last.as_ref().and_then(|last| last.guard_now(clock::boot_id(), now.boot)) {
        node.guard.restore(armed);
    }
    state::begin(node);
    WITH_SERVER.set(ctx.info_number(c"clients", c"connected_clients") == Some(0));
    // A copy must not pass for the node that it was copied from.
    let same_node = last.as_ref().filter(|last| !last.is_copy(file));
    if last.is_some() && same_node.is_none() {
        notice("the state file is a copy: this is another node than the one that wrote it, and proves nothing by it");
    }
    let mut owed = Owed::new(last.as_ref().map_or(0, |last| last.owed_ms), config::max_ttl_ms(), skew_ms, now.boot);
    if !ctx.is_master() {
        owed.follow(last.as_ref().filter(|last| last.master == Master::Told).map(|last| last.owed_ms));
    }
    life::begin(Life {
        keeper,
        stamp,
        is_stamped: false,
        id: same_node.map_or_else(rand::random, |last| last.id),
        incarnation: same_node.map_or(0, |last| last.incarnation) + 1,
        owed,
        aof: None,
        ceiling: last.as_ref().map_or(0, |last| last.ceiling),
        lifted: last
            .as_ref()
            .filter(|last| last.boot == clock::boot_id())
            .map_or(BootTime::default(), |last| last.lifted),
        handed: Handed::default(),
        needed: 0,
        decided: false,
        told: BootTime::default(),
        told_stripe_change: 0,
        failing: false,
        is_stamp_failing: false,
        last: Some(LastLife { state: last, found }),
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
    let Some(LastLife { state: last, found }) = life::with(|life| life.last.take()) else { return };
    let last = last.as_ref();
    let from = LOADED_FROM.get();
    let counts = |deadline| Start::counts(last, clock::boot_id(), deadline);
    let loaded = if last.is_some_and(|last| last.end.is_some()) { digest(ctx, counts) } else { LocksDigest::default() };
    let from_aof = from == Some(Source::Aof) && !MISSED.get();
    let judged = Start { last, found: &found, loaded, from_aof, boot: clock::boot_id() };
    let now = clock::now();
    let goes_to_aof =
        WITH_SERVER.get() && ctx.is_master() && matches!(from, None | Some(Source::Aof)) && everything_goes_to_aof(ctx);
    let aof = goes_to_aof.then(|| AofFolder::of(ctx)).flatten();
    let proved = life::with(|life| {
        life.decided = true;
        life.aof = aof;
        // What its master may have granted counts when it is promoted.
        let owed_ms = life.owed.own_ms(now.boot);
        state::with(|node| judged.judge(config::restart_guard(), owed_ms, node, now.boot))
    });
    life::with(|life| {
        life.put_stamp();
        life.save_at_once(now);
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
    let now = clock::now();
    let end = remembered.then(|| CleanEnd { at: now.boot, locks: digest(ctx, |deadline| now.boot <= deadline) });
    life::with(|life| {
        let mut stated = life.snapshot(now);
        stated.state.end = end;
        if let Some(keeper) = &life.keeper {
            keeper.close(stated);
        }
    });
}

/// The digest of the locks in memory whose deadlines `counts` picks.
fn digest(ctx: Context<'_>, counts: impl Fn(BootTime) -> bool) -> LocksDigest {
    let names: Vec<(u32, Box<[u8]>)> =
        state::with(|node| node.deadlines.names().map(|(db, name)| (db, name.into())).collect());
    let mut digest = LocksDigest::default();
    for (db, name) in names {
        ctx.select(db);
        KeyName::with(&name, |key_name| {
            if let Ok(key) = LockKey::read(ctx, key_name)
                && let Some(lock) = key.lock()
                && counts(lock.deadline())
            {
                digest.add(db, &name, lock);
            }
        });
    }
    digest
}
