//! One lock over N independent nodes, as state machines: answers in, questions and outcomes out.
//!
//! Redlock with three repairs: tokens that are monotonic over the quorum, validity that is counted from before the first
//! question, and nodes that lost the lock and get it again. There is no socket, clock or randomness in here: a client, a
//! simulator and a model checker run the same code. A machine names nodes by their place in the client's list and tells
//! servers apart by their [`NodeId`], since two names can lead to one server.
//!
//! # Why it is safe
//!
//! Two majorities of one set of nodes meet. While a majority holds a lock for one owner, no other owner can be granted it by
//! a majority, as long as no node forgets (the restart guard) and leases end later on the nodes than the holder believes
//! (the margin of [`margin_us`]). And the node where two majorities meet gave the later holder a larger token than the
//! earlier one's, so a token that is at least the largest of *some* majority's grants is larger than every earlier holder's
//! ([`Acquire`]).

mod acquire;
mod ask;
mod held;
mod release;
mod turn;

pub use acquire::{Acquire, Progress};
pub use ask::{Answer, Ask, Call, NodeId, Out, granted_after, majority, margin_us, valid_until};
pub use held::Held;
pub use release::{Release, Released};
pub use turn::{Turn, TurnProgress};
