//! `LOCK.FLOOR [RAISE token]`

use palisade_core::Refusal;

use super::declaration::arguments;
use super::values;
use crate::clock;
use crate::durability::{operator, readiness};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

arguments! {
    /// What is asked.
    struct Asked {
        [RAISE token] raise: values::Floor,
    }
}

/// Where the node's tokens start.
pub struct Floor;

impl Command for Floor {
    const SPEC: Spec = Spec {
        name: c"LOCK.FLOOR",
        summary: c"Answers up to where this node issues no token, after raising that if asked to. For operators: it brings a node up \
                   to others whose tokens ran ahead of the clock.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"admin fast",
        acl: AclGroup::Operator,
        key: None,
        arguments: Asked::ARGUMENTS,
        master_only: true,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { raise } = Asked::read(call)?;
        readiness::ready(call.ctx, clock::boot_now())?;
        operator::raise_floor(raise.map(|values::Floor(token)| token)).map(Reply::Integer)
    }
}
