//! The table of all commands. All are registered with the server; LOCK.HELP shows those that are for clients.

#[cfg(debug_assertions)]
use super::panic;
use super::{
    acquire, break_lock, ceiling, check, effect, floor, gate, guard, hear, held, help, info, log, members, node,
    release, set_members, top, wait, watch,
};
use crate::ffi::{Command, Context, Entry, register_command};

/// All commands. Those for clients come in the order in which LOCK.HELP shows them.
const COMMANDS: &[Row] = &[
    for_clients::<acquire::Acquire>(),
    for_clients::<release::Release>(),
    for_clients::<held::Extend>(),
    for_clients::<held::Reenter>(),
    for_clients::<held::Convert>(),
    for_clients::<held::Note>(),
    for_clients::<held::Fence>(),
    for_clients::<check::Check>(),
    for_clients::<gate::Gate>(),
    for_clients::<wait::Wait>(),
    for_clients::<hear::Hear>(),
    for_clients::<info::Info>(),
    for_clients::<watch::Watch>(),
    for_clients::<break_lock::Break>(),
    for_clients::<node::Node>(),
    for_clients::<members::Members>(),
    for_clients::<set_members::SetMembers>(),
    for_clients::<guard::Guard>(),
    for_clients::<floor::Floor>(),
    for_clients::<log::Log>(),
    for_clients::<top::Top>(),
    for_clients::<help::Help>(),
    internal::<ceiling::Ceiling>(),
    internal::<effect::Effect>(),
    #[cfg(debug_assertions)]
    internal::<panic::Panic>(),
];

/// A command in the table: how to register it, and its description for LOCK.HELP.
struct Row {
    command: Entry,
    is_for_clients: bool,
}

/// Returns the row of a command for clients.
const fn for_clients<C: Command>() -> Row {
    Row { command: Entry::of::<C>(), is_for_clients: true }
}

/// Returns the row of a command that only servers or tests use; LOCK.HELP does not show it.
const fn internal<C: Command>() -> Row {
    Row { command: Entry::of::<C>(), is_for_clients: false }
}

/// Registers every command with the server.
pub fn register(ctx: Context<'_>) -> Result<(), String> {
    help::show(|| COMMANDS.iter().filter(|row| row.is_for_clients).map(|row| row.command.spec).collect());
    COMMANDS.iter().try_for_each(|row| register_command(ctx, &row.command))
}
