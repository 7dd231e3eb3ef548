//! `LOCK.MEMBERS [JOIN version]`

use palisade_core::{Refusal, members_to_text};

use super::declaration::arguments;
use super::values::MembersVersion;
use crate::driver::joined;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, state};

arguments! {
    /// What is asked.
    struct Asked {
        [JOIN version] join: MembersVersion,
    }
}

/// Which nodes are the set?
pub struct Members;

impl Command for Members {
    const SPEC: Spec = Spec {
        name: c"LOCK.MEMBERS",
        summary: c"Answers which nodes are the set of a quorum, as this one was told; with JOIN the connection is of a client that works with \
                   this version of it, and ends once the node is told of a later one.",
        complexity: c"O(N) where N is the number of nodes",
        since: c"0.2.0",
        flags: c"fast allow-stale",
        acl: AclGroup::Read,
        key: None,
        arguments: Asked::ARGUMENTS,
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { join } = Asked::read(call)?;
        let now = clock::boot_now();
        if let Some(MembersVersion(version)) = join {
            let connection = call.ctx.connection().ok_or(Refusal::NothingJoins)?;
            if state::with(|node| node.membership().admits(version)) {
                joined::join(call.ctx, connection, version);
            } else {
                // What it sends behind this is not run, and the answer tells it why.
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
