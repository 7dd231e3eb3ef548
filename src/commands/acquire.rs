//! `LOCK.ACQUIRE key owner ttl [WAIT ms] [FENCE token] [RETRY] [NOTE text]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{Acquire as Ask, Patience};

use super::{CONSTANT, SINCE, open};
use crate::arguments::{Arguments, once, parse_note, parse_patience, parse_token};
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, driver};

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
        let request = Request::Acquire { ask, may_block: call.ctx.may_block() };
        driver::answer(call.ctx, &mut open(call)?, &request, form, clock::now())
    }
}

/// What is asked, and how it is answered: with how long it waited if it names a time to wait.
fn request<'a>(call: &'a Call<'a>) -> Result<(Ask<'a>, Form), Refusal> {
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
    Ok((Ask { owner, ttl, fence, retry: retry.is_some(), note, patience }, form))
}
