//! LOCK.PANIC: fails on purpose, for the tests of the panic boundary. Only in debug builds.

use palisade_core::{Refusal, grammar};

use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

/// Fails.
pub struct Panic;

impl Command for Panic {
    const SPEC: Spec = Spec {
        command: grammar::Spec {
            name: "LOCK.PANIC",
            summary: "Fails on purpose, for tests.",
            flags: "write",
            key: None,
            arguments: &[],
        },
        complexity: "O(1)",
        since: "0.1.0",
        acl: AclGroup::Operator,
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(_call: &Call<'_>) -> Result<Reply, Refusal> {
        panic!("injected fault\r\nwith\0bytes")
    }
}
