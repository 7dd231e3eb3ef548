//! This life of the node: what it keeps on the disk, when it is ready to promise, what it hears from its master.
//!
//! Whatever a later life must know is on the disk before this one relies on it: the ceiling above which it issues no
//! token, the guard, and whether the AOF has everything. Where that is not so yet, promises are refused with NOTYET for
//! the milliseconds that a write takes. Only where an operator ends something that a later life would believe (the AOF's
//! settings, the role, a flush of live locks, an armed guard) is the write waited for, since what was promised in the
//! very same transaction may depend on it.

use std::cell::RefCell;
use std::ffi::CStr;

use palisade_core::{BootTime, GuardPolicy, Now, Refusal, StripeCeiling, Token, stripes_to_text};

use crate::aof_folder::AofFolder;
use crate::data_stamp::DataStamp;
use crate::ffi::{Context, notice, warn};
use crate::keeper::{Keeper, Stated};
use crate::start::LastLife;
use crate::{clock, config, losses, start, state};

/// The command that tells replicas a master's ceiling and what it owes.
pub const CEILING: &CStr = c"LOCK.CEILING";

/// How often a master tells its replicas its ceiling and what it owes, in milliseconds.
const TELL_REPLICAS_MS: u64 = 2_000;

/// What this life has beside the node's memory: its files, and what it told.
pub struct Life {
    /// Writes the state file; `None`: the node has none.
    pub keeper: Option<Keeper>,
    /// Says beside the data that this life uses it.
    pub stamp: DataStamp,
    /// What the last life left, until it is judged what it proves.
    pub last: Option<LastLife>,
    /// Everything granted in this life is in this AOF.
    pub aof: Option<AofFolder>,
    /// When replicas were told last.
    pub told: BootTime,
    /// The last change in ceilings of stripes that they were told of.
    pub told_stripe_change: u64,
    /// The last write of the state file failed, and that was logged.
    pub failing: bool,
    /// The stamp could not be put, and that was logged.
    pub is_stamp_failing: bool,
}

thread_local! {
    static LIFE: RefCell<Option<Life>> = const { RefCell::new(None) };
}

/// What an earlier load of the module left goes, and with it its locks on the state file: the server did not keep it.
pub fn forget() {
    LIFE.take();
}

/// This life begins.
pub fn begin(life: Life) {
    LIFE.set(Some(life));
}

/// Calls `body` with this life. No call to the server that can call back may be made in it.
pub fn with<T>(body: impl FnOnce(&mut Life) -> T) -> T {
    LIFE.with_borrow_mut(|life| body(life.as_mut().expect("the module is loaded before it is called")))
}

/// Refuses while something that a later life must know is not on the disk, or the start is not judged.
pub fn ready(ctx: Context<'_>, now: BootTime) -> Result<(), Refusal> {
    let ready = || state::with(|node| node.ready(now));
    ready().or_else(|_| {
        look_at_disk(ctx);
        ready()
    })
}

/// The node learns what is on the disk by now; the start is judged, if that is open.
pub fn look_at_disk(ctx: Context<'_>) {
    if !state::with(|node| node.ledger.is_judged()) {
        start::decide(ctx);
    }
    look_at_file();
}

fn look_at_file() {
    with(|life| {
        if let Some(keeper) = &life.keeper {
            state::with(|node| {
                node.written(keeper.saved(), keeper.ceiling());
                node.ledger.taken(keeper.is_taken());
            });
        }
    });
}

/// Says beside the data that this life uses it. Promises wait for that, so every tick tries again: the log is told once that it
/// fails, and once that it does no more.
pub fn put_stamp() {
    let life_id = state::with(|node| node.ledger.life());
    let (result, was_failing) = with(|life| {
        let result = life.stamp.put(life_id);
        let was_failing = std::mem::replace(&mut life.is_stamp_failing, result.is_err());
        (result, was_failing)
    });
    if result.is_ok() {
        state::with(|node| node.ledger.stamped());
    }
    match result {
        Err(why) if !was_failing => warn(&format!(
            "{why}. It says that another life used the data here, and would be believed later: nothing is granted until \
             it can be replaced"
        )),
        Ok(()) if was_failing => notice("the stamp of another life beside the data is gone: grants go on"),
        _ => {}
    }
}

