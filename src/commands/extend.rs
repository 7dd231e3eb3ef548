//! `LOCK.EXTEND key owner ttl [TOKEN t]`

use palisade_core::request::Extend as Request;
use palisade_core::{Extended, Refusal, extend};

use super::{CONSTANT, SINCE, open};
use crate::arguments::{Arguments, parse_token};
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, effects, life, state};

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
        life::ready(call.ctx)?;
        let ask = request(&mut Arguments::after_key(call))?;
        let now = clock::now();
        let mut key = open(call)?;
        match state::with(|node| extend(key.lock_mut(), &ask, node, now))? {
            Extended::Prolonged(token) => {
                effects::changed(call.ctx, &mut key, now);
                call.ctx.notify(effects::EXTENDED, key.name());
                Ok(Reply::Integer(token.get()))
            }
            Extended::Unchanged(token) => Ok(Reply::Integer(token.get())),
            Extended::NotHeld => Ok(Reply::Null),
        }
    }
}

fn request<'a>(arguments: &mut Arguments<'a>) -> Result<Request<'a>, Refusal> {
    let (owner, ttl) = (arguments.owner()?, arguments.ttl()?);
    let mut token = None;
    while let Some(option) = arguments.option() {
        if option.eq_ignore_ascii_case(b"TOKEN") {
            arguments.value("TOKEN", &mut token, parse_token)?;
        } else {
            return Err(Refusal::UnknownOption { known: "TOKEN t" });
        }
    }
    Ok(Request { owner, ttl, token })
}
