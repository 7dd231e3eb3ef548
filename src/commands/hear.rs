//! `LOCK.HEAR name ms`

use palisade_core::Refusal;
use palisade_core::request::{ListenerName, Patience};

use super::declaration::arguments;
use crate::command_names;
use crate::driver::{listeners, timer};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

arguments! {
    /// What is asked.
    struct Asked<'a> {
        name: ListenerName<'a>,
        ms: Patience,
    }
}

/// Hears what became of requests that wait.
pub struct Hear;

impl Command for Hear {
    const SPEC: Spec = Spec {
        name: command_names::HEAR,
        summary: c"Listens on this connection for the answers to LOCK.WAIT with HEARD, under a name that they give, and answers those there \
                   are, or the first to come in time; an empty list if there are none. For clients that wait for many locks.",
        complexity: c"O(N) with the number of answers",
        since: c"0.2.0",
        flags: c"fast blocking",
        acl: AclGroup::Write,
        key: None,
        arguments: Asked::ARGUMENTS,
        // A master that becomes a replica tells those who waited.
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { name, ms } = Asked::read(call)?;
        // In a transaction the answer is at once.
        let patience = if call.ctx.may_block() { ms } else { Patience::NONE };
        let reply = listeners::hear(call.ctx, name, patience);
        timer::arm(call.ctx);
        reply
    }
}