/// Has the state written; promises go on meanwhile.
pub fn save(now: Now) {
    hand_out(false, now, Keeper::save);
}

/// Writes the state before anything else happens: something that a later life would believe is true no more, and
/// what is promised in this very command may already depend on it. Only what operators do comes here. If the disk
/// fails, promises wait until it does not.
pub fn save_at_once(now: Now) {
    hand_out(true, now, Keeper::save_now);
    look_at_file();
}

/// Hands the state to the keeper, if there is anything to write.
fn hand_out(is_needed: bool, now: Now, write: impl FnOnce(&Keeper, u64, Stated)) {
    with(|life| {
        if let Some((number, state)) = state::with(|node| node.state_to_write(is_needed, now))
            && let Some(keeper) = &life.keeper
        {
            write(keeper, number, Stated { state, aof: life.aof.clone() });
        }
    });
}

/// Ten times a second.
pub fn tick(ctx: Context<'_>) {
    // What was refused for want of a write, or waits for the end of a start, goes on even if no command comes.
    look_at_disk(ctx);
    let now = clock::now();
    losses::settle();
    let (is_stamped, is_write_due) = state::with(|node| {
        node.evicted.sweep(now.boot);
        (node.ledger.is_stamped() || !node.ledger.is_judged(), node.is_write_due(now))
    });
    if !is_stamped {
        put_stamp();
    }
    if is_write_due {
        save(now);
    }
    log_failures();
    tell_replicas(ctx, now);
}

/// Says once when the state file cannot be written, and once when it can again.
fn log_failures() {
    let failure = with(|life| {
        let failure = life.keeper.as_ref().and_then(Keeper::failure);
        let changed = failure.is_some() != life.failing;
        life.failing = failure.is_some();
        changed.then_some((failure, life.keeper.as_ref().is_some_and(Keeper::is_taken)))
    });
    match failure {
        Some((Some(why), true)) => warn(&format!(
            "{why}. Its lock file was removed or replaced while this server ran. Nothing is promised here from now on \
             (NOTYET), releasing works: end one of the two, then restart the other"
        )),
        Some((Some(why), false)) => warn(&format!(
            "the state file cannot be written: {why}. Grants go on up to the ceiling that is on the disk, then they are \
             refused with NOTYET until it can be written again"
        )),
        Some((None, _)) => notice("the state file can be written again"),
        None => {}
    }
}

/// A master tells its replicas what they need to know when one of them is promoted.
fn tell_replicas(ctx: Context<'_>, now: Now) {
    // A key whose token was raised far ahead is news at once: no later ceiling would cover it.
    let changes = state::with(|node| node.tokens.stripe_changes());
    let due = with(|life| now.boot.ms_since(life.told) >= TELL_REPLICAS_MS || changes > life.told_stripe_change);
    if !due || !ctx.is_master() || ctx.is_loading() || ctx.must_not_write() {
        return;
    }
    with(|life| (life.told, life.told_stripe_change) = (now.boot, changes));
    if ctx.info_number(c"replication", c"connected_slaves").is_some_and(|replicas| replicas > 0) {
        let (ceiling, owed_ms, stripes) = state::with(|node| node.tells_replicas(now));
        ctx.replicate_to_replicas(CEILING, ceiling, owed_ms.into(), c"STRIPES", &stripes_to_text(&stripes));
    }
}

/// A master's ceiling and what it owes, heard by a replica.
pub fn heard(ceiling: u64, owed_ms: u32, stripes: &[StripeCeiling]) {
    state::with(|node| node.heard(ceiling, owed_ms, stripes));
}

/// The server forked. If that is to rewrite the AOF, a new file goes on from here, and the state file should say so.
pub fn forked() {
    if with(|life| life.aof.is_some()) {
        save(clock::now());
    }
}

/// The role changed. A master that was a replica may not know what its own master granted last.
pub fn role_changed(is_master: bool) {
    let now = clock::now();
    with(|life| life.aof = None);
    if is_master {
        state::with(|node| node.leads(config::restart_guard(), now));
        log_guard(now);
    } else {
        state::with(|node| node.follows());
    }
    save_at_once(now);
}

