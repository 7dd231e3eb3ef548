//! The public API of the crate: the client, its guards and options, and their blocking twins.

pub mod blocking;
pub mod builder;
pub mod changes;
pub mod client;
pub mod election;
pub mod gate;
pub mod guard;
mod held;
pub mod options;
pub mod rw_lock;
pub mod semaphore;
pub mod session;
