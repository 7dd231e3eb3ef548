//! `LOCK.FENCE key owner token`

use palisade_core::Refusal;
use palisade_core::engine::Request;

use super::{CONSTANT, SINCE, open};
use crate::arguments::Arguments;
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, driver};

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
        let mut arguments = Arguments::after_key(call);
        let request = Request::Fence(arguments.owner()?, arguments.token()?);
        driver::answer(call.ctx, &mut open(call)?, &request, Form::Token, clock::now())
    }
}
