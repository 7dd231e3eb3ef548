//! `LOCK.BREAK key`

use palisade_core::{Refusal, break_lock};

use super::{CONSTANT, SINCE, open};
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::hand_over::{self, Cause};
use crate::{clock, effects, state, waiting};

/// Takes the lock from whoever holds it.
pub struct Break;

impl Command for Break {
    const SPEC: Spec = Spec {
        name: c"LOCK.BREAK",
        summary: c"Frees a lock whoever holds it and answers the broken token; Null if it is free. For operators: the \
                   holder does not notice.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"write fast",
        acl: AclGroup::Operator,
        key: Some(KeyAccess::Delete),
        arguments: &[],
        master_only: true,
        vouches: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let now = clock::now();
        let mut key = open(call)?;
        match state::with(|node| break_lock(key.lock_mut(), node, now)) {
            Some(token) => {
                hand_over::end(call.ctx, &mut key, effects::BROKEN, Cause::Command, now);
                waiting::deliver(call.ctx);
                Ok(Reply::Integer(token.get()))
            }
            None => Ok(Reply::Null),
        }
    }
}
