//! Sets timers of the server, and schedules calls for the next pass of its event loop.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::api::{api, raw};
use super::boundary;
use super::context::{Context, detached};

/// The id of a timer that was set.
#[derive(Clone, Copy, Debug)]
pub struct TimerId(raw::RedisModuleTimerID);

impl Context<'_> {
    /// Calls `callback` once, `ms` milliseconds from now by the *wall* clock, so a step of that clock makes the call
    /// early or late.
    pub fn start_timer(self, ms: i64, callback: fn(Context<'_>)) -> TimerId {
        // SAFETY: the context is live; the timer's data is the callback itself, which lives as long as the module.
        TimerId(unsafe { api!(RedisModule_CreateTimer(self.raw(), ms, Some(on_timer), callback as *mut c_void)) })
    }

    /// Calls `callback` in the next pass of the event loop, after the commands that clients have sent by then; up to a
    /// millisecond later if another timer is due. The event loop does not sleep before that. (A timer of 0 ms does the
    /// same, except if a timer starts it: then the event loop sleeps for a millisecond.)
    pub fn in_next_pass(self, callback: fn(Context<'_>)) {
        extern "C" fn on_wake(data: *mut c_void) {
            // What is written here would not reach replicas or the AOF. So this sets a timer.
            detached(|ctx| {
                // SAFETY: the context is live; the timer's data is the callback, as in `start_timer`.
                unsafe { api!(RedisModule_CreateTimer(ctx.raw(), 0, Some(on_timer), data)) };
            });
        }
        // SAFETY: the callback's data is a function, which lives as long as the module.
        unsafe { api!(RedisModule_EventLoopAddOneShot(Some(on_wake), callback as *mut c_void)) };
    }

    /// Stops a timer, if it has not yet called back.
    pub fn stop_timer(self, timer: TimerId) {
        // SAFETY: the context is live; the server looks the id up; the data is not asked for.
        unsafe { api!(RedisModule_StopTimer(self.raw(), timer.0, null_mut())) };
    }
}

/// Calls `callback` in the next pass of the event loop, as [`Context::in_next_pass`] does. For callbacks that the
/// server calls without a context.
pub fn in_next_pass(callback: fn(Context<'_>)) {
    detached(|ctx| ctx.in_next_pass(callback));
}

extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    boundary::run("a timer", || {
        // SAFETY: all timers are made by this file, and their data is such a function.
        let callback: fn(Context<'_>) = unsafe { std::mem::transmute(data) };
        // SAFETY: the server's context lasts for the call.
        callback(unsafe { Context::new(ctx) });
    });
}
