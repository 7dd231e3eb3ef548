//! `LOCK.HEAR name ms`

use palisade_core::Refusal;
use palisade_core::request::{self, Patience};

use crate::config;
use crate::driver::{listeners, timer};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

/// LOCK.HEAR: makes the connection a listener, and returns answers to waiting requests of other connections.
pub struct Hear;

impl Command for Hear {
    // Replicas accept this command too, because a master that becomes a replica answers its waiting requests.
    const SPEC: Spec = Spec::new(request::Hear::SPEC, AclGroup::Write, "1.0.0", "O(N) with the number of answers");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let request::Hear { name, patience } = request::Hear::read(call.words(), config::bounds())?;
        // In a transaction the client cannot be blocked, so the answer comes at once.
        let patience = if call.ctx.may_block() { patience } else { Patience::NONE };
        let reply = listeners::hear(call.ctx, name, patience);
        timer::arm(call.ctx);
        reply
    }
}
