//! `LOCK.WAIT key owner ms [TICKET n] [SHARED | LIMIT k [PERMIT n]] [NOTE text] [BEHIND n] [HEARD name]`

use palisade_core::engine::{Key, Request};
use palisade_core::request::{Behind, ListenerName, Note, Owner, Patience, Ticket, Wait as Ask};
use palisade_core::{ClientId, Refusal};

use super::declaration::arguments;
use super::key::look;
use super::values::{Count, wanted};
use crate::driver::blocked_clients::{self, Asker, Form};
use crate::driver::{listeners, timer};
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, command_names, driver, state};

arguments! {
    /// What is asked.
    struct Asked<'a> {
        owner: Owner<'a>,
        ms: Patience,
        [TICKET n] ticket: Ticket,
        [SHARED] shared,
        [LIMIT k as limit] limit: Count,
        [PERMIT n as number] permit: Count,
        [NOTE text] note: Note<'a>,
        [BEHIND n as behind] behind: Behind,
        [HEARD name] heard: ListenerName<'a>,
    }
}

/// Tells when the lock is free.
pub struct Wait;

impl Command for Wait {
    const SPEC: Spec = Spec {
        name: command_names::WAIT,
        summary:
            c"Waits until this owner could have a lock, which then is kept for it for a moment, and answers the number \
                   of the permit, 1 without LIMIT; 0 if that did not happen in time. Grants nothing. For clients that acquire over several nodes.",
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
        let Asked { owner, ms, ticket, shared, limit, permit, note, behind, heard } = Asked::read(call)?;
        // In a transaction or a script the answer is at once.
        let patience = if call.ctx.may_block() { ms } else { Patience::NONE };
        let (wanted, note, behind) =
            (wanted(shared, limit, permit)?, note.unwrap_or_default(), behind.unwrap_or_default());
        let listener = heard.map(|name| listeners::named(call.ctx, name)).transpose()?;
        if let Some(listener) = listener.filter(|_| ms == Patience::NONE) {
            return Ok(stop_waiting(call, owner, listener));
        }
        let asker = Asker { listener, ..Form::Token.into() };
        let request = Request::Wait(Ask { owner, wanted, patience, ticket, note, behind });
        driver::answer(call.ctx, &mut look(call)?, &request, &asker, clock::now())
    }
}

/// What `owner` waits for and `listener` hears leaves the queue.
fn stop_waiting(call: &Call<'_>, owner: Owner<'_>, listener: ClientId) -> Reply {
    let (name, now) = (call.key(), clock::boot_now());
    let key = Key { db: call.ctx.db(), name: name.bytes() };
    state::with(|node| node.stop_waiting(key, owner, listener, now));
    blocked_clients::deliver();
    timer::arm(call.ctx);
    Reply::Integer(0)
}
