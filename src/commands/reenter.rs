//! `LOCK.REENTER key owner [LEVEL n] [TTL ms]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::Reenter as Ask;

use super::{CONSTANT, SINCE, open};
use crate::arguments::{Arguments, parse_level, parse_ttl};
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, driver};

/// One hold more.
pub struct Reenter;

impl Command for Reenter {
    const SPEC: Spec = Spec {
        name: c"LOCK.REENTER",
        summary:
            c"Adds one hold, or as many as a level needs, and answers how many there are; Null if this owner does \
                   not hold the lock.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"write fast",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Update),
        arguments: &[
            Argument { name: c"owner", token: None, shape: Shape::Bytes },
            Argument { name: c"level", token: Some(c"LEVEL"), shape: Shape::Integer },
            Argument { name: c"ttl", token: Some(c"TTL"), shape: Shape::Integer },
        ],
        master_only: true,
        vouches: true,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request = Request::Reenter(request(&mut Arguments::after_key(call))?);
        driver::answer(call.ctx, &mut open(call)?, &request, Form::Token, clock::now())
    }
}

fn request<'a>(arguments: &mut Arguments<'a>) -> Result<Ask<'a>, Refusal> {
    let owner = arguments.owner()?;
    let (mut level, mut ttl) = (None, None);
    while let Some(option) = arguments.option() {
        if option.eq_ignore_ascii_case(b"LEVEL") {
            arguments.value("LEVEL", &mut level, parse_level)?;
        } else if option.eq_ignore_ascii_case(b"TTL") {
            arguments.value("TTL", &mut ttl, parse_ttl)?;
        } else {
            return Err(Refusal::UnknownOption { known: "LEVEL n and TTL ms" });
        }
    }
    Ok(Ask { owner, level, ttl })
}
