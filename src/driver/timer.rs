//! The one timer for all that no command causes: leases that end, waits that time out, queues to check.
//!
//! The server's timers run on the wall clock, so a step of that clock can delay one. Then the server's cron takes over,
//! which does not depend on the wall clock.

use std::cell::Cell;
use std::ops::RangeInclusive;

use palisade_core::engine::Work;
use palisade_core::request::Form;
use palisade_core::{BootTime, Now, Refusal};

use super::blocked_clients;
use super::perform::perform;
use super::{gates, listeners, pass, watchers};
use crate::ffi::{Context, KeyName, LockKey, OtherType, TimerId, join_freed};
use crate::{clock, state};

/// The bounds of a slice's length, in microseconds. During a slice of work the server serves no clients. A slice is as
/// long as the server served clients since the last one, within these bounds. The lower bound is less than a request
/// over the loopback takes. The clock is read after each piece of work, so the piece that reaches the length is the
/// last.
const SLICE_US: RangeInclusive<u64> = 25..=500;

/// The delay of a timer, in microseconds, from which on the cron does its work. A timer is so late after a step of the
/// wall clock, or while writes are paused.
const LATE_US: u64 = 5_000;

/// The delay of the next slice of work, in microseconds, from which on the cron does it. It is long because a slow
/// command of a client may run between two slices.
const STALLED_US: u64 = 1_000_000;

/// If new work is due this much earlier than the timer, in microseconds, the timer is set anew. For less, that would
/// cost more than it gains.
const EARLIER_US: u64 = 2_000;

/// The longest time for which the timer is set, in milliseconds. If work is due later, the timer is then set again.
/// After a module's timer has run, Redis 7.0 calculates in 32 bits of microseconds when the next one is due. With more
/// than 35 minutes left the result overflows, and Redis's event loop never sleeps again.
const SLEEP_MS_MAX: i64 = 1_800_000;

/// The server's timer, and when the work is due for which it was set.
#[derive(Clone, Copy)]
struct Armed {
    timer: TimerId,
    due: BootTime,
}

thread_local! {
    static ARMED: Cell<Option<Armed>> = const { Cell::new(None) };
    /// The end of the last slice of work, as long as the next slice is planned because not all due work fitted into the
    /// last. `None` if no slice is planned.
    static BUSY: Cell<Option<BootTime>> = const { Cell::new(None) };
}

/// Returns the time of the next due work. Answers that are left from an earlier pass of the event loop are due in the
/// next one.
fn next_due() -> Option<BootTime> {
    if blocked_clients::has_more() { Some(BootTime::default()) } else { state::with(|node| node.next_due()) }
}

/// Has the timer set also for work that [`pass::work_is_due`] announces.
pub fn begin() {
    pass::do_work_with(arm);
}

/// Ensures that the timer runs for new work that is due at `due`. The caller knows that no other work has become due
/// earlier.
#[inline]
pub fn arm_for(ctx: Context<'_>, due: BootTime) {
    if ARMED.get().is_none_or(|armed| due.plus_us(EARLIER_US) <= armed.due) {
        arm(ctx);
    }
}

/// Ensures that the timer runs for the work that is due first.
pub fn arm(ctx: Context<'_>) {
    if BUSY.get().is_some() {
        return;
    }
    let Some(due) = next_due() else { return };
    match ARMED.get() {
        Some(armed) if due.plus_us(EARLIER_US) > armed.due => {}
        _ => {
            // A replica leaves this work to its master. While data is loaded it is incomplete. The cron sets the timer
            // later in both cases.
            if ctx.is_master() && !ctx.is_loading() {
                let ms = due.ms_since_rounded_up(clock::boot_now()) as i64;
                // A lock is held until its deadline is over, so the timer is set for the moment after it. Work that is
                // already due is done in the next pass of the event loop.
                set(ctx, if ms > 0 { (ms + 1).min(SLEEP_MS_MAX) } else { 0 }, due);
            } else {
                disarm(ctx);
                // A replica, too, answers watchers.
                if !ctx.is_loading() && state::with(|node| node.watching().next_due()) == Some(BootTime::default()) {
                    run_soon(ctx);
                }
            }
        }
    }
}

/// Does the due work if the timer is late or, as after a change of role, is not set. Called in the server's cron.
pub fn catch_up(ctx: Context<'_>) {
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

/// Sets the timer anew, for work that is due at `due`, in `ms` milliseconds.
fn set(ctx: Context<'_>, ms: i64, due: BootTime) {
    disarm(ctx);
    ARMED.set(Some(Armed { timer: ctx.start_timer(ms, on_timer), due }));
}

fn disarm(ctx: Context<'_>) {
    if let Some(armed) = ARMED.take() {
        ctx.stop_timer(armed.timer);
    }
}

/// Requests that due work is done in the next pass of the event loop.
pub fn run_soon(ctx: Context<'_>) {
    if BUSY.get().is_none() {
        BUSY.set(Some(clock::boot_now()));
        ctx.in_next_pass(run_slice);
    }
}

fn on_timer(ctx: Context<'_>) {
    ARMED.set(None);
    // If a slice of work is planned already, it will do this work too.
    if BUSY.get().is_none() {
        run(ctx, *SLICE_US.start());
    }
}

/// Does the next slice of due work, of the length that [`SLICE_US`] describes.
fn run_slice(ctx: Context<'_>) {
    let since = BUSY.take().map_or(0, |slice| clock::boot_now().us_since(slice));
    run(ctx, since.clamp(*SLICE_US.start(), *SLICE_US.end()));
}

/// Does due work for one slice of `slice_us`, and sets the timer for the rest. If more is due now, further slices
/// follow, one in each pass of the event loop, after the pass has served its clients.
fn run(ctx: Context<'_>, slice_us: u64) {
    let start = clock::boot_now();
    let mut now = start;
    pass::begin();
    // To write now could contradict the master, or fail an assertion in the server. The cron tries again later.
    let may_write = ctx.is_master() && !ctx.is_loading() && !ctx.must_not_write();
    let is_replica = !ctx.is_master();
    // While data is being loaded it is incomplete, so nothing is concluded from it.
    let may_look = !ctx.is_loading();
    let mut idle = false;
    while !idle && now.us_since(start) < slice_us {
        idle = !(state::with(|node| node.time_out(now))
            || pass::may_answer() && (blocked_clients::dismiss_next(now) || listeners::time_out(now))
            || state::with(|node| node.remove_one_left(now))
            || may_look && pass::may_answer() && watchers::do_due_work(ctx, now)
            || is_replica && state::with(|node| node.end_turns_due(now))
            || may_write && (do_one(ctx, now) || gates::forget_one(ctx, now)));
        now = clock::boot_now();
    }
    if may_write {
        join_freed();
    }
    BUSY.set(Some(now));
    blocked_clients::deliver();
    if !idle || !pass::may_answer() || blocked_clients::has_more() {
        ctx.in_next_pass(run_slice);
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
    if let Work::Expire(due) = &work
        && state::with(|node| node.put_off_expiry(due, now))
    {
        return true;
    }
    ctx.select(key.db);
    KeyName::with(key.name, |key_name| match LockKey::write(ctx, key_name) {
        Ok(mut lock) => {
            // A renewal has no client to answer, so a refusal is dropped.
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
            Work::Renew(renewal) => node.keepalives_mut().end(renewal),
            Work::Break(breaking) => node.answer_break(breaking),
            Work::Expire(due) => node.forget_due(due),
            Work::Look(..) => node.postpone(key, Refusal::WrongType, now),
        }),
    });
    true
}