/// A replica has come: it should know at once what it needs if it is promoted.
pub fn replica_came() {
    with(|life| life.told = BootTime::default());
}

/// Parameters were set that decide whether everything is in the AOF, or whether locks can be evicted.
pub fn configured(ctx: Context<'_>, names: &[&CStr]) {
    state::with(state::configured);
    let any_of = |of: &[&[u8]]| names.iter().any(|name| of.iter().any(|of| name.to_bytes().eq_ignore_ascii_case(of)));
    let aof = any_of(&[b"appendonly", b"appendfsync", b"no-appendfsync-on-rewrite"]);
    let elsewhere = any_of(&[b"dir", b"appendfilename", b"appenddirname"]);
    // Set to what it was it changes nothing; each change to something less comes by here itself.
    if elsewhere || (aof && !start::everything_goes_to_aof(ctx)) {
        not_all_in_aof();
    }
    if any_of(&[b"maxmemory-policy", b"lock.restart-guard", b"appendonly", b"save"]) {
        inspect_configuration(ctx);
    }
}

/// From now on the AOF may not have everything, perhaps not even what this very transaction granted.
pub fn not_all_in_aof() {
    if with(|life| life.aof.take()).is_some() {
        save_at_once(clock::now());
    }
}

/// Looks whether the server may evict locks, and warns of what undermines the guard.
pub fn inspect_configuration(ctx: Context<'_>) {
    let evicts = !ctx.parameter_is(c"maxmemory-policy", "noeviction");
    losses::watch_evictions(evicts);
    if evicts {
        warn("maxmemory-policy lets the server evict keys, held locks too: set it to noeviction on a lock server");
    }
    let has_file = with(|life| life.keeper.is_some());
    if config::restart_guard() == GuardPolicy::Never
        && !has_file
        && ctx.parameter_is(c"appendonly", "no")
        && ctx.parameter_is(c"save", "")
    {
        warn(
            "without persistence, without a state file and with lock.restart-guard never this node forgets every grant \
             at a restart and grants them again at once",
        );
    }
}

/// An operator arms the guard for `ms` milliseconds, or lifts it (`None`). Answers how long it lasts; where the disk fails,
/// refuses with NOTYET: it is as the operator said, and the node promises nothing until that is on the disk.
pub fn guard_by_operator(ms: Option<u32>) -> Result<u64, Refusal> {
    let now = clock::now();
    state::with(|node| node.guard_by_operator(ms, now.boot));
    if ms.is_some() {
        log_guard(now);
    } else {
        notice("an operator lifted the guard: the node serves");
    }
    losses::settle();
    // Else a crash right after could bring a lifted guard back over what was granted since, or forget an armed one.
    save_at_once(now);
    state::with(|node| if node.ledger.is_ready() { Ok(node.guard.left_ms(now.boot)) } else { Err(Refusal::NotYet) })
}

/// An operator raises the floor of tokens to `token`, if that is higher. Answers where it is, once the disk knows.
pub fn raise_floor(token: Option<Token>) -> Result<u64, Refusal> {
    let now = clock::now();
    let (before, floor) = state::with(|node| {
        let before = node.tokens.floor();
        if let Some(token) = token {
            node.tokens.raise_floor(token.get());
        }
        (before, node.tokens.floor())
    });
    if floor > before {
        notice(&format!("an operator raised the floor of tokens from {before} to {floor}"));
        save_at_once(now);
        with(|life| life.told = BootTime::default());
        if !state::with(|node| node.ledger.is_ready()) {
            return Err(Refusal::NotYet);
        }
    }
    Ok(floor)
}

/// Tells the log how long the node is guarded, and why.
pub fn log_guard(now: Now) {
    let armed = state::with(|node| Some((node.guard.armed(now.boot)?.cause, node.guard.left_ms(now.boot))));
    if let Some((cause, left_ms)) = armed {
        notice(&format!(
            "this node may have forgotten grants ({}) and grants nothing for {left_ms} ms: LOCK.GUARD LIFT ends that if \
             you know that nobody holds a lock here",
            cause.word()
        ));
    }
}
