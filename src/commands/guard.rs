//! `LOCK.GUARD [LIFT | ARM ms]`

use palisade_core::Refusal;
use palisade_core::request::{self, GuardMs};

use crate::driver::{cluster, timer};
use crate::durability::{operator, readiness};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, state};

/// LOCK.GUARD: shows, lifts or arms the guard, for an operator.
pub struct Guard;

impl Command for Guard {
    const SPEC: Spec = Spec::new(request::Guard::SPEC, AclGroup::Operator, "0.1.0", "O(1)");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let asked = request::Guard::read(call.words(), config::bounds())?;
        let _ = readiness::ready(call.ctx, clock::boot_now());
        let ms = match asked {
            None => {
                let now = clock::boot_now();
                return Ok(Reply::Integer(state::with(|node| node.guard().left_ms(now))));
            }
            Some(request::Guard::Lift) => None,
            Some(request::Guard::Arm(GuardMs(ms))) => Some(ms),
        };
        // Reads the slots first: the operator means the node with the slots that it has now.
        cluster::read_slots(call.ctx);
        let left_ms = operator::set_guard(ms);
        timer::arm(call.ctx);
        left_ms.map(Reply::Integer)
    }
}
