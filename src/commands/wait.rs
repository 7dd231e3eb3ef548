//! `LOCK.WAIT key owner ms [TICKET n] [SHARED | LIMIT k [PERMIT n]] [NOTE text] [BEHIND n] [HEARD name]`

use palisade_core::engine::{Key, Request};
use palisade_core::request::{self, AskedWait, Form, Owner, Patience};
use palisade_core::{ClientId, Refusal};

use super::key::read_lock;
use crate::driver::blocked_clients::{self, Asker};
use crate::driver::{listeners, timer};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver, state};

/// LOCK.WAIT: waits until it is the owner's turn.
pub struct Wait;

impl Command for Wait {
    const SPEC: Spec =
        Spec::new(request::Wait::SPEC, AclGroup::Write, "0.1.0", "O(1)").master_only().refused_when_poisoned();

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let AskedWait { mut request, heard } = request::Wait::read(call.words(), config::bounds())?;
        // A script is answered at once, so no listener gets an answer.
        let heard = heard.filter(|_| request.patience == Patience::NONE || !call.ctx.is_in_script());
        let listener = heard.map(|name| listeners::named(call.ctx, name)).transpose()?;
        if let Some(listener) = listener.filter(|_| request.patience == Patience::NONE) {
            return Ok(stop_waiting(call, request.owner, listener));
        }
        // In a transaction or a script the client cannot be blocked, so the answer comes at once.
        if !call.ctx.may_block() {
            request.patience = Patience::NONE;
        }
        let asker = Asker { listener, ..Form::Token.into() };
        driver::answer(call.ctx, &mut read_lock(call)?, &Request::Wait(request), &asker, clock::now())
    }
}

/// Removes from the key's queue those requests of `owner` whose answers go to this listener.
fn stop_waiting(call: &Call<'_>, owner: Owner<'_>, listener: ClientId) -> Reply {
    let (name, now) = (call.key(), clock::boot_now());
    let key = Key { db: call.ctx.db(), name: name.bytes() };
    state::with(|node| node.stop_waiting(key, owner, listener, now));
    blocked_clients::deliver();
    timer::arm(call.ctx);
    Reply::Integer(0)
}
