//! What a node keeps over its incarnations, what must be on the disk before what is promised, and what a start can prove.

pub mod ledger;
pub mod node_state;
pub mod start;
pub mod ties;
