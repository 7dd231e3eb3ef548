//! Models of a set of nodes that changes while locks are held, on the rules of `core` themselves.
//!
//! [`locks`] is about clients that work with different versions of the set, and [`agreement`] about changers that want different ones at
//! once, or die half-way. Both look at every order of what is asked, answered, decided and told.

pub mod agreement;
pub mod locks;
mod rules;

pub use rules::{RULES, broken};

use palisade_core::Member;

/// The members that these digits name.
fn list(ids: &[u8]) -> Vec<Member> {
    ids.iter().map(|&id| Member { id: Some(id.into()), address: format!("node-{id}") }).collect()
}
