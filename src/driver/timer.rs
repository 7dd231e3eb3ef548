//! The one timer for all events that no command causes: leases that end, waits that are over, queues to check.
//!
//! Timers of the server run on the wall clock, so a step of that clock can delay one. The server's cron event, which
//! does not depend on it, takes over then.

use std::cell::Cell;
use std::ops::RangeInclusive;

use palisade_core::engine::Work;
use palisade_core::request::Form;
use palisade_core::{BootTime, Now, Refusal};

use super::blocked_clients;
use super::perform::perform;
use super::{gates, listeners, pass, watchers};
use crate::ffi::{Context, KeyName, LockKey, OtherType, TimerId, put_together};
use crate::{clock, state};

/// The length of a slice of work, during which the server serves no clients, in microseconds: as long as it served
/// clients since the last slice, within these bounds. The lower bound is less than a request over the loopback takes. A
/// slice ends at the first reading of the clock after its time.
const SLICE_US: RangeInclusive<u64> = 25..=500;

/// The delay of the timer after which the cron event takes over, in microseconds. A timer is so late if the wall clock
/// was stepped, or writes were paused.
const LATE_US: u64 = 5_000;

/// The delay of the next slice after which the cron event takes over, in microseconds. It is long because a slow
/// command of a client may run between slices.
const STALLED_US: u64 = 1_000_000;

/// The least time by which work must be due earlier than the timer for the timer to be set anew, in microseconds: less
/// is not worth the cost.
const EARLIER_US: u64 = 2_000;

/// The longest time that a timer is set for, in milliseconds; later work is checked again then. After a module's timer
/// has run, Redis 7.0 calculates in 32 bits of microseconds when the next one is due. With more than 35 minutes left
/// that overflows into the past, and its event loop never sleeps again.
const SLEEP_MS_MAX: i64 = 1_800_000;

/// A timer, and the time of the work that it was set for.
#[derive(Clone, Copy)]
struct Armed {
    timer: TimerId,
    due: BootTime,
}

thread_local! {
    static ARMED: Cell<Option<Armed>> = const { Cell::new(None) };
    /// The end of the last slice, if more work was due than fitted into it: the next slice is scheduled.
    static BUSY: Cell<Option<BootTime>> = const { Cell::new(None) };
}

/// Returns the time of the next due work. An answer left from an earlier pass is due in the next pass.
fn next_due() -> Option<BootTime> {
    if blocked_clients::has_more() { Some(BootTime::default()) } else { state::with(|node| node.next_due()) }
}

/// Ensures that a timer runs for new work that is due at `due`; nothing else may have changed.
#[inline]
pub fn arm_for(ctx: Context<'_>, due: BootTime) {
    if ARMED.get().is_none_or(|armed| due.plus_us(EARLIER_US) <= armed.due) {
        arm(ctx);
    }
}

/// Ensures that a timer runs for the work that is due first.
pub fn arm(ctx: Context<'_>) {
    if BUSY.get().is_some() {
        return;
    }
    let Some(due) = next_due() else { return };
    match ARMED.get() {
        Some(armed) if due.plus_us(EARLIER_US) > armed.due => {}
        _ => {
            // A replica leaves this work to its master, and while data is loaded it is incomplete: cron arms the timer
            // later.
            if ctx.is_master() && !ctx.is_loading() {
                let ms = due.ms_since_rounded_up(clock::boot_now()) as i64;
                // A lock is held through its deadline, so the timer is for the moment after it. Work that is already
                // due is done in the next pass of the event loop.
                set(ctx, if ms > 0 { (ms + 1).min(SLEEP_MS_MAX) } else { 0 }, due);
            } else {
                disarm(ctx);
                // A replica answers watchers, too.
                if !ctx.is_loading() && state::with(|node| node.watching().next_due()) == Some(BootTime::default()) {
                    go_on_soon(ctx);
                }
            }
        }
    }
}

