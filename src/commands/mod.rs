//! The commands, each in a file or with similar ones: request, rule, effects, reply. `palisade_core::request` declares
//! their arguments. The table has them all.

mod acquire;
mod break_lock;
mod ceiling;
mod check;
mod effect;
mod floor;
mod gate;
mod guard;
mod hear;
mod held;
mod help;
mod info;
mod key;
mod log;
mod members;
mod node;
#[cfg(debug_assertions)]
mod panic;
mod release;
mod set_members;
mod table;
mod top;
mod wait;
mod watch;

pub use table::register;
