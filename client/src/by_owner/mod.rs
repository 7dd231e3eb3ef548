//! Locks under names that the caller chooses: one request acquires a lock, others extend and release it, also from
//! another process.
//!
//! For programs that act for holders elsewhere, as `palisade agent` does. A program that holds a lock for itself uses
//! [`Client::lock`](crate::Client::lock), whose guard reports losses.
//!
//! A name belongs to one holder, and is new for each acquisition. Each *attempt* to acquire has its own name on the
//! nodes: the holder's name and 16 hexadecimal digits. So a late message of one attempt cannot affect another.

mod breaking;
mod changing;
mod delivery;
mod earlier;
mod finding;
mod grant_watch;
mod handing;
mod owners;
mod shown;
mod table;
mod taking;
mod telling;
mod told;
mod views;
mod watches;

pub use palisade_quorum::{Mode, Permit, Wanted};

pub use self::handing::Granted;
pub use self::owners::{ByOwner, NAME_BYTES_MAX};
pub use self::shown::{NodeSet, Shown, ShownGrant, ShownWaiter, Standing};
pub use self::table::Keeper;
pub use self::taking::Take;
pub use self::views::reliable;
pub use crate::net::node::Reach;
