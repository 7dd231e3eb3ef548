//! `LOCK.BREAK key [TOKEN t]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{self, Form};

use super::key::open;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver};

/// LOCK.BREAK: ends the grants of a lock, for an operator.
pub struct Break;

impl Command for Break {
    const SPEC: Spec = Spec::new(
        request::Break::SPEC,
        AclGroup::Operator,
        "0.1.0",
        "O(log n) for each grant that ends, n being the number of holders; O(1) without TOKEN",
    )
    .master_only();

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Break { token } = request::Break::read(call.words(), config::bounds())?;
        driver::answer(call.ctx, &mut open(call)?, &Request::Break(token), &Form::Token.into(), clock::now())
    }
}
