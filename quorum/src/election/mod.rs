//! Elections: the leader is the holder of an exclusive lock over the quorum, and proclaims it.
//!
//! A lock alone does not tell an observer who leads: on the nodes of a minority, a candidate looks like a leader. So
//! the leader *proclaims* ([`Proclaim`]) once it holds a majority, and not before. It writes a [`Proclamation`] into
//! the note of its grants, with sequence numbers from 1 on. The note of an acquisition has 0. So one proclamation,
//! found on any node, proves that its leader won the term.
//!
//! # Terms
//!
//! The term is the holder's token at the moment when it won the majority. The proclamation contains it, and it stays
//! the same while the token rises where a node is healed. The token of a single node would not do. A node may have
//! granted the leader a larger token than the majority did, or raised it to one that no majority has. This token may
//! then be above that of the *next* leader, and observers that used it as the term would never believe that leader.
//! LOCK.NOTE names the owner, which is new in each acquisition, and no token. So it works also while the nodes' tokens
//! are being raised.
//!
//! Terms are ordered because tokens of holders are ([`Acquire`](super::Acquire)): each is above every token of any
//! earlier leader.
//!
//! # What an observer concludes
//!
//! [`Observer`] keeps the largest (term, sequence) that it has seen, and never goes back. It reports that nobody leads
//! when a majority of the servers says that the leader's grant is gone. If it has seen no proclamation, it reports so
//! when a majority shows none. A guarded node has forgotten who holds what, so it counts as silent. Two names for one
//! server count as one.
//!
//! An observer does not conclude that a leader has stopped because it no longer sees it. That leader relies on its lock
//! until its validity ends; the resource refuses it by the term.

mod observer;
mod proclaim;
mod proclamation;
#[cfg(test)]
mod storm;

pub use observer::{Leader, LockReport, Observed, Observer};
pub use proclaim::{NoteAnswer, NoteCall, Proclaim};
pub use proclamation::{Proclamation, VALUE_BYTES_MAX};
