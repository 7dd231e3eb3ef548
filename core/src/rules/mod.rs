//! The rules: a file, with a function, for each command. A rule decides what happens to the lock, and the driver
//! performs it.

pub mod acquire;
pub mod break_lock;
pub mod check;
pub mod convert;
pub mod extend;
pub mod fence;
pub mod gate;
mod grant;
pub mod hand_over;
pub mod note;
pub mod on_grant;
pub mod reenter;
pub mod release;
pub mod renew;
pub mod wait;
pub mod watch;
