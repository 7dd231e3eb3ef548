//! Requests that wait for a lock.

mod kept;
pub mod of_key;
pub mod wait_times;
pub mod waiting;
