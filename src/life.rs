//! This life of the node: what it keeps on the disk, when it is ready to promise, what it hears from its master.
//!
//! Whatever a later life must know is on the disk before this one relies on it: the ceiling above which it issues no
//! token, the guard, and whether the AOF has everything. Where that is not so yet, promises are refused with NOTYET for
//! the milliseconds that a write takes. Only where an operator ends something that a later life would believe (the AOF's
//! settings, the role, a flush of live locks, an armed guard) is the write waited for, since what was promised in the
//! very same transaction may depend on it.

use std::cell::RefCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use palisade_core::{
    BootTime, Cause, LifeId, Lock, NodeState, Now, Owed, Refusal, StripeCeiling, Token, promote, stripes_to_text,
};

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

/// What this life knows of itself.
pub struct Life {
    /// Writes the state file; `None`: the node has none.
    pub keeper: Option<Keeper>,
    /// Says beside the data that this life uses it.
    pub stamp: DataStamp,
    /// That is done.
    pub is_stamped: bool,
    /// What the last life left, until it is decided what it proves.
    pub last: Option<LastLife>,
    /// See [`NodeState`].
    pub id: u128,
    /// See [`NodeState`].
    pub incarnation: u64,
    /// The longest lease that may still run.
    pub owed: Owed,
    /// Everything granted in this life is in this AOF.
    pub aof: Option<AofFolder>,
    /// The highest ceiling handed to the keeper, or heard of.
    pub ceiling: u64,
    /// When an operator lifted a guard last.
    pub lifted: BootTime,
    /// What the keeper was handed last.
    pub handed: Handed,
    /// The state with this number must be on the disk before anything is promised.
    pub needed: u64,
    /// It was decided what the last life proves.
    pub decided: bool,
    /// When replicas were told last.
    pub told: BootTime,
    /// The last change in ceilings of stripes that they were told of.
    pub told_stripe_change: u64,
    /// The last write of the state file failed, and that was logged.
    pub failing: bool,
    /// The stamp could not be put, and that was logged.
    pub is_stamp_failing: bool,
}

/// What of a state is looked at again once it was handed to the keeper.
#[derive(Clone, Copy, Debug, Default)]
pub struct Handed {
    /// The state's number.
    number: u64,
    /// Its ceiling.
    ceiling: u64,
    /// The last change in its ceilings of stripes.
    stripe_change: u64,
    /// Its longest lease.
    owed_ms: u32,
}

thread_local! {
    static LIFE: RefCell<Option<Life>> = const { RefCell::new(None) };
}

/// Nothing stands in the way of promises: the fast answer to the question of every command. Of the main thread, as all here.
static READY: AtomicBool = AtomicBool::new(false);

/// What an earlier load of the module left goes, and with it its locks on the state file: the server did not keep it.
pub fn forget() {
    LIFE.take();
}

/// This life begins.
pub fn begin(life: Life) {
    LIFE.set(Some(life));
    READY.store(false, Relaxed);
}

/// Calls `body` with this life. No call to the server that can call back may be made in it.
pub fn with<T>(body: impl FnOnce(&mut Life) -> T) -> T {
    LIFE.with_borrow_mut(|life| body(life.as_mut().expect("the module is loaded before it is called")))
}

/// Whether the node is ready to promise: its start is decided, and what a later life must know is on the disk.
pub fn ready(ctx: Context<'_>) -> Result<(), Refusal> {
    if READY.load(Relaxed) {
        return Ok(());
    }
    if !with(|life| life.decided) {
        start::decide(ctx);
    }
    if with(|life| life.is_saved()) {
        refresh_ceiling();
        READY.store(true, Relaxed);
        return Ok(());
    }
    // While the node is guarded, that is what a client has to wait for.
    let now = clock::boot_now();
    state::with(|node| node.guard.serve(now)).and(Err(Refusal::NotYet))
}

/// Runs a rule that may need a token. If the ceiling is in its way, what is on the disk by now may be enough; else the
/// ceiling is raised in the background.
pub fn with_tokens<T>(
    now: Now,
    mut rule: impl FnMut(&mut palisade_core::Node) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let result = state::with(&mut rule);
    if !matches!(result, Err(Refusal::NotYet)) {
        return result;
    }
    refresh_ceiling();
    let result = state::with(&mut rule);
    if matches!(result, Err(Refusal::NotYet)) {
        raise_ceiling(now);
    }
    result
}

