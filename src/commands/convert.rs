//! `LOCK.CONVERT key owner SHARED | EXCLUSIVE [TOKEN t]`

use palisade_core::engine::Request;
use palisade_core::request::{Conversion, Convert as Ask, Owner};
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
        mode: Conversion,
        [TOKEN t as token] token: Token,
    }
}

/// The same grant in another mode.
pub struct Convert;

impl Command for Convert {
    const SPEC: Spec = Spec {
        name: c"LOCK.CONVERT",
        summary: c"Makes an exclusive grant a shared one, at once and with the same token, or a shared one exclusive, with a \
                   new token, if nobody shares it; answers the token, Null if that cannot be. Never waits.",
        complexity: c"O(1)",
        since: c"0.2.0",
        flags: c"write fast",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Update),
        arguments: Asked::ARGUMENTS,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { owner, mode, token } = Asked::read(call)?;
        let request = Request::Convert(Ask { owner, to: mode, token });
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
