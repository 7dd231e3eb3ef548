//! `LOCK.HELP`

use std::sync::OnceLock;

use palisade_core::Refusal;

use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

/// The commands that it shows.
static SHOWN: OnceLock<Vec<&'static Spec>> = OnceLock::new();

/// From now on shows `commands`, in this order.
pub fn show(commands: impl Iterator<Item = &'static Spec>) {
    let _ = SHOWN.set(commands.collect());
}

/// What the commands are.
pub struct Help;

impl Command for Help {
    const SPEC: Spec = Spec {
        name: c"LOCK.HELP",
        summary: c"Answers this text.",
        complexity: c"O(N) where N is the number of commands",
        since: c"0.1.0",
        flags: c"fast allow-loading allow-stale",
        acl: AclGroup::Help,
        key: None,
        arguments: &[],
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(_call: &Call<'_>) -> Result<Reply, Refusal> {
        let line = |line: String| Reply::Bytes(line.into_bytes());
        let mut lines = vec!["Locks with fencing tokens. Times are milliseconds. Commands are:".to_owned()];
        for spec in SHOWN.get().into_iter().flatten() {
            lines.push(spec.syntax());
            lines.push(format!("    {}", spec.summary.to_string_lossy()));
        }
        Ok(Reply::List(lines.into_iter().map(line).collect()))
    }
}
