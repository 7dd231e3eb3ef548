//! The set of nodes of a quorum, as the nodes themselves know it: numbered versions of a list of members.
//!
//! Two versions that follow each other differ by one node, so a majority of the one and a majority of the other share a node
//! ([`Members::is_next_to`]). Those of versions further apart need not. So a node keeps which version it was told ([`Membership`]), takes
//! nothing from clients with an older one, and agrees to the next version only when all leases of older ones have ended.

mod list;
mod membership;

pub use list::{Member, Members, is_address, members_from_text, members_to_text};
pub use membership::{Accepted, Ballot, Membership, SavedMembership};
