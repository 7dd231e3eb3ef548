//! `LOCK.REENTER key owner [LEVEL n] [TTL ms] [ADOPT]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{self, Form};

use super::key::open;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver};

/// One hold more.
pub struct Reenter;

impl Command for Reenter {
    const SPEC: Spec = Spec {
        command: request::Reenter::SPEC,
        complexity: "O(1)",
        since: "0.1.0",
        acl: AclGroup::Write,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request = Request::Reenter(request::Reenter::read(call.words(), config::bounds())?);
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
