//! `LOCK.PANIC`: panics on purpose, so that tests can check that the server survives it. Only in debug builds.

use palisade_core::{Refusal, grammar};

use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

/// LOCK.PANIC: panics on purpose, for tests.
pub struct Panic;

impl Command for Panic {
    const SPEC: Spec = Spec::new(
        grammar::Spec {
            name: "LOCK.PANIC",
            summary: "Fails on purpose, for tests.",
            flags: "write",
            key: None,
            arguments: &[],
        },
        AclGroup::Operator,
        "0.1.0",
        "O(1)",
    );

    fn run(_call: &Call<'_>) -> Result<Reply, Refusal> {
        panic!("injected fault\r\nwith\0bytes")
    }
}
