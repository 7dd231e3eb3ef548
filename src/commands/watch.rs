//! `LOCK.WATCH key ms [TOKEN t [SEQ n]]`

use palisade_core::engine::Key;
use palisade_core::request::{Known, NoteSequence, Patience, Watch as Ask};
use palisade_core::{Refusal, Watched};

use super::declaration::arguments;
use super::key::look;
use super::values::KnownToken;
use crate::driver::{sight, timer, watchers};
use crate::ffi::{AclGroup, Call, Command, KeyAccess, Reply, Spec};
use crate::{clock, command_names, state};

arguments! {
    /// What is asked.
    struct Asked {
        ms: Patience,
        [TOKEN t as token] token: KnownToken,
        [SEQ n] seq: NoteSequence,
    }
}

/// Tells when a lock is not what the caller knows.
pub struct Watch;

impl Command for Watch {
    const SPEC: Spec = Spec {
        name: command_names::WATCH,
        summary: c"Waits until no grant has this token, or its note is newer; without TOKEN until somebody holds the lock. Answers \
                   as LOCK.INFO what it is then, with token 0 if it is free; Null if nothing happened in time.",
        complexity: c"O(1)",
        since: c"0.2.0",
        flags: c"readonly fast blocking",
        acl: AclGroup::Read,
        key: Some(KeyAccess::Read),
        arguments: Asked::ARGUMENTS,
        master_only: false,
        refused_when_poisoned: false,
    };

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        let Asked { ms, token, seq } = Asked::read(call)?;
        let known = match (token, seq) {
            (Some(KnownToken(Some(token))), seq) => Known::Grant(token, seq),
            (None | Some(KnownToken(None)), None) => Known::Free,
            (_, Some(_)) => return Err(Refusal::Needs { option: "SEQ", needs: "TOKEN" }),
        };
        // In a transaction or a script the answer is at once.
        let patience = if call.ctx.may_block() { ms } else { Patience::NONE };
        let (ask, key, now) = (Ask { known, patience }, look(call)?, clock::boot_now());
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
