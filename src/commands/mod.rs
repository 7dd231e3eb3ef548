//! The commands, one a file: arguments, request, rule, effects, reply.

mod acquire;
mod break_lock;
mod ceiling;
mod check;
mod effect;
mod extend;
mod fence;
mod floor;
mod guard;
mod help;
mod info;
mod node;
#[cfg(debug_assertions)]
mod panic;
mod reenter;
mod release;
mod wait;

pub use acquire::Acquire;
pub use wait::Wait;

use palisade_core::Refusal;

use crate::ffi::{Call, Command, Context, LockKey, NotALock, Spec, register_command};

/// The version that the commands came with.
const SINCE: &std::ffi::CStr = c"0.1.0";

/// One key look-up, whatever the number of locks.
const CONSTANT: &std::ffi::CStr = c"O(1)";

/// The commands that clients use, in the order in which HELP shows them.
const PUBLIC: [&Spec; 13] = [
    &acquire::Acquire::SPEC,
    &release::Release::SPEC,
    &extend::Extend::SPEC,
    &reenter::Reenter::SPEC,
    &fence::Fence::SPEC,
    &check::Check::SPEC,
    &wait::Wait::SPEC,
    &info::Info::SPEC,
    &break_lock::Break::SPEC,
    &node::Node::SPEC,
    &guard::Guard::SPEC,
    &floor::Floor::SPEC,
    &help::Help::SPEC,
];

/// Makes every command known to the server.
pub fn register(ctx: Context<'_>) -> Result<(), String> {
    register_command::<acquire::Acquire>(ctx)?;
    register_command::<release::Release>(ctx)?;
    register_command::<extend::Extend>(ctx)?;
    register_command::<reenter::Reenter>(ctx)?;
    register_command::<fence::Fence>(ctx)?;
    register_command::<check::Check>(ctx)?;
    register_command::<wait::Wait>(ctx)?;
    register_command::<info::Info>(ctx)?;
    register_command::<break_lock::Break>(ctx)?;
    register_command::<node::Node>(ctx)?;
    register_command::<guard::Guard>(ctx)?;
    register_command::<floor::Floor>(ctx)?;
    register_command::<help::Help>(ctx)?;
    register_command::<ceiling::Ceiling>(ctx)?;
    register_command::<effect::Effect>(ctx)?;
    #[cfg(debug_assertions)]
    register_command::<panic::Panic>(ctx)?;
    Ok(())
}

/// The key of `call`, open to change its lock.
fn open<'a>(call: &'a Call<'a>) -> Result<LockKey<'a>, Refusal> {
    LockKey::write(call.ctx, call.key()).map_err(|NotALock| Refusal::WrongType)
}

/// The key of `call`, open to look at its lock.
fn look<'a>(call: &'a Call<'a>) -> Result<LockKey<'a>, Refusal> {
    LockKey::read(call.ctx, call.key()).map_err(|NotALock| Refusal::WrongType)
}
