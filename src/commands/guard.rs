//! `LOCK.GUARD [LIFT | ARM ms]`

use palisade_core::Refusal;

use super::declaration::arguments;
use super::values::GuardMs;
use crate::driver::{cluster, timer};
use crate::durability::{operator, readiness};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, state};

arguments! {
    /// What the operator says.
    enum Asked {
        [LIFT] Lift,
        [ARM ms] Arm: GuardMs,
    }
}

/// The operator's word on the guard.
pub struct Guard;

impl Command for Guard {
    const SPEC: Spec = Spec {
        name: c"LOCK.GUARD",
        summary:
            c"Answers how many milliseconds the node still refuses to grant, after lifting or arming that if asked \
                   to. For operators: LIFT is your word that nobody holds a lock here.",
        complexity: c"O(1)",
        since: c"0.1.0",
        flags: c"admin fast",
        acl: AclGroup::Operator,
        key: None,
        arguments: Asked::ARGUMENTS,
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let asked = Asked::read(call)?;
        let _ = readiness::ready(call.ctx, clock::boot_now());
        let ms = match asked {
            None => {
                let now = clock::boot_now();
                return Ok(Reply::Integer(state::with(|node| node.guard().left_ms(now))));
            }
            Some(Asked::Lift) => None,
            Some(Asked::Arm(GuardMs(ms))) => Some(ms),
        };
        // The word is about the node as it is after its start, with the slots that it has by now.
        cluster::look(call.ctx);
        let left_ms = operator::set_guard(ms);
        timer::arm(call.ctx);
        left_ms.map(Reply::Integer)
    }
}
