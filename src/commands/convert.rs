//! `LOCK.CONVERT key owner SHARED | EXCLUSIVE [TOKEN t]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{self, Form};

use super::key::open;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver};

/// The same grant in another mode.
pub struct Convert;

impl Command for Convert {
    const SPEC: Spec = Spec {
        command: request::Convert::SPEC,
        complexity: "O(1)",
        since: "0.2.0",
        acl: AclGroup::Write,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request = Request::Convert(request::Convert::read(call.words(), config::bounds())?);
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
