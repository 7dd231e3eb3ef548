//! Answers the engine's questions to the server.

use std::cell::Cell;

use palisade_core::engine::{By, Finding, Key, Question};
use palisade_core::{BootTime, Refusal};

use super::blocked_clients::{self, Asker};
use super::{askers, cluster};
use crate::clock;
use crate::durability::readiness;
use crate::ffi::{Context, KeyName, is_poisoned};

/// The time for which the answer whether enough replicas follow is valid, in milliseconds. The server itself checks
/// once a second.
const REPLICAS_STAND_MS: u64 = 100;

/// The answers to the questions of one request.
#[derive(Default)]
pub struct Questions {
    /// The error that redirects the key's clients.
    redirect: Option<String>,
}

impl Questions {
    /// Answers `question` about the key `name`, for the request of `asker`.
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
            Question::IsPermitted(waiter) if blocked_clients::is_permitted(waiter, name) => Finding::Yes,
            Question::IsPermitted(_) => Finding::Refused(Refusal::Forbidden),
            Question::MayGrant(_) if is_poisoned() => Finding::Refused(Refusal::Poisoned),
            // The server itself would refuse an ACQUIRE (NOREPLICAS). Without this refusal a master that lost its
            // replicas could grant a waiting request what its successor grants too.
            Question::MayGrant(By::Itself) if !enough_replicas(ctx, now) => Finding::Refused(Refusal::NotYet),
            Question::MayGrant(_) => Finding::Yes,
            Question::MayRenew(_) if is_poisoned() => Finding::Refused(Refusal::Poisoned),
            Question::MayRenew(client) if !ctx.is_open(client) => Finding::No,
            // The server would refuse the holder's EXTEND too.
            Question::MayRenew(_) if !enough_replicas(ctx, now) => Finding::Refused(Refusal::NotYet),
            Question::MayRenew(_) => Finding::Yes,
            // The client cannot be blocked either in this case.
            Question::WhoAsks if !ctx.may_block() => Finding::No,
            Question::WhoAsks => askers::who_asks(ctx, asker.listener).map_or_else(Finding::Refused, Finding::Asks),
            Question::OnDisk => {
                readiness::look_at_disk(ctx);
                Finding::Yes
            }
        }
    }

    /// Redirects the clients that wait for the lock of `name`.
    pub fn redirect_all(&mut self, ctx: Context<'_>, name: KeyName<'_>) {
        if let Some(redirect) = self.redirect.take() {
            blocked_clients::dismiss(Key { db: ctx.db(), name: name.bytes() }, &redirect);
        }
    }
}

/// Returns whether as many replicas follow as min-replicas-to-write demands.
fn enough_replicas(ctx: Context<'_>, now: BootTime) -> bool {
    thread_local! {
        static LOOKED: Cell<Option<(BootTime, bool)>> = const { Cell::new(None) };
    }
    if let Some((when, enough)) = LOOKED.get()
        && now.ms_since(when) < REPLICAS_STAND_MS
    {
        return enough;
    }
    // INFO has the field only if a number of replicas is demanded.
    let enough = ctx.info_number(c"replication", c"min_slaves_good_slaves").is_none_or(|good| {
        let needed = ctx.parameter(c"min-replicas-to-write").and_then(|needed| needed.parse().ok());
        needed.is_none_or(|needed: u64| good >= needed)
    });
    LOOKED.set(Some((clock::boot_now(), enough)));
    enough
}
