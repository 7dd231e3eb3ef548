//! `LOCK.BREAK key`

use palisade_core::Refusal;
use palisade_core::engine::Request;

use super::key::open;
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, driver};

/// Takes the lock from whoever holds it.
pub struct Break;

impl Command for Break {
    const SPEC: Spec = Spec {
        name: c"LOCK.BREAK",
        summary: c"Frees a lock whoever holds it and answers the broken token; Null if it is free. For operators: the \
                   holder does not notice.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"write fast",
        acl: AclGroup::Operator,
        key: Some(KeyAccess::Delete),
        arguments: &[],
        master_only: true,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        driver::answer(call.ctx, &mut open(call)?, &Request::Break, Form::Token, clock::now())
    }
}
