//! `LOCK.MEMBERS [JOIN version]`

use palisade_core::request::{self, MembersVersion};
use palisade_core::{Refusal, members_to_text};

use crate::driver::joined;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, state};

/// LOCK.MEMBERS: shows the nodes of the set. With JOIN, the connection is closed when the set gets a later version.
pub struct Members;

impl Command for Members {
    const SPEC: Spec =
        Spec::new(request::Members::SPEC, AclGroup::Read, "1.0.0", "O(N) where N is the number of nodes");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Members { join } = request::Members::read(call.words(), config::bounds())?;
        let now = clock::boot_now();
        if let Some(MembersVersion(version)) = join {
            // In a MULTI the later commands would run even if the version is refused, so JOIN is not possible there.
            let connection = call.ctx.connection().filter(|_| !call.ctx.is_in_transaction());
            let connection = connection.ok_or(Refusal::NothingJoins)?;
            if state::with(|node| node.membership().admits(version)) {
                joined::join(call.ctx, connection, version);
            } else {
                // The connection is closed, so its later commands do not run. This answer shows why.
                call.ctx.hang_up(connection);
            }
        }
        state::with(|node| {
            let membership = node.membership();
            let decided = membership.decided();
            Ok(Reply::Map(vec![
                ("version", Reply::Integer(decided.version)),
                ("members", Reply::Bytes(members_to_text(&decided.list).into_bytes())),
                ("unsettled_ms", Reply::Integer(membership.unsettled_ms(now))),
            ]))
        })
    }
}
