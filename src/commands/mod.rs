//! The commands, one a file: request, rule, effects, reply. Their arguments are declared in `palisade_core::request`. The table has them all.

mod acquire;
mod break_lock;
mod ceiling;
mod check;
mod convert;
mod effect;
mod extend;
mod fence;
mod floor;
mod guard;
mod hear;
mod help;
mod info;
mod key;
mod log;
mod members;
mod node;
mod note;
#[cfg(debug_assertions)]
mod panic;
mod reenter;
mod release;
mod set_members;
mod table;
mod top;
mod wait;
mod watch;

pub use table::register;
