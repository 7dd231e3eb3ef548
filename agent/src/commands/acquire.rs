//! `LOCK.ACQUIRE key owner ttl [SHARED | LIMIT k [PERMIT n]] [KEEPALIVE ms] [WAIT ms] [RETRY] [NOTE text]`

use std::time::Duration;

use palisade_client::by_owner::{Granted, Keeper, Take};
use palisade_core::request::{Patience, Ttl};
use palisade_core::{ClientId, KeepAlive, Refusal};

use super::command::{Call, Command, Run, Work};
use crate::refused::Refused;
use crate::reply::Reply;
use crate::spec::Spec;
use crate::values::{Count, Milliseconds, Name, Text, ms, wanted};
use crate::words::arguments;

arguments! {
    /// What is asked.
    struct Asked {
        owner: Name,
        ttl: Ttl,
        [SHARED] shared,
        [LIMIT k as limit] limit: Count,
        [PERMIT n as number] permit: Count,
        [KEEPALIVE ms] keepalive: Milliseconds,
        [WAIT ms] wait: Patience,
        [RETRY] retry,
        [NOTE text] note: Text,
    }
}

/// What is answered to one who names a token.
const FENCE: &str = "ERR FENCE is for a node: over several nodes the quorum makes the tokens, so leave it out";

/// The word that binds a lease to its connection.
pub const KEEPALIVE: &str = "KEEPALIVE";

/// Takes the lock.
pub const ACQUIRE: Command = Command {
    spec: Spec {
        name: "LOCK.ACQUIRE",
        summary: "Takes a lock for an owner, alone, shared or as one of so many permits, waiting in turn and keeping its lease alive if asked to, \
                  and answers its fencing token, with WAIT also the milliseconds waited, with LIMIT also the permit's number; Null if somebody \
                  else holds it.",
        has_key: true,
        writes: true,
        is_open: false,
        arguments: Asked::ARGUMENTS,
    },
    run: Run::OfLocks(run),
};

/// How a grant is answered.
#[derive(Clone, Copy)]
enum Form {
    Token,
    TokenAndWait,
    Permit,
}

fn run(call: Call) -> Result<Work, Refused> {
    let named = call.words.clone();
    let asked = Asked::read(call.words).map_err(|refusal| match refusal {
        Refusal::UnknownOption { .. } if named.have("FENCE") => Refused::text(FENCE),
        refusal => refusal.into(),
    })?;
    let Asked { owner, ttl, shared, limit, permit, keepalive, wait, retry, note } = asked;
    let form = match (&limit, wait) {
        (Some(_), _) => Form::Permit,
        (None, Some(_)) => Form::TokenAndWait,
        (None, None) => Form::Token,
    };
    let patience = wait.unwrap_or(Patience::NONE);
    let take = Take {
        key: call.key.to_vec(),
        owner: owner.0.to_vec(),
        ttl: ms(ttl.ms()),
        wanted: wanted(shared, limit, permit)?,
        wait: ms(patience.ms()),
        retry,
        note: note.unwrap_or_default().0.to_vec(),
        keepalive: keepalive.map(|Milliseconds(ms)| kept(call.connection, ms, ttl)).transpose()?,
    };
    let state = call.state;
    let later = async move {
        let granted = state.locks.take(take).await?;
        Ok(granted.map_or(Reply::Null, |granted| answer(granted, form)))
    };
    Ok(if patience == Patience::NONE { Work::asks(later) } else { Work::waits(later) })
}

/// The lease is kept as long as this connection is open.
fn kept(connection: u64, ms: Option<u64>, ttl: Ttl) -> Result<(Duration, Keeper), Refusal> {
    KeepAlive::new(ClientId(connection), ms, ttl)?;
    Ok((Duration::from_millis(ms.unwrap_or_default()), Keeper(connection)))
}

fn answer(Granted { token, waited, number }: Granted, form: Form) -> Reply {
    let waited = Reply::Integer(waited.as_millis() as u64);
    match form {
        Form::Token => Reply::Integer(token),
        Form::TokenAndWait => Reply::List(vec![Reply::Integer(token), waited]),
        Form::Permit => Reply::List(vec![Reply::Integer(token), waited, Reply::Integer(number.into())]),
    }
}
