//! Changing the set of nodes.

mod asking;
mod changing;
mod planning;

pub use self::changing::set_nodes;
pub use self::planning::{Plan, plan};
