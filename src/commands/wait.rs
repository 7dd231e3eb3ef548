//! `LOCK.WAIT key owner ms [TICKET n]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::{Patience, Wait as Ask};

use super::{CONSTANT, SINCE, look};
use crate::arguments::{Arguments, parse_ticket};
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, driver};

/// Tells when the lock is free.
pub struct Wait;

impl Command for Wait {
    const SPEC: Spec = Spec {
        name: c"LOCK.WAIT",
        summary:
            c"Waits until a lock is free for this owner, for whom it then is kept for a moment, and answers 1; 0 if \
                   that did not happen in time. Grants nothing. For clients that acquire over several nodes.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"readonly fast blocking",
        acl: AclGroup::Write,
        // It changes no key, but what it keeps free others do not get: that takes the trust of one who may write it.
        key: Some(KeyAccess::Update),
        arguments: &[
            Argument { name: c"owner", token: None, shape: Shape::Bytes },
            Argument { name: c"ms", token: None, shape: Shape::Integer },
            Argument { name: c"n", token: Some(c"TICKET"), shape: Shape::Integer },
        ],
        master_only: true,
        vouches: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let mut ask = request(&mut Arguments::after_key(call))?;
        // In a transaction or a script the answer is at once.
        if !call.ctx.may_block() {
            ask.patience = Patience::NONE;
        }
        driver::answer(call.ctx, &mut look(call)?, &Request::Wait(ask), Form::Token, clock::now())
    }
}

fn request<'a>(arguments: &mut Arguments<'a>) -> Result<Ask<'a>, Refusal> {
    let (owner, patience) = (arguments.owner()?, arguments.patience()?);
    let mut ticket = None;
    while let Some(option) = arguments.option() {
        if option.eq_ignore_ascii_case(b"TICKET") {
            arguments.value("TICKET", &mut ticket, parse_ticket)?;
        } else {
            return Err(Refusal::UnknownOption { known: "TICKET n" });
        }
    }
    Ok(Ask { owner, patience, ticket })
}
