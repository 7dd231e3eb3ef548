//! Elections: the leader is whoever holds an exclusive lock over the quorum, and says so.
//!
//! A lock alone does not tell an observer who leads: a candidate with a minority looks the same on the nodes that it has. So the
//! leader *proclaims* ([`Proclaim`]) once it holds a majority, and not before: it writes a [`Proclamation`] into the note of its grants, with a sequence
//! number from 1 on. The note of an acquisition has 0. One proclamation, found on any node, proves that its term was won.
//!
//! # Terms
//!
//! The term is the holder's token when it had won the majority. It is written into the proclamation and stays the same, while the token
//! rises where a node is healed. It has to: tokens of single nodes prove nothing. A node that granted the leader a larger one than the
//! majority did, or was raised to one that no majority took, has a token above that of the *next* leader; observers that took that
//! for the term would not believe the next leader at all. The proclamation is about the grant of its owner, whose name is new
//! in each acquisition, so LOCK.NOTE names no token, and a raise on its way does not matter.
//!
//! Terms are in order because tokens of holders are ([`Acquire`](super::Acquire)): each is above every token that any earlier leader had.
//!
//! # What an observer concludes
//!
//! [`Observer`] keeps the largest (term, sequence) that it has seen, and never goes back. It says that nobody leads when a majority of the
//! servers has said that the grant of this leader is not there. Without a proclamation it says so when a majority shows none.
//! A guarded node has forgotten who holds what: it is as if it had not answered. Two names for one server are one voice.
//!
//! What it does not conclude: that a leader it does not see any more has stopped. That one relies on its lock until its validity ends;
//! the resource refuses it by the term.

mod observer;
mod proclaim;
mod proclamation;
#[cfg(test)]
mod storm;

pub use observer::{Leader, Observed, Observer, Says};
pub use proclaim::{Noted, Proclaim, Tell};
pub use proclamation::{Proclamation, VALUE_BYTES_MAX};
