//! Models of a set of nodes that changes while locks are held, on the rules of `core` themselves.
//!
//! `locks` is about clients that work with different versions of the set, and `agreement` about changers that want different ones at
//! once, or die half-way. Both look at every order of what is asked, answered, decided and told.

mod agreement;
mod bounds;
mod list;
mod locks;
mod rules;

pub use rules::broken;

use crate::checker::Bounded;

/// The models that are sound, by what they are about; each changer tries so often.
pub fn sound(attempts: u8) -> Vec<Bounded<&'static str>> {
    bounds::sound().into_iter().chain([agreement::sound(attempts)]).collect()
}
