//! The table of commands: the server is told of all of them, LOCK.HELP shows those that clients use.

#[cfg(debug_assertions)]
use super::panic;
use super::{
    acquire, break_lock, ceiling, check, effect, floor, guard, hear, held, help, info, log, members, node, release,
    set_members, top, wait, watch,
};
use crate::ffi::{Command, Context, Entry, register_command};

/// Every command; those for clients in the order in which HELP shows them.
const COMMANDS: &[Row] = &[
    for_clients::<acquire::Acquire>(),
    for_clients::<release::Release>(),
    for_clients::<held::Extend>(),
    for_clients::<held::Reenter>(),
    for_clients::<held::Convert>(),
    for_clients::<held::Note>(),
    for_clients::<held::Fence>(),
    for_clients::<check::Check>(),
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

/// A command in the table.
struct Row {
    command: Entry,
    is_for_clients: bool,
}

/// A command that clients use.
const fn for_clients<C: Command>() -> Row {
    Row { command: Entry::of::<C>(), is_for_clients: true }
}

/// A command that servers use among themselves, or tests.
const fn internal<C: Command>() -> Row {
    Row { command: Entry::of::<C>(), is_for_clients: false }
}

/// Makes every command known to the server.
pub fn register(ctx: Context<'_>) -> Result<(), String> {
    help::show(|| COMMANDS.iter().filter(|row| row.is_for_clients).map(|row| row.command.spec).collect());
    COMMANDS.iter().try_for_each(|row| register_command(ctx, &row.command))
}
