//! Requests that wait for a lock.

pub mod of_key;
pub mod wait_times;
pub mod waiting;
