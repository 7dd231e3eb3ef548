//! `LOCK.BREAK key [TOKEN t]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{self, Form};

use super::key::open;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver};

/// Takes the lock from whoever holds it.
pub struct Break;

impl Command for Break {
    const SPEC: Spec = Spec {
        command: request::Break::SPEC,
        complexity: "O(log n) for each grant that ends, n being the number of holders; O(1) without TOKEN",
        since: "0.1.0",
        acl: AclGroup::Operator,
        master_only: true,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Break { token } = request::Break::read(call.words(), config::bounds())?;
        driver::answer(call.ctx, &mut open(call)?, &Request::Break(token), &Form::Token.into(), clock::now())
    }
}
