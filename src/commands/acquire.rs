//! `LOCK.ACQUIRE key owner ttl [FENCE token] [RETRY] [NOTE text]`

use palisade_core::request::Acquire as Request;
use palisade_core::{Acquired, Refusal, acquire};

use super::{CONSTANT, SINCE, open};
use crate::arguments::{Arguments, once, parse_note, parse_token};
use crate::ffi::{AclGroup, Argument, Call, Command, KeyAccess, Reply, Shape, Spec};
use crate::{clock, effects, life};

/// Takes the lock.
pub struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"LOCK.ACQUIRE",
        summary: c"Takes a lock for an owner and answers its fencing token; Null if somebody else holds it.",
        complexity: CONSTANT,
        since: SINCE,
        flags: c"write fast deny-oom",
        acl: AclGroup::Write,
        key: Some(KeyAccess::Insert),
        arguments: &[
            Argument { name: c"owner", token: None, shape: Shape::Bytes },
            Argument { name: c"ttl", token: None, shape: Shape::Integer },
            Argument { name: c"token", token: Some(c"FENCE"), shape: Shape::Integer },
            Argument { name: c"retry", token: Some(c"RETRY"), shape: Shape::Token },
            Argument { name: c"text", token: Some(c"NOTE"), shape: Shape::Bytes },
        ],
        master_only: true,
        vouches: Some(life::ready),
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let ask = request(&mut Arguments::after_key(call))?;
        let now = clock::now();
        let mut key = open(call)?;
        let name = key.name().bytes();
        let db = call.ctx.db();
        match life::with_tokens(now, |node| acquire(db, name, key.lock_mut(), &ask, node, now))? {
            Acquired::Granted(lock) => {
                let token = lock.token().get();
                effects::granted(call.ctx, &mut key, lock, now);
                Ok(Reply::Integer(token))
            }
            Acquired::Unchanged(token) => Ok(Reply::Integer(token.get())),
            Acquired::Contended => Ok(Reply::Null),
        }
    }
}

fn request<'a>(arguments: &mut Arguments<'a>) -> Result<Request<'a>, Refusal> {
    let (owner, ttl) = (arguments.owner()?, arguments.ttl()?);
    let (mut fence, mut retry, mut note) = (None, None, None);
    while let Some(option) = arguments.option() {
        if option.eq_ignore_ascii_case(b"FENCE") {
            arguments.value("FENCE", &mut fence, parse_token)?;
        } else if option.eq_ignore_ascii_case(b"RETRY") {
            once("RETRY", &mut retry, ())?;
        } else if option.eq_ignore_ascii_case(b"NOTE") {
            arguments.value("NOTE", &mut note, parse_note)?;
        } else {
            return Err(Refusal::UnknownOption { known: "FENCE token, RETRY and NOTE text" });
        }
    }
    Ok(Request { owner, ttl, fence, retry: retry.is_some(), note: note.unwrap_or_default() })
}
