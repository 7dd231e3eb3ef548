//! `LOCK.WAIT key owner ms [TICKET n]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{Owner, Patience, Ticket, Wait as Ask};

use super::declaration::arguments;
use super::key::look;
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, command_names, driver};

arguments! {
    /// What is asked.
    struct Asked<'a> {
        owner: Owner<'a>,
        ms: Patience,
        [TICKET n] ticket: Ticket,
    }
}

/// Tells when the lock is free.
pub struct Wait;

impl Command for Wait {
    const SPEC: Spec = Spec {
        name: command_names::WAIT,
        summary:
            c"Waits until a lock is free for this owner, for whom it then is kept for a moment, and answers 1; 0 if \
                   that did not happen in time. Grants nothing. For clients that acquire over several nodes.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"readonly fast blocking",
        acl: AclGroup::Write,
        // It changes no key, but what it keeps free others do not get: that takes the trust of one who may write it.
        key: Some(KeyAccess::Update),
        arguments: Asked::ARGUMENTS,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { owner, ms, ticket } = Asked::read(call)?;
        // In a transaction or a script the answer is at once.
        let patience = if call.ctx.may_block() { ms } else { Patience::NONE };
        let request = Request::Wait(Ask { owner, patience, ticket });
        driver::answer(call.ctx, &mut look(call)?, &request, Form::Token, clock::now())
    }
}
