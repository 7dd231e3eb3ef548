//! `LOCK.CHECK key token`

use palisade_core::{Refusal, check, request};

use super::key::read_lock;
use crate::driver::cluster;
use crate::durability::readiness;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, state};

/// LOCK.CHECK: shows whether a grant has exactly this token now.
pub struct Check;

impl Command for Check {
    const SPEC: Spec =
        Spec::new(request::Check::SPEC, AclGroup::Read, "0.1.0", "O(1)").master_only().refused_when_poisoned();

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Check { token } = request::Check::read(call.words(), config::bounds())?;
        let key = read_lock(call)?;
        let now = clock::now();
        readiness::ready(call.ctx, now.boot)?;
        cluster::ensure_vouched(call.ctx, call.key())?;
        Ok(state::with(|node| check(key.lock(), token, node, now))?.map_or(Reply::Null, Reply::Integer))
    }
}
