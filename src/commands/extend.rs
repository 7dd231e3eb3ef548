//! `LOCK.EXTEND key owner ttl [TOKEN t]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::Extend as Ask;

use super::{CONSTANT, SINCE, open};
use crate::arguments::{Arguments, parse_token};
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, driver};

/// A later deadline.
pub struct Extend;

impl Command for Extend {
    const SPEC: Spec = Spec {
        name: c"LOCK.EXTEND",
        summary: c"Makes a lease last at least this long from now and answers its token; Null if this owner does not \
                   hold the lock.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"write fast",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Update),
        arguments: &[
            Argument { name: c"owner", token: None, shape: Shape::Bytes },
            Argument { name: c"ttl", token: None, shape: Shape::Integer },
            Argument { name: c"token", token: Some(c"TOKEN"), shape: Shape::Integer },
        ],
        master_only: true,
        vouches: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request = Request::Extend(request(&mut Arguments::after_key(call))?);
        driver::answer(call.ctx, &mut open(call)?, &request, Form::Token, clock::now())
    }
}

fn request<'a>(arguments: &mut Arguments<'a>) -> Result<Ask<'a>, Refusal> {
    let (owner, ttl) = (arguments.owner()?, arguments.ttl()?);
    let mut token = None;
    while let Some(option) = arguments.option() {
        if option.eq_ignore_ascii_case(b"TOKEN") {
            arguments.value("TOKEN", &mut token, parse_token)?;
        } else {
            return Err(Refusal::UnknownOption { known: "TOKEN t" });
        }
    }
    Ok(Ask { owner, ttl, token })
}
