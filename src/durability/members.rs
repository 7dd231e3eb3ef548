//! What whoever changes the set of nodes says: it is on the disk when it is answered.

use palisade_core::{Accepted, Ballot, Member, Members, Now, Refusal, members_to_text};

use super::{incarnation, promotion};
use crate::ffi::notice;
use crate::{clock, state};

/// The node promises to take part in no earlier attempt. What it accepted before, and the highest token that it issued.
pub fn promise(version: u64, ballot: Ballot) -> Result<(Option<Accepted>, u64), Refusal> {
    let now = clock::now();
    let promised = state::with(|node| node.promise_members(version, ballot, now))?;
    saved(now).map(|()| promised)
}

/// The node accepts a list, and issues no token up to `floor` any more.
pub fn accept(version: u64, ballot: Ballot, list: Vec<Member>, floor: u64) -> Result<(), Refusal> {
    let now = clock::now();
    state::with(|node| node.accept_members(version, ballot, list, floor, now))?;
    promotion::tell_soon();
    saved(now)
}

/// The node is told of the set. Whether that is news.
pub fn decide(members: Members) -> Result<bool, Refusal> {
    let now = clock::now();
    let (version, list) = (members.version, members_to_text(&members.list));
    let is_news = state::with(|node| node.decide_members(members, now))?;
    if is_news {
        notice(&format!("the set of nodes is at version {version}: {list}"));
    }
    saved(now).map(|()| is_news)
}

/// Where the disk fails, the node refuses: it knows what it was told, and promises nothing until that is on the disk.
fn saved(now: Now) -> Result<(), Refusal> {
    incarnation::save_at_once(now);
    state::with(|node| if node.ledger().is_ready() { Ok(()) } else { Err(Refusal::NotYet) })
}
