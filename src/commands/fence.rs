//! `LOCK.FENCE key owner token`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{self, Form};

use super::key::open;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver};

/// The second round of a quorum acquire.
pub struct Fence;

impl Command for Fence {
    const SPEC: Spec = Spec {
        command: request::Fence::SPEC,
        complexity: "O(1)",
        since: "0.1.0",
        acl: AclGroup::Write,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Fence { owner, token } = request::Fence::read(call.words(), config::bounds())?;
        let request = Request::Fence(owner, token);
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
