//! This node's votes on the next version of its set. A vote is on the disk before it is answered.

use palisade_core::{Accepted, Ballot, Member, Members, Now, Refusal, members_to_text};

use super::{incarnation, promotion};
use crate::ffi::notice;
use crate::{clock, state};

/// Promises to ignore attempts for `version` with a smaller ballot. Returns the list that the node accepted for it
/// before, and the highest token that the node has issued.
pub fn promise(version: u64, ballot: Ballot) -> Result<(Option<Accepted>, u64), Refusal> {
    let now = clock::now();
    let promised = state::with(|node| node.promise_members(version, ballot, now))?;
    saved(now).map(|()| promised)
}

/// Accepts `list` as the next version, and issues only tokens above `floor` from now on.
pub fn accept(version: u64, ballot: Ballot, list: Vec<Member>, floor: u64) -> Result<(), Refusal> {
    let now = clock::now();
    state::with(|node| node.accept_members(version, ballot, list, floor, now))?;
    promotion::send_soon();
    saved(now)
}

/// Records that `members` were decided as the set. Returns whether the node did not know that before.
pub fn decide(members: Members) -> Result<bool, Refusal> {
    let now = clock::now();
    let (version, list) = (members.version, members_to_text(&members.list));
    let is_news = state::with(|node| node.decide_members(members, now))?;
    if is_news {
        notice(&format!("the set of nodes is at version {version}: {list}"));
    }
    saved(now).map(|()| is_news)
}

/// Writes the state, and refuses if the disk fails. In that case the node remembers the vote or the decision, but
/// promises nothing until the state is on the disk.
fn saved(now: Now) -> Result<(), Refusal> {
    incarnation::save_at_once(now);
    state::with(|node| if node.ledger().is_ready() { Ok(()) } else { Err(Refusal::NotYet) })
}
