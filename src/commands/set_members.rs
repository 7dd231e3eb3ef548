//! `LOCK.SETMEMBERS version [PROMISE ballot | ACCEPT ballot MEMBERS members FLOOR token | DECIDED MEMBERS members]`

use palisade_core::request::{self, MembersVersion, TokenFloor};
use palisade_core::{Accepted, Members, Refusal, members_to_text};

use crate::driver::joined;
use crate::durability::{members, readiness};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, state};

/// LOCK.SETMEMBERS: performs one step of a change of the set of nodes.
pub struct SetMembers;

impl Command for SetMembers {
    const SPEC: Spec = Spec::new(
        request::SetMembers::SPEC,
        AclGroup::Operator,
        "1.0.0",
        "O(N) where N is the number of connections of quorum clients",
    )
    .master_only()
    .refused_when_poisoned();

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::SetMembers { version: MembersVersion(version), promise, accept, decided, members: list, floor } =
            request::SetMembers::read(call.words(), config::bounds())?;
        readiness::ready(call.ctx, clock::boot_now())?;
        match (promise, accept, decided, list, floor) {
            (Some(ballot), None, false, None, None) => {
                members::promise(version, ballot).map(|(accepted, floor)| promised(accepted, floor))
            }
            (None, Some(ballot), false, Some(list), Some(TokenFloor(floor))) => {
                members::accept(version, ballot, list, floor.get()).map(|()| Reply::Ok)
            }
            (None, None, true, Some(list), None) => {
                let is_news = members::decide(Members { version, list });
                // The connections of older clients are closed even if the disk fails, because the node already waits
                // until those clients' leases have ended.
                joined::hang_up_before(call.ctx, state::with(|node| node.membership().decided().version));
                is_news.map(|is_news| Reply::Integer(is_news.into()))
            }
            _ => Err(Refusal::MembersForm),
        }
    }
}

fn promised(accepted: Option<Accepted>, floor: u64) -> Reply {
    let bytes = |text: String| Reply::Bytes(text.into_bytes());
    let (ballot, list) = match accepted {
        Some(Accepted { ballot, list }) => (bytes(format!("{ballot:032x}")), bytes(members_to_text(&list))),
        None => (Reply::Null, Reply::Null),
    };
    Reply::Map(vec![("accepted", ballot), ("members", list), ("floor", Reply::Integer(floor))])
}
