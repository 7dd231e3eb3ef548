//! Answers the engine's questions to the server.

use std::cell::Cell;

use palisade_core::engine::{By, Finding, Key, Question};
use palisade_core::{BootTime, Refusal};

use super::blocked_clients::{self, Asker};
use super::{askers, cluster};
use crate::clock;
use crate::durability::readiness;
use crate::ffi::{Context, KeyName, is_poisoned};

/// The time for which the node relies on the server's answer that enough replicas follow, in milliseconds. The server
/// itself checks once a second.
const REPLICAS_STAND_MS: u64 = 100;

/// Answers the questions that the engine asks in one request.
#[derive(Default)]
pub struct Questions {
    /// The server's error for clients that wait for the key, if the server does not serve the key's slot.
    redirect: Option<String>,
}

impl Questions {
    /// Answers `question` about the key `name`, in a request of `asker`.
    pub fn ask(
        &mut self,
        ctx: Context<'_>,
        name: KeyName<'_>,
        question: Question,
        asker: &Asker,
        now: BootTime,
    ) -> Finding {
        match question {
            Question::IsServedHere => {
                self.redirect = cluster::redirect(ctx, name);
                if self.redirect.is_none() { Finding::Yes } else { Finding::No }
            }
            Question::IsPermitted(waiter) if blocked_clients::is_permitted(waiter, ctx.db(), name) => Finding::Yes,
            Question::IsPermitted(_) => Finding::Refused(Refusal::Forbidden),
            Question::MayGrant(_) if is_poisoned() => Finding::Refused(Refusal::Poisoned),
            // The server itself would refuse an ACQUIRE here (NOREPLICAS). Without this refusal, a master that lost its
            // replicas could grant a waiting request what its successor grants to another owner.
            Question::MayGrant(By::Itself) if !enough_replicas(ctx, now) => Finding::Refused(Refusal::NotYet),
            Question::MayGrant(_) => Finding::Yes,
            Question::MayRenew(_) if is_poisoned() => Finding::Refused(Refusal::Poisoned),
            Question::MayRenew(client) if !ctx.is_open(client) => Finding::No,
            // The server itself would refuse the holder's EXTEND here.
            Question::MayRenew(_) if !enough_replicas(ctx, now) => Finding::Refused(Refusal::NotYet),
            Question::MayRenew(_) => Finding::Yes,
            // The client cannot be blocked, as in a transaction or a script.
            Question::WhoAsks if !ctx.may_block() => Finding::No,
            Question::WhoAsks => askers::asker(ctx, asker.listener).map_or_else(Finding::Refused, Finding::Asks),
            Question::OnDisk => {
                readiness::check_disk(ctx);
                Finding::Yes
            }
        }
    }

    /// Answers the clients that wait for the lock `name` with the server's error for a slot that another node serves.
    pub fn redirect_all(&mut self, ctx: Context<'_>, name: KeyName<'_>) {
        if let Some(redirect) = self.redirect.take() {
            blocked_clients::dismiss(Key { db: ctx.db(), name: name.bytes() }, &redirect);
        }
    }
}

/// Returns whether as many replicas follow as `min-replicas-to-write` demands.
fn enough_replicas(ctx: Context<'_>, now: BootTime) -> bool {
    thread_local! {
        static LOOKED: Cell<Option<(BootTime, bool)>> = const { Cell::new(None) };
    }
    if let Some((when, enough)) = LOOKED.get()
        && now.ms_since(when) < REPLICAS_STAND_MS
    {
        return enough;
    }
    // The server's INFO has this field only if `min-replicas-to-write` is set.
    let enough = ctx.info_number(c"replication", c"min_slaves_good_slaves").is_none_or(|good| {
        let needed = ctx.parameter(c"min-replicas-to-write").and_then(|needed| needed.parse().ok());
        needed.is_none_or(|needed: u64| good >= needed)
    });
    LOOKED.set(Some((clock::boot_now(), enough)));
    enough
}
