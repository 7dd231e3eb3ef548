//! `LOCK.GUARD [LIFT | ARM ms]`

use palisade_core::Refusal;
use palisade_core::limits::GUARD_LIMIT_MS;

use super::SINCE;
use crate::driver::timer;
use crate::ffi::{AclGroup, Argument, Call, Command, Reply, Shape, Spec};
use crate::integer::parse_integer;
use crate::{clock, cluster, life, state};

/// The operator's word on the guard.
pub struct Guard;

impl Command for Guard {
    const SPEC: Spec = Spec {
        name: c"LOCK.GUARD",
        summary:
            c"Answers how many milliseconds the node still refuses to grant, after lifting or arming that if asked \
                   to. For operators: LIFT is your word that nobody holds a lock here.",
        complexity: c"O(1)",
        since: SINCE,
        flags: c"admin fast",
        acl: AclGroup::Operator,
        key: None,
        arguments: &[
            Argument { name: c"lift", token: Some(c"LIFT"), shape: Shape::Token },
            Argument { name: c"ms", token: Some(c"ARM"), shape: Shape::Integer },
        ],
        master_only: false,
        vouches: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        const KNOWN: Refusal = Refusal::UnknownOption { known: "LIFT or ARM ms" };
        let word = call.argument(0);
        let is = |name: &[u8]| word.is_some_and(|word| word.eq_ignore_ascii_case(name));
        let ms = match call.argument(1) {
            _ if call.argument(2).is_some() => return Err(KNOWN),
            None if word.is_none() => {
                let _ = life::ready(call.ctx, clock::boot_now());
                let now = clock::boot_now();
                return Ok(Reply::Integer(state::with(|node| node.guard.left_ms(now))));
            }
            None if is(b"LIFT") => None,
            None if is(b"ARM") => return Err(Refusal::MissingValue { name: "ARM" }),
            Some(ms) if is(b"ARM") => {
                let ms = parse_integer(ms).and_then(|ms| u32::try_from(ms).ok());
                Some(ms.filter(|ms| (1..=GUARD_LIMIT_MS).contains(ms)).ok_or(Refusal::GuardLength)?)
            }
            _ => return Err(KNOWN),
        };
        // The word is about the node as it is after its start, with the slots that it has by now.
        let _ = life::ready(call.ctx, clock::boot_now());
        cluster::look(call.ctx);
        let left_ms = life::guard_by_operator(ms);
        timer::arm(call.ctx);
        left_ms.map(Reply::Integer)
    }
}
