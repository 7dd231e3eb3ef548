//! A model of shared locks and permits over several nodes: compatibility, token floors and permit numbers as `core`
//! decides them.
//!
//! Time is left out: the end of a lease is a grant that a node drops after its holder has given it up, and the restart
//! guard keeps a node from forgetting one earlier. The model explores every order of requests, answers, drops and
//! conversions.

mod broken;
mod node;
mod rules;
mod state;

pub use broken::broken;
pub use rules::FamilyRule;
pub use state::sound;
