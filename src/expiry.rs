//! Deleting locks whose lease has ended.
//!
//! A lock is free the moment its lease ends, whether or not it is still in memory; this only cleans up. One timer
//! stands for the earliest deadline. Timers of the server run on the wall clock, so a step of it can keep one
//! asleep: the cron event, which does not, looks after it.

use std::cell::Cell;

use palisade_core::BootTime;

use crate::ffi::{Context, KeyName, LockKey, TimerId};
use crate::{clock, effects, state};

/// How long one slice of work may keep the server from its clients, in microseconds.
const SLICE_US: u64 = 1_000;

/// Between slices, in milliseconds: clients get at least as much time as the clean-up.
const PAUSE_MS: i64 = 1;

/// How late the timer may be before the cron event takes over, in microseconds: then the wall clock was stepped, or
/// writes were paused.
const LATE_US: u64 = 5_000;

/// How much earlier a deadline must be than the timer's for the timer to be set anew, in microseconds: less is not
/// worth a new timer.
const EARLIER_US: u64 = 2_000;

/// A timer, and what it was set for.
#[derive(Clone, Copy)]
struct Armed {
    timer: TimerId,
    due: BootTime,
}

thread_local! {
    static ARMED: Cell<Option<Armed>> = const { Cell::new(None) };
}

/// Sees to it that a timer runs for the earliest deadline.
pub fn arm(ctx: Context<'_>) {
    let Some(due) = state::with(|node| node.deadlines.earliest()) else { return };
    match ARMED.get() {
        Some(armed) if due.plus_us(EARLIER_US) > armed.due => {}
        armed => {
            if let Some(armed) = armed {
                ctx.stop_timer(armed.timer);
            }
            // A replica waits for its master's word, and what is being loaded may not be complete: cron arms later.
            if ctx.is_master() && !ctx.is_loading() {
                // A lock is held through its deadline, so the timer is for the moment after it.
                let ms = due.ms_since_rounded_up(clock::boot_now()) as i64 + 1;
                set(ctx, ms, due);
            } else {
                ARMED.set(None);
            }
        }
    }
}

/// The cron event: takes over from a timer that is late, and starts one after a change of role.
pub fn look_after(ctx: Context<'_>) {
    let Some(due) = state::with(|node| node.deadlines.earliest()) else { return };
    let late = clock::boot_now() > due.plus_us(LATE_US);
    if late || ARMED.get().is_none() {
        if let Some(armed) = ARMED.take() {
            ctx.stop_timer(armed.timer);
        }
        expire(ctx);
    }
}

fn set(ctx: Context<'_>, ms: i64, due: BootTime) {
    ARMED.set(Some(Armed { timer: ctx.start_timer(ms, on_timer), due }));
}

fn on_timer(ctx: Context<'_>) {
    ARMED.set(None);
    expire(ctx);
}

/// Deletes locks whose lease has ended, for one slice, and sets the timer for the rest.
fn expire(ctx: Context<'_>) {
    // Writing now would be against the master's word, or a failed assertion of the server: cron tries again.
    if !ctx.is_master() || ctx.is_loading() || ctx.must_not_write() {
        return;
    }
    let start = clock::boot_now();
    let mut now = start;
    while now.us_since(start) < SLICE_US {
        if !expire_one(ctx, now) {
            return arm(ctx);
        }
        now = clock::boot_now();
    }
    let due = state::with(|node| node.deadlines.earliest());
    if let Some(due) = due {
        set(ctx, PAUSE_MS, due);
    }
}

/// Deals with the entry that has been due longest; `false` if none is due.
fn expire_one(ctx: Context<'_>, now: BootTime) -> bool {
    let Some(due) = state::with(|node| node.deadlines.pop_due(now)) else { return false };
    ctx.select(due.db);
    KeyName::with(&due.name, |name| {
        // Not a lock any more: somebody overwrote the key, and its entry should have gone with it.
        let Ok(mut key) = LockKey::write(ctx, name) else { return };
        match key.lock() {
            Some(lock) if due.is_of(lock) => {
                effects::freed(ctx, &mut key);
                state::with(|node| node.counters.expiries += 1);
            }
            // The entry of an earlier lock under this name, or of none: it should have gone with its lock.
            _ => {}
        }
    });
    true
}
