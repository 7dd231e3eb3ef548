//! A node's memory across incarnations, what must be on the disk before it promises anything, and what a start can
//! prove.

pub mod ledger;
pub mod node_state;
pub mod start;
pub mod ties;
