//! `LOCK.EXTEND key owner ttl [TOKEN t]`

use palisade_core::engine::Request;
use palisade_core::request::{Extend as Ask, Owner, Ttl};
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
        ttl: Ttl,
        [TOKEN t as token] token: Token,
    }
}

/// A later deadline.
pub struct Extend;

impl Command for Extend {
    const SPEC: Spec = Spec {
        name: c"LOCK.EXTEND",
        summary: c"Makes a lease last at least this long from now and answers its token; Null if this owner does not \
                   hold the lock.",
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
        let Asked { owner, ttl, token } = Asked::read(call)?;
        let request = Request::Extend(Ask { owner, ttl, token });
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
