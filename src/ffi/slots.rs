//! Notices slots that move to and from a server of a cluster. The server reports little of that, so the module watches
//! operators' commands.
//!
//! To import an empty slot takes a millisecond. To notice even that, the module watches for the CLUSTER commands that
//! give or take slots. It reads the slots before such a command is performed, because a slot may have left a moment
//! ago, or come by an earlier command, and again after it. The module does this only in a cluster, because it costs
//! every command a few instructions.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ops::RangeInclusive;

use palisade_core::MigrationId;

use super::api::{api, raw};
use super::boundary;
use super::context::{self, Context};
use super::string::string_bytes;

/// The handlers for slots that move.
pub trait SlotEvents {
    /// Called before a client's command of [`CHANGE_SLOTS`] is performed or refused, and after it.
    fn on_slot_command(ctx: Context<'_>);

    /// Called when the migration `by` of these slots to this node, in one step with their keys, begins, fails or ends.
    fn on_slots_coming(ctx: Context<'_>, by: MigrationId, slots: &[RangeInclusive<u16>], progress: Progress);

    /// Called when the migration `id` of slots to another node, in one step with their keys, begins, fails or ends.
    fn on_slots_leaving(id: MigrationId, progress: Progress);
}

/// The progress of a migration of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The keys begin to move; their source still serves the slots.
    Begins,
    /// The migration failed, so the slots stay where they are. (If it failed in its last milliseconds, the target may
    /// take them all the same.)
    Fails,
    /// The migration is done: the target serves the slots from now on.
    Ends,
}

/// The subcommands of CLUSTER that give slots to a node, take them from it or empty them.
const CHANGE_SLOTS: [&[u8]; 9] = [
    b"SETSLOT",
    b"MIGRATESLOTS",
    b"FLUSHSLOT",
    b"ADDSLOTS",
    b"ADDSLOTSRANGE",
    b"DELSLOTS",
    b"DELSLOTSRANGE",
    b"FLUSHSLOTS",
    b"RESET",
];

/// The number of the event about slots that move in one step with their keys (Valkey 9).
const EVENT_ATOMIC_SLOT_MIGRATION: u64 = 19;

const IMPORT_STARTED: u64 = 0;
const EXPORT_STARTED: u64 = 1;
const IMPORT_ABORTED: u64 = 2;
const EXPORT_ABORTED: u64 = 3;
const IMPORT_COMPLETED: u64 = 4;
const EXPORT_COMPLETED: u64 = 5;

/// The data of the event [`EVENT_ATOMIC_SLOT_MIGRATION`], in its first version.
#[repr(C)]
struct Migration {
    version: u64,
    id: MigrationId,
    id_end: c_char,
    ranges: *const Range,
    range_count: u32,
}

#[repr(C)]
struct Range {
    first: c_int,
    last: c_int,
}

thread_local! {
    /// True if a timer is set that reads the slots after a command that moves slots: within about a millisecond.
    static LOOKS: Cell<bool> = const { Cell::new(false) };
}

/// Subscribes the handlers `E`: begins to watch the server's commands and, on a Valkey, migrations of slots.
pub(super) fn subscribe<E: SlotEvents>(ctx: Context<'_>) -> Result<(), String> {
    // If an earlier load of the module failed, this may still be true, and no timer will reset it.
    LOOKS.set(false);
    // SAFETY: the module is being loaded.
    let filter = unsafe { api!(RedisModule_RegisterCommandFilter(ctx.raw(), Some(on_command::<E>), 0)) };
    if filter.is_null() {
        return Err("the server did not take a filter of commands".to_owned());
    }
    if ctx.is_valkey() {
        let event = raw::RedisModuleEvent { id: EVENT_ATOMIC_SLOT_MIGRATION, dataver: 1 };
        // SAFETY: the module is being loaded. A server that does not know this event refuses: then no slot moves in
        // this way.
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
    boundary::run("a filter of commands", || {
        let changes_slots = |word: &[u8]| CHANGE_SLOTS.iter().any(|of| word.eq_ignore_ascii_case(of));
        if argument(0).eq_ignore_ascii_case(b"CLUSTER") && changes_slots(argument(1)) {
            context::detached(|ctx| {
                E::on_slot_command(ctx);
                if !LOOKS.replace(true) {
                    ctx.start_timer(0, |ctx| {
                        LOOKS.set(false);
                        E::on_slot_command(ctx);
                    });
                }
            });
        }
    });
}

extern "C" fn on_migration<E: SlotEvents>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    boundary::run("a migration of slots", || {
        // SAFETY: the event carries this struct, with as many ranges as it says, for the length of the call.
        let (id, ranges) = unsafe {
            let migration = &*data.cast::<Migration>();
            (migration.id, std::slice::from_raw_parts(migration.ranges, migration.range_count as usize))
        };
        let progress = match subevent {
            IMPORT_STARTED | EXPORT_STARTED => Progress::Begins,
            IMPORT_ABORTED | EXPORT_ABORTED => Progress::Fails,
            IMPORT_COMPLETED | EXPORT_COMPLETED => Progress::Ends,
            _ => return,
        };
        if [EXPORT_STARTED, EXPORT_ABORTED, EXPORT_COMPLETED].contains(&subevent) {
            return E::on_slots_leaving(id, progress);
        }
        let range = |range: &Range| Some(u16::try_from(range.first).ok()?..=u16::try_from(range.last).ok()?);
        let slots: Vec<_> = ranges.iter().filter_map(range).collect();
        // SAFETY: the server's context lasts for the call.
        E::on_slots_coming(unsafe { Context::new(ctx) }, id, &slots, progress);
    });
}
