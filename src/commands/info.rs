//! `LOCK.INFO key`

use palisade_core::Refusal;

use super::{CONSTANT, SINCE, look};
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec, Value};
use crate::{clock, state};

/// Who holds the lock?
pub struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: c"LOCK.INFO",
        summary: c"Answers who holds a lock, with which token, since when and for how long; Null if it is free.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"readonly fast",
        acl: AclGroup::Read,
        key: Some(KeyAccess::Read),
        arguments: &[],
        master_only: false,
        vouches: None,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let now = clock::boot_now();
        let key = look(call)?;
        let Some(lock) = key.lock().filter(|lock| !lock.is_expired(now)) else { return Ok(Reply::Null) };
        Ok(Reply::Map(vec![
            ("owner", Value::Bytes(lock.owner().to_vec())),
            ("token", Value::Integer(lock.token().get())),
            ("holds", Value::Integer(lock.holds().into())),
            ("ttl", Value::Integer(lock.left_ms(now))),
            ("held", Value::Integer(lock.held_ms(now))),
            ("note", Value::Bytes(lock.note().to_vec())),
            // No command of this version waits in the server.
            ("waiters", Value::Integer(0)),
            ("suspect", Value::Integer(state::with(|node| node.is_suspect(lock)).into())),
        ]))
    }
}
