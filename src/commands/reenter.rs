//! `LOCK.REENTER key owner [LEVEL n] [TTL ms] [ADOPT]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{Level, Owner, Reenter as Ask, Ttl};

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
        [TTL ms as ttl] ttl: Ttl,
        [ADOPT] adopts,
    }
}

/// One hold more.
pub struct Reenter;

impl Command for Reenter {
    const SPEC: Spec = Spec {
        name: c"LOCK.REENTER",
        summary:
            c"Adds one hold, or as many as a level needs, and answers how many there are; Null if this owner does \
                   not hold the lock.",
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
        let Asked { owner, level, ttl, adopts } = Asked::read(call)?;
        let request = Request::Reenter(Ask { owner, level, ttl, adopts });
        driver::answer(call.ctx, &mut open(call)?, &request, &Form::Token.into(), clock::now())
    }
}
