//! Changes the set of nodes of a quorum.

mod asking;
mod changing;
mod planning;

pub use self::changing::{ServerKnowledge, Surveyed, set_nodes, survey};
pub use self::planning::{Plan, plan};
