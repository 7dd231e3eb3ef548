//! `LOCK.WATCH key ms [TOKEN t [SEQ n]]`

use palisade_core::engine::Key;
use palisade_core::request::{self, Patience};
use palisade_core::{Refusal, Watched};

use super::key::read_lock;
use crate::driver::{sight, timer, watchers};
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};
use crate::{clock, config, state};

/// LOCK.WATCH: answers when the lock is no longer in the state that the caller knows.
pub struct Watch;

impl Command for Watch {
    const SPEC: Spec = Spec::new(request::Watch::SPEC, AclGroup::Read, "1.0.0", "O(1)");

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let mut ask = request::Watch::read(call.words(), config::bounds())?;
        // In a transaction or a script the client cannot be blocked, so the answer comes at once.
        if !call.ctx.may_block() {
            ask.patience = Patience::NONE;
        }
        let (key, now) = (read_lock(call)?, clock::boot_now());
        match state::with(|node| node.watch(key.lock(), &ask, now))? {
            Watched::Differs => {
                let name = key.name();
                let at = Key { db: call.ctx.db(), name: name.bytes() };
                Ok(Reply::Map(state::with(|node| sight::fields(key.lock(), at, node, now))))
            }
            Watched::Same => Ok(Reply::Null),
            Watched::Watches => {
                watchers::block(call.ctx, &key, &ask, now)?;
                timer::arm(call.ctx);
                Ok(Reply::Later)
            }
        }
    }
}
