//! `LOCK.REENTER key owner [LEVEL n] [TTL ms]`

use palisade_core::request::Reenter as Request;
use palisade_core::{Reentered, Refusal, reenter};

use super::{CONSTANT, SINCE, open};
use crate::arguments::{Arguments, parse_level, parse_ttl};
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, effects, life, state};

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
        life::ready(call.ctx)?;
        let ask = request(&mut Arguments::after_key(call))?;
        let now = clock::now();
        let mut key = open(call)?;
        match state::with(|node| reenter(key.lock_mut(), &ask, node, now))? {
            Reentered::Changed(holds) => {
                effects::changed(call.ctx, &mut key, now);
                Ok(Reply::Integer(holds.into()))
            }
            Reentered::Unchanged(holds) => Ok(Reply::Integer(holds.into())),
            Reentered::NotHeld => Ok(Reply::Null),
        }
    }
}

fn request<'a>(arguments: &mut Arguments<'a>) -> Result<Request<'a>, Refusal> {
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
    Ok(Request { owner, level, ttl })
}
