//! A model of shared locks and permits over several nodes: compatibility, token floors and permit numbers as `core` decides them.
//!
//! Time is left out: a lease that ends is a grant that a node drops after its holder has given it up, and the restart guard is what
//! keeps a node from forgetting one earlier. Every order of requests, answers, drops and conversions is looked at.

mod broken;
mod node;
mod rules;
mod state;

pub use broken::broken;
pub use rules::FamilyRule;
pub use state::sound;
