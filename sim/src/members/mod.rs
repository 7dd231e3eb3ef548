//! Models of a node set that changes while locks are held, on the rules of `core` themselves.
//!
//! `locks` covers clients that work with different versions of the set. `agreement` covers changers that want different
//! versions at once, or die halfway. Both explore every order of questions, answers, decisions and notices.

mod agreement;
mod bounds;
mod list;
mod locks;
mod rules;

pub use rules::broken;

use crate::checker::Bounded;

/// Returns the sound models, each with its subject; each changer makes this number of attempts.
pub fn sound(attempts: u8) -> Vec<Bounded<&'static str>> {
    bounds::sound().into_iter().chain([agreement::sound(attempts)]).collect()
}
