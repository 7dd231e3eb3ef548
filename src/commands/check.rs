//! `LOCK.CHECK key token`

use palisade_core::{Refusal, Token, check};

use super::declaration::arguments;
use super::key::look;
use crate::durability::readiness;
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, state};

arguments! {
    /// What is asked.
    struct Asked {
        token: Token,
    }
}

/// Is this token the current grant?
pub struct Check;

impl Command for Check {
    const SPEC: Spec = Spec {
        name: c"LOCK.CHECK",
        summary: c"Answers how many milliseconds are left of the grant with exactly this token; Null if it is not the \
                   current one.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"readonly fast",
        acl: AclGroup::Read,
        key: Some(KeyAccess::Read),
        arguments: Asked::ARGUMENTS,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { token } = Asked::read(call)?;
        let key = look(call)?;
        let now = clock::now();
        readiness::ready(call.ctx, now.boot)?;
        Ok(state::with(|node| check(key.lock(), token, node, now))?.map_or(Reply::Null, Reply::Integer))
    }
}
