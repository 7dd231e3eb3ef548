//! LOCK.PANIC: fails on purpose, for the tests of the panic boundary. Only in debug builds.

use palisade_core::Refusal;

use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

/// Fails.
pub struct Panic;

impl Command for Panic {
    const SPEC: Spec = Spec {
        name: c"LOCK.PANIC",
        summary: c"Fails on purpose, for tests.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"write",
        acl: AclGroup::Operator,
        key: None,
        arguments: &[],
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(_call: &Call<'_>) -> Result<Reply, Refusal> {
        panic!("injected fault\r\nwith\0bytes")
    }
}
