//! `LOCK.ACQUIRE key owner ttl [SHARED | LIMIT k [PERMIT n]] [KEEPALIVE ms] [WAIT ms [BEHIND n]] [FENCE token] [RETRY]
//! [NOTE text]`

use palisade_core::engine::{Key, Request};
use palisade_core::request::{self, AskedAcquire, Milliseconds, Owner, Patience, Ttl};
use palisade_core::{KeepAlive, Refusal};

use super::key::open;
use crate::driver::blocked_clients::Asker;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, driver, state};

/// LOCK.ACQUIRE: acquires the lock.
pub struct Acquire;

impl Command for Acquire {
    const SPEC: Spec =
        Spec::new(request::Acquire::SPEC, AclGroup::Write, "0.1.0", "O(1)").master_only().refused_when_poisoned();

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let AskedAcquire { mut request, form, keepalive } = request::Acquire::read(call.words(), config::bounds())?;
        // In a transaction or a script the client cannot be blocked, so the answer comes at once.
        if request.patience != Patience::NONE && !call.ctx.may_block() {
            request.patience = Patience::NONE;
        }
        let keep = |Milliseconds(ms)| keepalive_of(call, request.owner, ms, request.ttl);
        let asker = Asker { keepalive: keepalive.map(keep).transpose()?, ..form.into() };
        driver::answer(call.ctx, &mut open(call)?, &Request::Acquire(request), &asker, clock::now())
    }
}

/// Returns the KEEPALIVE of `ms` milliseconds, for the connection of this call.
fn keepalive_of(call: &Call<'_>, owner: Owner<'_>, ms: Option<u64>, ttl: Ttl) -> Result<KeepAlive, Refusal> {
    let key = Key { db: call.ctx.db(), name: call.key().bytes() };
    let keep = KeepAlive::new(call.ctx.connection().ok_or(Refusal::NoConnection)?, ms, ttl)?;
    state::with(|node| node.keepalives().ensure_room(key, owner, ttl))?;
    Ok(keep)
}
