//! Locks under names that the caller chooses: taken by one request, extended and given back by others, also of another process.
//!
//! For those who speak for holders that are elsewhere, as `palisade agent` does. What holds a lock for itself uses
//! [`Client::lock`](crate::Client::lock), whose guard knows more.
//!
//! A name is one holder's, and new for each acquisition. On the nodes each *attempt* has a name of its own that begins with it and ends in 16
//! digits of chance, so that no late message of one attempt can touch another.

mod breaking;
mod changing;
mod finding;
mod owners;
mod shown;
mod table;
mod taking;
mod telling;
mod views;
mod watches;

pub use palisade_quorum::{Mode, Permit, Wanted};

pub use self::owners::{ByOwner, NAME_BYTES_MAX};
pub use self::shown::{NodeSet, Shown, ShownGrant, ShownWaiter, Standing};
pub use self::table::Keeper;
pub use self::taking::{Granted, Take};
pub use self::views::reliable;
pub use crate::net::node::Reach;
