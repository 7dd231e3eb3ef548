//! A model of shared locks and permits over several nodes: compatibility, token floors and permit numbers as `core`
//! decides them.
//!
//! There is no time. A lease ends when a node drops a grant that its holder has given up; the restart guard keeps a
//! node from losing one earlier. The model explores every order of requests, answers, drops and conversions.

mod broken;
mod node;
mod rules;
mod state;

pub use broken::broken;
pub use rules::FamilyRule;
pub use state::sound;