impl Life {
    fn is_saved(&self) -> bool {
        self.is_stamped && self.keeper.as_ref().is_none_or(|keeper| keeper.saved() >= self.needed && !keeper.is_taken())
    }

    /// Says beside the data that this life uses it. Promises wait for that, so every tick tries again: the log is told
    /// once that it fails, and once that it does no more.
    pub fn put_stamp(&mut self) {
        let result = self.stamp.put(LifeId { node: self.id, incarnation: self.incarnation });
        self.is_stamped = result.is_ok();
        let was_failing = std::mem::replace(&mut self.is_stamp_failing, result.is_err());
        match result {
            Err(why) if !was_failing => warn(&format!(
                "{why}. It says that another life used the data here, and would be believed later: nothing is granted until \
                 it can be replaced"
            )),
            Ok(()) if was_failing => notice("the stamp of another life beside the data is gone: grants go on"),
            _ => {}
        }
    }

    /// What the state file should say at `now`.
    pub fn snapshot(&mut self, now: Now) -> Stated {
        state::with(|node| {
            node.tokens.sweep_stripes(now.boot);
            self.ceiling = self.ceiling.max(node.tokens.wanted_ceiling(now.wall_us, node.skew_ms));
            let (stripes, stripe_change) = node.tokens.stripe_ceilings();
            let owed_ms = self.owed.ms(now.boot);
            self.handed = Handed { ceiling: self.ceiling, stripe_change, owed_ms, ..self.handed };
            let state = NodeState {
                file: None,
                id: self.id,
                incarnation: self.incarnation,
                ceiling: self.ceiling,
                stripes,
                owed_ms,
                master: self.owed.master(),
                boot: clock::boot_id(),
                guard: node.saved_guard(now.boot),
                lifted: self.lifted,
                unproved_before: node.unproved_before(owed_ms, now.boot),
                aof: None,
                end: None,
            };
            Stated { state, aof: self.aof.clone() }
        })
    }

    /// Has the state written; promises go on meanwhile.
    pub fn save(&mut self, now: Now) -> u64 {
        // Before the start is decided the file still has what the last life proves.
        if !self.decided || self.keeper.is_none() {
            return 0;
        }
        let state = self.snapshot(now);
        self.handed.number = self.keeper.as_ref().map_or(0, |keeper| keeper.save(state));
        self.handed.number
    }

    /// Writes the state before anything else happens: something that a later life would believe is true no more, and
    /// what is promised in this very command may already depend on it. Only what operators do comes here. If the disk
    /// fails, promises wait until it does not.
    pub fn save_at_once(&mut self, now: Now) {
        if !self.decided || self.keeper.is_none() {
            return;
        }
        let state = self.snapshot(now);
        if let Some(keeper) = &self.keeper {
            self.handed.number = keeper.save_now(state);
            self.needed = self.handed.number.max(self.needed);
        }
        READY.store(false, Relaxed);
    }
}

/// The ceilings on the disk are what tokens are issued up to.
pub fn refresh_ceiling() {
    with(|life| {
        let Some(keeper) = &life.keeper else { return };
        state::with(|node| {
            node.tokens.set_ceiling(keeper.ceiling());
            if keeper.saved() >= life.handed.number {
                node.tokens.stripes_saved(life.handed.stripe_change);
            }
        });
    });
}

/// Has the ceilings raised, unless that is under way.
fn raise_ceiling(now: Now) {
    with(|life| {
        let (wanted, stripe_change) =
            state::with(|node| (node.tokens.wanted_ceiling(now.wall_us, node.skew_ms), node.tokens.stripe_changes()));
        if wanted > life.ceiling || stripe_change > life.handed.stripe_change {
            life.save(now);
        }
    });
}

