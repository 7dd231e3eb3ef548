//! `LOCK.ACQUIRE key owner ttl [SHARED | LIMIT k [PERMIT n]] [KEEPALIVE ms] [WAIT ms] [RETRY] [NOTE text]`

use std::time::Duration;

use palisade_client::by_owner::{Granted, Keeper, Take};
use palisade_quorum::Refusal;
use palisade_quorum::request::{self, AskedAcquire, Behind, Form, Milliseconds, Patience};

use super::command::{Call, Command, OfNodes, Work};
use crate::refused::Refused;
use crate::reply::Reply;

const FENCE: OfNodes = OfNodes { option: "FENCE", why: "over several nodes the quorum makes the tokens" };

const BEHIND: OfNodes =
    OfNodes { option: "BEHIND", why: "the agent tells the nodes by itself who waits behind a request" };

/// The option that keeps the lease alive while the connection is open.
pub const KEEPALIVE: &str = "KEEPALIVE";

/// LOCK.ACQUIRE: acquires the lock on the quorum.
pub const ACQUIRE: Command = Command { of_nodes: &[FENCE, BEHIND], ..Command::of_locks(request::Acquire::SPEC, run) };

fn run(call: Call) -> Result<Work, Refused> {
    let AskedAcquire { request, form, keepalive } = request::Acquire::read(call.words(), call.bounds)?;
    FENCE.refuse(request.fence.is_some())?;
    BEHIND.refuse(request.behind != Behind::default())?;
    // The lease is kept alive as long as this connection is open.
    let keep = |Milliseconds(ms)| -> Result<_, Refusal> {
        Ok((Duration::from_millis(request.ttl.keep(ms)?.into()), Keeper(call.connection)))
    };
    let take = Take {
        key: call.key.to_vec(),
        owner: request.owner.bytes().to_vec(),
        ttl: Duration::from_millis(request.ttl.ms().into()),
        wanted: request.wanted,
        wait: Duration::from_millis(request.patience.ms().into()),
        retry: request.retry,
        note: request.note.bytes().to_vec(),
        keepalive: keepalive.map(keep).transpose()?,
    };
    let waits = request.patience != Patience::NONE;
    let state = call.state;
    let later = async move {
        let granted = state.locks.take(take).await?;
        Ok(granted.map_or(Reply::Null, |granted| answer(granted, form)))
    };
    Ok(if waits { Work::wait(later) } else { Work::read(later) })
}

fn answer(Granted { token, waited, number }: Granted, form: Form) -> Reply {
    let waited = Reply::Integer(waited.as_millis() as u64);
    match form {
        Form::Token => Reply::Integer(token),
        Form::TokenAndWait => Reply::List(vec![Reply::Integer(token), waited]),
        Form::Permit => Reply::List(vec![Reply::Integer(token), waited, Reply::Integer(number.into())]),
    }
}
