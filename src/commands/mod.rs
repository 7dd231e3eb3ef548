//! The commands, each with its request, rule, effects and reply; a file has one, or a few similar ones.
//! `palisade_core::request` declares their arguments, and [`table`] lists them all.

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
