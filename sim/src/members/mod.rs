//! Models of a set of nodes that changes while locks are held. They execute the rules of `core` itself.
//!
//! `locks` has clients that work with different versions of the set. `agreement` has several changers (programs that
//! change the set), which want different versions at once, or die halfway. Both explore every order of questions,
//! answers, decisions and notices.

mod agreement;
mod bounds;
mod list;
mod locks;
mod rules;

pub use rules::broken;

use crate::checker::Bounded;

/// Returns the models with every rule on, each with its subject. Each changer makes `attempts` attempts.
pub fn sound(attempts: u8) -> Vec<Bounded<&'static str>> {
    bounds::sound().into_iter().chain([agreement::sound(attempts)]).collect()
}
