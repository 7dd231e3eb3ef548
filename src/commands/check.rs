//! `LOCK.CHECK key token`

use palisade_core::{Refusal, check};

use super::{CONSTANT, SINCE, look};
use crate::arguments::Arguments;
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, life, state};

/// Is this token the current grant?
pub struct Check;

impl Command for Check {
    const SPEC: Spec = Spec {
        name: c"LOCK.CHECK",
        summary: c"Answers how many milliseconds are left of the grant with exactly this token; Null if it is not the \
                   current one.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"readonly fast",
        acl: AclGroup::Read,
        key: Some(KeyAccess::Read),
        arguments: &[Argument { name: c"token", token: None, shape: Shape::Integer }],
        master_only: true,
        vouches: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let token = Arguments::after_key(call).token()?;
        let key = look(call)?;
        let now = clock::now();
        life::ready(call.ctx, now.boot)?;
        Ok(state::with(|node| check(key.lock(), token, node, now))?.map_or(Reply::Null, Reply::Integer))
    }
}
