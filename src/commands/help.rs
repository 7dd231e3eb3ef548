//! `LOCK.HELP`

use std::sync::OnceLock;

use palisade_core::{Refusal, request};

use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

/// The function that returns the commands that HELP shows. A list instead would leak its memory when a server refuses
/// the module and unloads it.
static SHOWN: OnceLock<fn() -> Vec<&'static Spec>> = OnceLock::new();

/// Sets the function that returns the commands for HELP, in the order in which they are shown.
pub fn show(shown: fn() -> Vec<&'static Spec>) {
    let _ = SHOWN.set(shown);
}

/// LOCK.HELP: describes the commands.
pub struct Help;

impl Command for Help {
    const SPEC: Spec =
        Spec::new(request::Help::SPEC, AclGroup::Help, "0.1.0", "O(N) where N is the number of commands");

    fn run(_call: &Call<'_>) -> Result<Reply, Refusal> {
        let line = |line: String| Reply::Bytes(line.into_bytes());
        let mut lines = vec!["Locks with fencing tokens. Times are milliseconds. Commands are:".to_owned()];
        for spec in SHOWN.get().map_or_else(Vec::new, |shown| shown()) {
            lines.push(spec.command.syntax(spec.command.arguments));
            lines.push(format!("    {}", spec.command.summary));
        }
        Ok(Reply::List(lines.into_iter().map(line).collect()))
    }
}
