//! A model of shared locks and permits over several nodes: the compatibility of modes, token floors and permit numbers,
//! as `core` decides them.
//!
//! The model has no time. A lease ends when a node drops a grant that its holder has given up. The restart guard of a
//! real node prevents an earlier loss. The model explores every order of requests, answers, drops and conversions.

mod broken;
mod node;
mod rules;
mod state;

pub use broken::broken;
pub use rules::FamilyRule;
pub use state::sound;
