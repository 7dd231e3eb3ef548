//! `LOCK.HELP`

use palisade_core::Refusal;

use super::{PUBLIC, SINCE};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

/// What the commands are.
pub struct Help;

impl Command for Help {
    const SPEC: Spec = Spec {
        name: c"LOCK.HELP",
        summary: c"Answers this text.",
        complexity: c"O(N) where N is the number of commands",
        since: SINCE,
        flags: c"fast allow-loading allow-stale",
        acl: AclGroup::Help,
        key: None,
        arguments: &[],
        master_only: false,
        vouches: false,
    };

    fn run(_call: &Call<'_>) -> Result<Reply, Refusal> {
        let line = |line: String| Reply::Bytes(line.into_bytes());
        let mut lines = vec!["Locks with fencing tokens. Times are milliseconds. Commands are:".to_owned()];
        for spec in PUBLIC {
            lines.push(spec.syntax());
            lines.push(format!("    {}", spec.summary.to_string_lossy()));
        }
        Ok(Reply::List(lines.into_iter().map(line).collect()))
    }
}
