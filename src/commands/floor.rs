//! `LOCK.FLOOR [RAISE token]`

use palisade_core::Refusal;
use palisade_core::request::{self, TokenFloor};

use crate::durability::{operator, readiness};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config};

/// LOCK.FLOOR: shows or raises the floor of the node's tokens.
pub struct Floor;

impl Command for Floor {
    const SPEC: Spec = Spec::new(request::Floor::SPEC, AclGroup::Operator, "0.1.0", "O(1)").master_only();

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Floor { raise } = request::Floor::read(call.words(), config::bounds())?;
        readiness::ready(call.ctx, clock::boot_now())?;
        operator::raise_floor(raise.map(|TokenFloor(token)| token)).map(Reply::Integer)
    }
}
