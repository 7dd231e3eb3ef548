//! The start and the end of an incarnation. The state of the last incarnation is read when the module is loaded, and
//! judged when the data is loaded. The state of this one is written when the server shuts down.

use std::cell::{Cell, RefCell};

use palisade_core::engine::Key;
use palisade_core::{
    Beginning, BootTime, CleanEnd, Found, IncarnationId, LocksDigest, Node, NodeState, Start, Tokens, token_floor,
};

use super::aof_folder::AofFolder;
use super::data_stamp::DataStamp;
use super::incarnation::{self, Incarnation};
use super::state_writer::{StateWriter, Stated};
use super::{promotion, settings};
use crate::ffi::{Context, KeyName, LockKey, Source, notice};
use crate::{clock, config, state};

thread_local! {
    /// The data that the last incarnation left, until it is judged.
    static LAST: RefCell<Option<LastIncarnation>> = const { RefCell::new(None) };
    /// The source from which the server loaded its data at its start, if it loaded any.
    static LOADED_FROM: Cell<Option<Source>> = const { Cell::new(None) };
    /// True if the AOF had a record that was not understood, so that a lock may be missing.
    static MISSED: Cell<bool> = const { Cell::new(false) };
    /// True if the module was loaded with the server, not into a running one.
    static WITH_SERVER: Cell<bool> = const { Cell::new(false) };
}

/// The data that an incarnation leaves to the next one.
struct LastIncarnation {
    /// The state of that incarnation from the state file, if there is one that is readable.
    state: Option<NodeState>,
    /// Everything except that state, found at the start before the server loaded its data.
    found: Found,
}

/// Begins an incarnation when the module is loaded, before the data is. Tokens start above those of earlier
/// incarnations: above the ceiling in the state file or, without a file, above the clock plus the largest skew.
pub fn begin(ctx: Context<'_>) -> Result<(), String> {
    incarnation::forget();
    let skew_ms = config::max_clock_skew_ms();
    let (state_writer, read) = match config::state_file() {
        Some(path) => {
            let (state_writer, read) = StateWriter::open(path)?;
            (Some(state_writer), read)
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
    let beginning = Beginning {
        last: last.as_ref(),
        found: &found,
        has_file: state_writer.is_some(),
        new_id: rand::random(),
        boot: clock::boot_id(),
        max_ttl_ms: config::max_ttl_ms(),
        skew_ms,
        is_master: ctx.is_master(),
    };
    let tokens = Tokens::new(token_floor(last.as_ref(), &found, now.wall_us, skew_ms));
    let mut node = Node::begin(&beginning, tokens, now.boot);
    state::configure(&mut node);
    node.history_mut().reset_contention(now.boot);
    state::begin(node);
    WITH_SERVER.set(ctx.info_number(c"clients", c"connected_clients") == Some(0));
    if last.as_ref().is_some_and(|last| last.is_copy(file)) {
        notice("the state file is a copy: this is another node than the one that wrote it, and proves nothing by it");
    }
    LAST.set(Some(LastIncarnation { state: last, found }));
    incarnation::begin(Incarnation { state_writer, stamp, aof: None, failing: false, is_stamp_failing: false });
    promotion::begin();
    settings::inspect(ctx);
    Ok(())
}

/// Notes that the server starts to read its data.
pub fn on_loading(from: Source) {
    if !state::with(|node| node.ledger().is_judged()) {
        LOADED_FROM.set(Some(from));
    }
}

/// Notes that a record in the AOF was not understood, because it is damaged or from another version of the module. Then
/// the AOF proves nothing.
pub fn missed_a_lock() {
    MISSED.set(true);
}

/// Judges the last incarnation's state once the data is loaded, and writes to the disk what a later incarnation must
/// know of this one. Nothing is granted before that is done.
pub fn decide(ctx: Context<'_>) {
    if ctx.is_loading() || state::with(|node| node.ledger().is_judged()) {
        return;
    }
    let Some(LastIncarnation { state: last, found }) = LAST.take() else { return };
    let last = last.as_ref();
    let from = LOADED_FROM.get();
    let counts = |deadline| Start::is_counted(last, clock::boot_id(), deadline);
    let loaded = if last.is_some_and(|last| last.end.is_some()) { digest(ctx, counts) } else { LocksDigest::default() };
    let from_aof = from == Some(Source::Aof) && !MISSED.get();
    let judged = Start { last, found: &found, loaded, from_aof, boot: clock::boot_id() };
    let now = clock::now();
    let goes_to_aof = WITH_SERVER.get()
        && ctx.is_master()
        && matches!(from, None | Some(Source::Aof))
        && settings::everything_goes_to_aof(ctx);
    let aof = goes_to_aof.then(|| AofFolder::of(ctx)).flatten();
    incarnation::with(|incarnation| incarnation.aof = aof);
    let proved = state::with(|node| node.judge(&judged, config::restart_guard(), now.boot));
    incarnation::put_stamp();
    incarnation::save_at_once(now);
    let IncarnationId { node: id, number } = state::with(|node| node.ledger().incarnation());
    let remembers = if proved { "remembers every grant" } else { "cannot prove that it remembers every grant" };
    notice(&format!("node {id:032x}, incarnation {number}, {remembers} of its last incarnation"));
    incarnation::log_guard(now);
}

/// Writes to the state file, when the server shuts down, the proof of the present grants. A replica writes none,
/// because its master may grant more meanwhile. Nor does a node that still remembers evicted locks, which are in no
/// file.
pub fn end(ctx: Context<'_>) {
    let remembered = ctx.is_master() && state::with(|node| node.evicted().is_empty());
    let now = clock::now();
    let Some((number, state)) = state::with(|node| node.state_to_write(false, now)) else { return };
    let end = remembered.then(|| CleanEnd { at: now.boot, locks: digest(ctx, |deadline| now.boot <= deadline) });
    incarnation::with(|incarnation| {
        if let Some(writer) = &incarnation.state_writer {
            writer.close(number, Stated { state: NodeState { end, ..state }, aof: incarnation.aof.clone() });
        }
    });
}

/// Returns the digest of the locks in memory for whose deadlines `counts` returns true.
fn digest(ctx: Context<'_>, counts: impl Fn(BootTime) -> bool) -> LocksDigest {
    let names: Vec<(u32, Box<[u8]>)> =
        state::with(|node| node.deadlines().names().map(|(db, name)| (db, name.into())).collect());
    let mut digest = LocksDigest::default();
    for (db, name) in names {
        ctx.select(db);
        KeyName::with(&name, |key_name| {
            if let Ok(key) = LockKey::read(ctx, key_name)
                && let Some(lock) = key.lock()
            {
                digest.add(Key { db, name: &name }, lock, &counts);
            }
        });
    }
    digest
}
