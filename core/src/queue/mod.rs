//! Requests that wait for a lock, and clients that watch one.

pub mod breaking;
mod kept;
pub mod leaving;
pub mod listening;
pub mod of_key;
mod planned;
pub mod shares;
pub mod waiting;
pub mod watching;
