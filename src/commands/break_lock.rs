//! `LOCK.BREAK key [TOKEN t]`

use palisade_core::engine::Request;
use palisade_core::{Refusal, Token};

use super::declaration::arguments;
use super::key::open;
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, command_names, driver};

arguments! {
    /// What is asked.
    struct Asked {
        [TOKEN t as token] token: Token,
    }
}

/// Takes the lock from whoever holds it.
pub struct Break;

impl Command for Break {
    const SPEC: Spec = Spec {
        name: command_names::BREAK,
        summary:
            c"Frees a lock whoever holds it, or ends the grants with one token, and answers the largest broken token; \
                   Null if there is none. For operators: the holder goes on until it hears of that.",
        complexity: c"O(log n) for each grant that ends, n being the number of holders; O(1) without TOKEN",
        since: c"0.1.0",
        flags: c"write fast",
        acl: AclGroup::Operator,
        key: Some(KeyAccess::Delete),
        arguments: Asked::ARGUMENTS,
        master_only: true,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { token } = Asked::read(call)?;
        driver::answer(call.ctx, &mut open(call)?, &Request::Break(token), &Form::Token.into(), clock::now())
    }
}
