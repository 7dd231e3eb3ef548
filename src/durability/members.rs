//! The node's votes on changes of its set. A vote is on the disk before it is answered.

use palisade_core::{Accepted, Ballot, Member, Members, Now, Refusal, members_to_text};

use super::{incarnation, promotion};
use crate::ffi::notice;
use crate::{clock, state};

/// Promises to take part in no attempt with a smaller ballot. Returns the list that the node accepted before, and the
/// highest token that it issued.
pub fn promise(version: u64, ballot: Ballot) -> Result<(Option<Accepted>, u64), Refusal> {
    let now = clock::now();
    let promised = state::with(|node| node.promise_members(version, ballot, now))?;
    saved(now).map(|()| promised)
}

/// Accepts a list, and issues no token up to `floor` any longer.
pub fn accept(version: u64, ballot: Ballot, list: Vec<Member>, floor: u64) -> Result<(), Refusal> {
    let now = clock::now();
    state::with(|node| node.accept_members(version, ballot, list, floor, now))?;
    promotion::tell_soon();
    saved(now)
}

/// Records the decided set. Returns whether the decision is new.
pub fn decide(members: Members) -> Result<bool, Refusal> {
    let now = clock::now();
    let (version, list) = (members.version, members_to_text(&members.list));
    let is_news = state::with(|node| node.decide_members(members, now))?;
    if is_news {
        notice(&format!("the set of nodes is at version {version}: {list}"));
    }
    saved(now).map(|()| is_news)
}

/// Refuses if the disk fails. The node then knows its vote or the decision already, but promises nothing until the
/// state is on the disk.
fn saved(now: Now) -> Result<(), Refusal> {
    incarnation::save_at_once(now);
    state::with(|node| if node.ledger().is_ready() { Ok(()) } else { Err(Refusal::NotYet) })
}
