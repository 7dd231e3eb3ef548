//! `LOCK.FENCE key owner token`

use palisade_core::{Fenced, Refusal, fence};

use super::{CONSTANT, SINCE, open};
use crate::arguments::Arguments;
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, effects, life};

/// The second round of a quorum acquire.
pub struct Fence;

impl Command for Fence {
    const SPEC: Spec = Spec {
        name: c"LOCK.FENCE",
        summary: c"Raises the token of a grant, never lowers it, and answers it; Null if this owner does not hold the \
                   lock. The second round of an acquire over several nodes.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"write fast",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Update),
        arguments: &[
            Argument { name: c"owner", token: None, shape: Shape::Bytes },
            Argument { name: c"token", token: None, shape: Shape::Integer },
        ],
        master_only: true,
        vouches: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        life::ready(call.ctx)?;
        let mut arguments = Arguments::after_key(call);
        let (owner, token) = (arguments.owner()?, arguments.token()?);
        let now = clock::now();
        let mut key = open(call)?;
        let name = key.name().bytes();
        match life::with_tokens(now, |node| fence(name, key.lock_mut(), owner, token, node, now))? {
            Fenced::Raised(token) => {
                effects::changed(call.ctx, &mut key, now);
                Ok(Reply::Integer(token.get()))
            }
            Fenced::Unchanged(token) => Ok(Reply::Integer(token.get())),
            Fenced::NotHeld => Ok(Reply::Null),
        }
    }
}
