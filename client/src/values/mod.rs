//! Values that all other modules use: errors and their reasons, clocks, names of attempts.

pub mod attempt_name;
pub mod clock;
pub mod error;
pub mod failure;
pub mod holder_id;
pub mod loss;
pub mod shown_key;
pub mod tls_fault;
