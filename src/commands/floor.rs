//! `LOCK.FLOOR [RAISE token]`

use palisade_core::Refusal;
use palisade_core::request::floor;

use super::SINCE;
use crate::ffi::{AclGroup, Argument, Call, Command, Reply, Shape, Spec};
use crate::integer::parse_integer;
use crate::{clock, life};

/// Where the node's tokens start.
pub struct Floor;

impl Command for Floor {
    const SPEC: Spec = Spec {
        name: c"LOCK.FLOOR",
        summary: c"Answers up to where this node issues no token, after raising that if asked to. For operators: it brings a node up \
                   to others whose tokens ran ahead of the clock.",
        complexity: c"O(1)",
        since: SINCE,
        flags: c"admin fast",
        acl: AclGroup::Operator,
        key: None,
        arguments: &[Argument { name: c"token", token: Some(c"RAISE"), shape: Shape::Integer }],
        master_only: true,
        vouches: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        const KNOWN: Refusal = Refusal::UnknownOption { known: "RAISE token" };
        let token = match (call.argument(0), call.argument(1)) {
            _ if call.argument(2).is_some() => return Err(KNOWN),
            (None, _) => None,
            (Some(word), _) if !word.eq_ignore_ascii_case(b"RAISE") => return Err(KNOWN),
            (Some(_), None) => return Err(Refusal::MissingValue { name: "RAISE" }),
            (Some(_), Some(token)) => Some(floor(parse_integer(token))?),
        };
        life::ready(call.ctx, clock::boot_now())?;
        life::raise_floor(token).map(Reply::Integer)
    }
}
