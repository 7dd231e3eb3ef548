//! Models of a set of nodes that changes while locks are held, on the rules of `core` themselves.
//!
//! [`locks`] is about clients that work with different versions of the set, and [`agreement`] about changers that want different ones at
//! once, or die half-way. Both look at every order of what is asked, answered, decided and told.

pub mod agreement;
mod list;
pub mod locks;
mod rules;

pub use rules::{RULES, broken};
