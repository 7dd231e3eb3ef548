//! `LOCK.FENCE key owner token`

use palisade_core::engine::Request;
use palisade_core::request::Owner;
use palisade_core::{Refusal, Token};

use super::declaration::arguments;
use super::key::open;
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, driver};

arguments! {
    /// What is asked.
    struct Asked<'a> {
        owner: Owner<'a>,
        token: Token,
    }
}

/// The second round of a quorum acquire.
pub struct Fence;

impl Command for Fence {
    const SPEC: Spec = Spec {
        name: c"LOCK.FENCE",
        summary: c"Raises the token of a grant, never lowers it, and answers it; Null if this owner does not hold the \
                   lock. The second round of an acquire over several nodes.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"write fast",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Update),
        arguments: Asked::ARGUMENTS,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { owner, token } = Asked::read(call)?;
        let request = Request::Fence(owner, token);
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