/// Handles the cron event: takes over from a timer that is late, and starts one after a change of role.
pub fn look_after(ctx: Context<'_>) {
    let now = clock::boot_now();
    if BUSY.get().is_some_and(|slice| now <= slice.plus_us(STALLED_US)) {
        return;
    }
    BUSY.set(None);
    let Some(due) = next_due() else { return };
    let late = now > due.plus_us(LATE_US);
    if late || ARMED.get().is_none() {
        disarm(ctx);
        run(ctx, *SLICE_US.start());
    }
}

/// Sets the one timer anew.
fn set(ctx: Context<'_>, ms: i64, due: BootTime) {
    disarm(ctx);
    ARMED.set(Some(Armed { timer: ctx.start_timer(ms, on_timer), due }));
}

fn disarm(ctx: Context<'_>) {
    if let Some(armed) = ARMED.take() {
        ctx.stop_timer(armed.timer);
    }
}

/// Starts due work in the next pass of the event loop.
pub fn go_on_soon(ctx: Context<'_>) {
    if BUSY.get().is_none() {
        BUSY.set(Some(clock::boot_now()));
        ctx.in_next_pass(go_on);
    }
}

fn on_timer(ctx: Context<'_>) {
    ARMED.set(None);
    // If the node is busy, the next slice is scheduled already.
    if BUSY.get().is_none() {
        run(ctx, *SLICE_US.start());
    }
}

/// Runs the next slice.
fn go_on(ctx: Context<'_>) {
    let since = BUSY.take().map_or(0, |slice| clock::boot_now().us_since(slice));
    run(ctx, since.clamp(*SLICE_US.start(), *SLICE_US.end()));
}

/// Does due work for one slice of `slice_us`, and sets the timer for the rest. If more is due now, further slices
/// follow, one in each pass of the event loop, after the pass has served its clients.
fn run(ctx: Context<'_>, slice_us: u64) {
    let start = clock::boot_now();
    let mut now = start;
    pass::begin();
    // Writing now could contradict the master, or fail an assertion in the server: cron tries again.
    let may_write = ctx.is_master() && !ctx.is_loading() && !ctx.must_not_write();
    // While data is being loaded it is incomplete.
    let may_look = !ctx.is_loading();
    let mut idle = false;
    while !idle && now.us_since(start) < slice_us {
        idle = !(state::with(|node| node.time_out(now))
            || pass::may_answer() && (blocked_clients::send_one_away(now) || listeners::time_out(now))
            || state::with(|node| node.let_one_leave(now))
            || may_look && pass::may_answer() && watchers::look_after(ctx, now)
            || may_write && (do_one(ctx, now) || gates::forget_one(ctx, now)));
        now = clock::boot_now();
    }
    if may_write {
        put_together();
    }
    BUSY.set(Some(now));
    blocked_clients::deliver();
    if !idle || !pass::may_answer() || blocked_clients::has_more() {
        ctx.in_next_pass(go_on);
        return;
    }
    BUSY.set(None);
    if may_write {
        arm(ctx);
    }
}

/// Does the work that has been due longest; returns false if none is.
fn do_one(ctx: Context<'_>, now: BootTime) -> bool {
    let Some(work) = state::with(|node| node.take_due(now, pass::may_answer())) else { return false };
    let key = work.key();
    ctx.select(key.db);
    KeyName::with(key.name, |key_name| match LockKey::write(ctx, key_name) {
        Ok(mut lock) => {
            // Renewing a lease answers no client, so its refusal matters to none.
            perform(
                ctx,
                &mut lock,
                &work.request(),
                &Form::Token.into(),
                Now { boot: now, ..clock::now() },
                |_, _, _| {},
            );
        }
        Err(OtherType) => state::with(|node| match &work {
            Work::Renew(renewal) => node.stop_renewing(renewal),
            Work::Break(breaking) => node.has_broken(breaking),
            Work::Expire(due) => node.forget_due(due),
            Work::Look(..) => node.postpone(key, Refusal::WrongType, now),
        }),
    });
    true
}
