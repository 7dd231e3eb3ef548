//! Requests that wait for a lock, and those that watch one.

mod kept;
pub mod of_key;
mod planned;
pub mod wait_times;
pub mod waiting;
pub mod watching;