/// Ten times a second.
pub fn tick(ctx: Context<'_>) {
    // What was refused for want of a write, or waits for the end of a start, goes on even if no command comes.
    let _ = ready(ctx);
    let now = clock::now();
    state::with(|node| node.evicted.sweep(now.boot));
    losses::settle();
    refresh_ceiling();
    with(|life| {
        if life.keeper.as_ref().is_some_and(Keeper::is_taken) {
            READY.store(false, Relaxed);
        }
        if life.decided && !life.is_stamped {
            life.put_stamp();
        }
        let Handed { ceiling, stripe_change, owed_ms, .. } = life.handed;
        let (used_up, changed) = state::with(|node| {
            (node.tokens.uses_up(ceiling, now.wall_us, node.skew_ms), node.tokens.stripe_changes() > stripe_change)
        });
        // And when more was heard of than the disk knows.
        if used_up || changed || life.ceiling > ceiling || life.owed.ms(now.boot) > owed_ms {
            life.save(now);
        }
    });
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
    let (ceiling, owed_ms) = with(|life| {
        (life.told, life.told_stripe_change) = (now.boot, changes);
        (life.ceiling, life.owed.ms(now.boot))
    });
    if ctx.info_number(c"replication", c"connected_slaves").is_some_and(|replicas| replicas > 0) {
        let (far, stripes) = state::with(|node| node.tokens.to_tell(now.wall_us, node.skew_ms));
        ctx.replicate_to_replicas(CEILING, ceiling.max(far), owed_ms.into(), c"STRIPES", &stripes_to_text(&stripes));
    }
}

/// A master's ceiling and what it owes, heard by a replica.
pub fn heard(ceiling: u64, owed_ms: u32, stripes: &[StripeCeiling]) {
    state::with(|node| node.tokens.learn_stripes(stripes));
    with(|life| {
        life.ceiling = life.ceiling.max(ceiling);
        life.owed.follow(Some(owed_ms));
    });
}

/// The data of a master is loaded: what another told before is nothing to go by.
pub fn follows_anew() {
    with(|life| life.owed.follow(None));
}

/// The server forked. If that is to rewrite the AOF, a new file goes on from here, and the state file should say so.
pub fn forked() {
    let now = clock::now();
    with(|life| {
        if life.aof.is_some() {
            life.save(now);
        }
    });
}

/// When an operator lifted a guard last.
pub fn lifted() -> BootTime {
    with(|life| life.lifted)
}

/// A lock was loaded or replicated: its lease may be longer than this node grants.
pub fn seen(lock: &Lock) {
    if lock.ttl_ms() > config::max_ttl_ms() {
        let now = clock::boot_now();
        with(|life| life.owed.raise(lock.ttl_ms(), config::max_clock_skew_ms(), now));
    }
}

/// The role changed. A master that was a replica may not know what its own master granted last.
pub fn role_changed(is_master: bool) {
    let now = clock::now();
    with(|life| {
        life.aof = None;
        if is_master {
            life.owed.lead(config::max_clock_skew_ms(), now.boot);
        } else {
            life.owed.follow(None);
        }
    });
    if is_master {
        let (ceiling, owed_ms) = with(|life| (life.ceiling, life.owed.ms(now.boot)));
        state::with(|node| promote(config::restart_guard(), ceiling, owed_ms, node, now));
        log_guard(now);
    }
    with(|life| life.save_at_once(now));
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
    let now = clock::now();
    with(|life| {
        if life.aof.take().is_some() {
            life.save_at_once(now);
        }
    });
}

/// Looks whether the server may evict locks, and warns of what undermines the guard.
pub fn inspect_configuration(ctx: Context<'_>) {
    let evicts = !ctx.parameter_is(c"maxmemory-policy", "noeviction");
    losses::watch_evictions(evicts);
    if evicts {
        warn("maxmemory-policy lets the server evict keys, held locks too: set it to noeviction on a lock server");
    }
    let has_file = with(|life| life.keeper.is_some());
    if config::restart_guard() == palisade_core::GuardPolicy::Never
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
    let left = state::with(|node| {
        match ms {
            Some(ms) => node.guard.arm(Cause::Operator, now.boot, now.boot.plus_ms(ms)),
            None => {
                node.guard.lift();
                node.slots.lift();
            }
        }
        node.guard.left_ms(now.boot)
    });
    if ms.is_some() {
        log_guard(now);
    } else {
        notice("an operator lifted the guard: the node serves");
    }
    losses::settle();
    with(|life| {
        if ms.is_none() {
            life.lifted = now.boot;
            life.owed.lift(config::max_clock_skew_ms(), now.boot);
        }
        // Else a crash right after could bring a lifted guard back over what was granted since, or forget an armed one.
        life.save_at_once(now);
        if life.is_saved() { Ok(left) } else { Err(Refusal::NotYet) }
    })
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
        with(|life| {
            life.save_at_once(now);
            life.told = BootTime::default();
        });
        refresh_ceiling();
        if !with(|life| life.is_saved()) {
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
