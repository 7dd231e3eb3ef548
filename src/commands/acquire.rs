//! `LOCK.ACQUIRE key owner ttl [SHARED | LIMIT k [PERMIT n]] [KEEPALIVE ms] [WAIT ms [BEHIND n]] [FENCE token] [RETRY] [NOTE text]`

use palisade_core::engine::{Key, Request};
use palisade_core::request::{Acquire as Ask, Behind, Note, Owner, Patience, Ttl};
use palisade_core::{KeepAlive, Refusal, Token};

use super::declaration::arguments;
use super::key::open;
use super::values::{Count, Milliseconds, wanted};
use crate::driver::blocked_clients::{Asker, Form};
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, command_names, driver, state};

arguments! {
    /// What is asked.
    struct Asked<'a> {
        owner: Owner<'a>,
        ttl: Ttl,
        [SHARED] shared,
        [LIMIT k as limit] limit: Count,
        [PERMIT n as number] permit: Count,
        [KEEPALIVE ms] keepalive: Milliseconds,
        [WAIT ms] wait: Patience,
        [BEHIND n as behind] behind: Behind,
        [FENCE token] fence: Token,
        [RETRY] retry,
        [NOTE text] note: Note<'a>,
    }
}

/// Takes the lock.
pub struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: command_names::ACQUIRE,
        summary: c"Takes a lock for an owner, alone, shared or as one of so many permits, waiting in turn and keeping its lease alive if asked to, and \
                   answers its fencing token, with WAIT also the milliseconds waited, with LIMIT also the permit's number; \
                   Null if somebody else holds it.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"write fast deny-oom blocking",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Insert),
        arguments: Asked::ARGUMENTS,
        master_only: true,
        refused_when_poisoned: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let (request, asker) = request(call)?;
        driver::answer(call.ctx, &mut open(call)?, &request, &asker, clock::now())
    }
}

/// The request, and how it is answered: with how long it waited if it names a time to wait, and with a number if it asks for a
/// permit.
#[inline(always)]
fn request<'a>(call: &'a Call<'a>) -> Result<(Request<'a>, Asker), Refusal> {
    let Asked { owner, ttl, shared, limit, permit, keepalive, wait, behind, fence, retry, note } = Asked::read(call)?;
    if wait.is_none() && behind.is_some() {
        return Err(Refusal::Needs { option: "BEHIND", needs: "WAIT" });
    }
    let form = match (&limit, wait) {
        (Some(_), _) => Form::Permit,
        (None, Some(_)) => Form::TokenAndWait,
        (None, None) => Form::Token,
    };
    let wanted = wanted(shared, limit, permit)?;
    // In a transaction or a script the answer is at once.
    let patience = wait.filter(|_| call.ctx.may_block()).unwrap_or(Patience::NONE);
    let keepalive = keepalive.map(|Milliseconds(ms)| kept(call, owner, ms, ttl)).transpose()?;
    let asker = Asker { keepalive, ..form.into() };
    let (note, behind) = (note.unwrap_or_default(), behind.unwrap_or_default());
    Ok((Request::Acquire(Ask { owner, ttl, wanted, fence, retry, note, patience, behind }), asker))
}

/// The lease is kept as long as the connection of this call is open.
fn kept(call: &Call<'_>, owner: Owner<'_>, ms: Option<u64>, ttl: Ttl) -> Result<KeepAlive, Refusal> {
    let key = Key { db: call.ctx.db(), name: call.key().bytes() };
    let keep = KeepAlive::new(call.ctx.connection().ok_or(Refusal::NoConnection)?, ms, ttl)?;
    state::with(|node| node.keepalives().ensure_room(key, owner, ttl))?;
    Ok(keep)
}
