//! `LOCK.ACQUIRE key owner ttl [WAIT ms] [FENCE token] [RETRY] [NOTE text]`

use palisade_core::request::{Acquire as Request, Patience};
use palisade_core::{Acquired, Now, Refusal, Token, Want, acquire, acquire_later};

use super::{CONSTANT, SINCE, open};
use crate::arguments::{Arguments, once, parse_note, parse_patience, parse_token};
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, LockKey, Reply, Shape, Spec};
use crate::hand_over::{self, Cause};
use crate::waiting::{self, Form, Joins};
use crate::{clock, cluster, effects, life, state};

/// Takes the lock.
pub struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"LOCK.ACQUIRE",
        summary: c"Takes a lock for an owner, waiting in turn if asked to, and answers its fencing token, with WAIT also the \
                   milliseconds waited; Null if somebody else holds it.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"write fast deny-oom blocking",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Insert),
        arguments: &[
            Argument { name: c"owner", token: None, shape: Shape::Bytes },
            Argument { name: c"ttl", token: None, shape: Shape::Integer },
            Argument { name: c"ms", token: Some(c"WAIT"), shape: Shape::Integer },
            Argument { name: c"token", token: Some(c"FENCE"), shape: Shape::Integer },
            Argument { name: c"retry", token: Some(c"RETRY"), shape: Shape::Token },
            Argument { name: c"text", token: Some(c"NOTE"), shape: Shape::Bytes },
        ],
        master_only: true,
        vouches: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let (ask, form) = request(call)?;
        let now = clock::now();
        let mut key = open(call)?;
        // Whoever waits is before the one who asks now.
        hand_over::serve(call.ctx, &mut key, Cause::Command, now);
        let acquired = take(call, &mut key, &ask, now);
        waiting::deliver(call.ctx);
        let reply = |token: Token| waiting::granted(token, 0, form);
        let joins = || {
            let Request { owner, ttl, fence, retry, note, patience } = ask;
            Joins { owner, note, want: Want::Lock { ttl, fence, retry }, patience, ticket: None, form }
        };
        Ok(match acquired? {
            Acquired::Granted(lock) => {
                let token = lock.token();
                if key.lock().is_some() {
                    call.ctx.notify(effects::EXPIRED, key.name());
                }
                effects::granted(call.ctx, &mut key, lock, effects::ACQUIRED, now);
                reply(token)
            }
            Acquired::Prolonged(token) => {
                effects::changed(call.ctx, &mut key, now);
                call.ctx.notify(effects::EXTENDED, key.name());
                reply(token)
            }
            Acquired::Unchanged(token) => reply(token),
            Acquired::Contended => Reply::Null,
            Acquired::Queues => waiting::join(call.ctx, &key, joins(), now),
            Acquired::WaitsForDisk => waiting::join_for_disk(call.ctx, &key, joins(), now),
        })
    }
}

/// The rule; what stands in its way for a moment is waited out by a request that waits longer.
fn take(call: &Call<'_>, key: &mut LockKey<'_>, ask: &Request<'_>, now: Now) -> Result<Acquired, Refusal> {
    cluster::know(call.ctx, key.name());
    let (db, name) = (call.ctx.db(), key.name().bytes());
    let ready = life::ready(call.ctx);
    let acquired =
        ready.and_then(|()| life::with_tokens(now, |node| acquire(db, name, key.lock_mut(), ask, node, now)));
    let may_block = call.ctx.may_block();
    acquired.or_else(|refusal| state::with(|node| acquire_later(db, name, ask, refusal, may_block, node)))
}

/// What is asked, and how it is answered: with how long it waited if it names a time to wait.
fn request<'a>(call: &'a Call<'a>) -> Result<(Request<'a>, Form), Refusal> {
    let arguments = &mut Arguments::after_key(call);
    let (owner, ttl) = (arguments.owner()?, arguments.ttl()?);
    let (mut wait, mut fence, mut retry, mut note) = (None, None, None, None);
    while let Some(option) = arguments.option() {
        if option.eq_ignore_ascii_case(b"WAIT") {
            arguments.value("WAIT", &mut wait, parse_patience)?;
        } else if option.eq_ignore_ascii_case(b"FENCE") {
            arguments.value("FENCE", &mut fence, parse_token)?;
        } else if option.eq_ignore_ascii_case(b"RETRY") {
            once("RETRY", &mut retry, ())?;
        } else if option.eq_ignore_ascii_case(b"NOTE") {
            arguments.value("NOTE", &mut note, parse_note)?;
        } else {
            return Err(Refusal::UnknownOption { known: "WAIT ms, FENCE token, RETRY and NOTE text" });
        }
    }
    // In a transaction or a script the answer is at once.
    let patience = wait.filter(|_| call.ctx.may_block()).unwrap_or(Patience::NONE);
    let note = note.unwrap_or_default();
    let form = if wait.is_some() { Form::TokenAndWait } else { Form::Token };
    Ok((Request { owner, ttl, fence, retry: retry.is_some(), note, patience }, form))
}
