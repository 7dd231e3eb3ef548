//! Lists of members in the models.

use palisade_core::Member;

/// Returns the members with these ids.
pub(super) fn list(ids: &[u8]) -> Vec<Member> {
    ids.iter().map(|&id| Member { id: Some(id.into()), address: format!("node-{id}") }).collect()
}
