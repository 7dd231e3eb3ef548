//! What a server of a cluster tells about slots that come and go: little, so the module listens where operators speak.
//!
//! An import of an empty slot takes a millisecond. So that it is seen as one, CLUSTER SETSLOT is noticed when it comes (and
//! FLUSHSLOT), and the module looks once it was carried out, before its client can have said the next thing. Only in a cluster: it costs
//! every command a few instructions.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ops::RangeInclusive;

use super::api::{api, raw};
use super::boundary;
use super::context::{self, Context};
use super::string::string_bytes;

/// What the module does when slots come and go.
pub trait SlotEvents {
    /// A client said CLUSTER SETSLOT or FLUSHSLOT a moment ago, and was or was not obeyed.
    fn slots_change(ctx: Context<'_>);

    /// These slots are on their way here in one step with their keys, or are so no more.
    fn slots_arrive(slots: RangeInclusive<u16>, are_on_their_way: bool);
}

/// Valkey 9: a slot moves in one step with its keys.
const EVENT_ATOMIC_SLOT_MIGRATION: u64 = 19;

/// It begins to come here.
const IMPORT_STARTED: u64 = 0;

/// It does not come after all.
const IMPORT_ABORTED: u64 = 2;

/// What that event carries, in its first version.
#[repr(C)]
struct Migration {
    version: u64,
    job: [c_char; 41],
    ranges: *const Range,
    range_count: u32,
}

#[repr(C)]
struct Range {
    first: c_int,
    last: c_int,
}

thread_local! {
    /// The module looks in this pass of the event loop.
    static LOOKS: Cell<bool> = const { Cell::new(false) };
}

/// Has the server tell `E` of slots.
pub(super) fn subscribe<E: SlotEvents>(ctx: Context<'_>) -> Result<(), String> {
    // A load that came to nothing may have left one that never came.
    LOOKS.set(false);
    // SAFETY: the module is being loaded.
    let filter = unsafe { api!(RedisModule_RegisterCommandFilter(ctx.raw(), Some(on_command::<E>), 0)) };
    if filter.is_null() {
        return Err("the server did not take a filter of commands".to_owned());
    }
    if ctx.is_valkey() {
        let event = raw::RedisModuleEvent { id: EVENT_ATOMIC_SLOT_MIGRATION, dataver: 1 };
        // SAFETY: the module is being loaded. A server that does not know this event refuses: then no slot moves in this way.
        unsafe { api!(RedisModule_SubscribeToServerEvent(ctx.raw(), event, Some(on_migration::<E>))) };
    }
    Ok(())
}

extern "C" fn on_command<E: SlotEvents>(filter: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server's record of the command lasts for the call, and so do its arguments.
    let argument = |n| unsafe {
        let argument = api!(RedisModule_CommandFilterArgGet(filter, n));
        if argument.is_null() { &[][..] } else { string_bytes(argument) }
    };
    boundary::run(c"a filter of commands", || {
        let is_of_slots = |word: &[u8]| [&b"SETSLOT"[..], b"FLUSHSLOT"].iter().any(|of| word.eq_ignore_ascii_case(of));
        if argument(0).eq_ignore_ascii_case(b"CLUSTER") && is_of_slots(argument(1)) && !LOOKS.get() {
            LOOKS.set(true);
            context::detached(|ctx| {
                ctx.start_timer(0, |ctx| {
                    LOOKS.set(false);
                    E::slots_change(ctx);
                });
            });
        }
    });
}

extern "C" fn on_migration<E: SlotEvents>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    boundary::run(c"a migration of slots", || {
        let are_on_their_way = match subevent {
            IMPORT_STARTED => true,
            IMPORT_ABORTED => false,
            _ => return,
        };
        // SAFETY: the event carries this struct, with as many ranges as it says, for the length of the call.
        let ranges = unsafe {
            let migration = &*data.cast::<Migration>();
            std::slice::from_raw_parts(migration.ranges, migration.range_count as usize)
        };
        for Range { first, last } in ranges {
            if let (Ok(first), Ok(last)) = (u16::try_from(*first), u16::try_from(*last)) {
                E::slots_arrive(first..=last, are_on_their_way);
            }
        }
    });
}
