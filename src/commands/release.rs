//! `LOCK.RELEASE key owner [LEVEL n] [TOKEN t]`

use palisade_core::engine::Request;
use palisade_core::request::{Level, Owner, Release as Ask};
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
        [LEVEL n as level] level: Level,
        [TOKEN t as token] token: Token,
    }
}

/// Gives holds back.
pub struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"LOCK.RELEASE",
        summary: c"Gives one hold back, or all down to a level, and answers how many are left (0: the lock is free); \
                   Null if this owner does not hold it.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"write fast",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Delete),
        arguments: Asked::ARGUMENTS,
        master_only: true,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { owner, level, token } = Asked::read(call)?;
        let request = Request::Release(Ask { owner, level, token });
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
