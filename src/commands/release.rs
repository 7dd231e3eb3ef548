//! `LOCK.RELEASE key owner [LEVEL n] [TOKEN t]`

use palisade_core::Refusal;
use palisade_core::engine::Request;
use palisade_core::request::Release as Ask;

use super::{CONSTANT, SINCE, open};
use crate::arguments::{Arguments, parse_level, parse_token};
use crate::driver::blocked_clients::Form;
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, driver};

/// Gives holds back.
pub struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"LOCK.RELEASE",
        summary: c"Gives one hold back, or all down to a level, and answers how many are left (0: the lock is free); \
                   Null if this owner does not hold it.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"write fast",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Delete),
        arguments: &[
            Argument { name: c"owner", token: None, shape: Shape::Bytes },
            Argument { name: c"level", token: Some(c"LEVEL"), shape: Shape::Integer },
            Argument { name: c"token", token: Some(c"TOKEN"), shape: Shape::Integer },
        ],
        master_only: true,
        vouches: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request = Request::Release(request(&mut Arguments::after_key(call))?);
        driver::answer(call.ctx, &mut open(call)?, &request, Form::Token, clock::now())
    }
}

fn request<'a>(arguments: &mut Arguments<'a>) -> Result<Ask<'a>, Refusal> {
    let owner = arguments.owner()?;
    let (mut level, mut token) = (None, None);
    while let Some(option) = arguments.option() {
        if option.eq_ignore_ascii_case(b"LEVEL") {
            arguments.value("LEVEL", &mut level, parse_level)?;
        } else if option.eq_ignore_ascii_case(b"TOKEN") {
            arguments.value("TOKEN", &mut token, parse_token)?;
        } else {
            return Err(Refusal::UnknownOption { known: "LEVEL n and TOKEN t" });
        }
    }
    Ok(Ask { owner, level, token })
}
