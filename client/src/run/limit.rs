//! The end of a wait: chooses the error at the caller's limit, whatever the nodes do.

use std::sync::Arc;
use std::time::Duration;

use palisade_quorum::LAST_TRY_MS;
use tokio::time::{Instant, timeout_at};

use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::{Error, ErrorKind};

/// Maximum time of all requests to the nodes after the caller's limit has passed.
pub const LAST_TRY: Duration = Duration::from_millis(LAST_TRY_MS as u64);

/// Maximum age of an answer that still describes the present.
const FRESH: Duration = Duration::from_millis(200);

/// The error of a refused attempt, and the moment of the refusal.
#[derive(Clone, Debug)]
pub struct LastFailure {
    pub error: Error,
    at: Instant,
}

impl LastFailure {
    /// Records `error` with the present time.
    pub fn now(error: Error) -> Self {
        Self { error, at: Instant::now() }
    }

    /// Returns the error if it is recent. It names the holder only if the holder's lease has not ended since.
    fn fresh(&self) -> Option<Error> {
        let age = self.at.elapsed();
        let holder = self.error.holder().filter(|holder| holder.lease_left > age).cloned();
        (age <= FRESH).then(|| self.error.clone().with_holder(holder))
    }
}

/// Returns the result of `future`, or `None` if the limit `by` passes first.
pub async fn within<T>(by: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match by {
        Some(by) => timeout_at(by, future).await.ok(),
        None => Some(future.await),
    }
}

/// Returns the error of an attempt on `key` that began at `began` and ended with `refused`. If its time was up before
/// the nodes had answered, returns their earlier answer `before` instead, if that is recent. An older one is returned
/// too, without the holder that it names, if the nodes answered other requests meanwhile: they are only slow.
pub fn last_word(nodes: &Nodes, key: &[u8], before: Option<LastFailure>, refused: Error, began: Instant) -> Error {
    match before {
        Some(before) if refused.is_cut_short() => match before.fresh() {
            Some(fresh) => fresh,
            None if nodes.answered_since(key, began) => before.error.with_holder(None),
            None => refused,
        },
        _ => refused,
    }
}

/// Returns the error for a caller whose time ended while other callers of this process were ahead of it. `seen` is the
/// last refusal that the first of these callers received.
pub async fn behind(nodes: &Arc<Nodes>, key: &[u8], seen: Option<LastFailure>, given: Given) -> Error {
    let began = Instant::now();
    if let Some(fresh) = seen.as_ref().and_then(LastFailure::fresh) {
        return timed_out(nodes, key, fresh, given, began + LAST_TRY).await;
    }
    let look = nodes.read_lock(key, given, began + LAST_TRY).await;
    if !look.is_answered && !nodes.answered_since(key, began) {
        return over(&nodes.cannot_be_asked(look.whys.iter().flatten().count(), &look.whys));
    }
    match seen {
        Some(said) if look.holder.is_none() && said.error.kind() == ErrorKind::Guarded => over(&said.error),
        _ => {
            // The requests ahead may not have finished their first attempt, so nothing else is known.
            let text = "the lock could not be had in the time allowed; in the end others of this process were asking for it before";
            Error::new(ErrorKind::TimedOut, text).waited_for(ErrorKind::Contended).with_holder(look.holder)
        }
    }
}

/// Returns the error of a wait whose time is over, after the refusal `last`. If another owner has the lock and `last`
/// does not name it, asks the nodes for the holder until `by`.
pub async fn timed_out(nodes: &Arc<Nodes>, key: &[u8], last: Error, given: Given, by: Instant) -> Error {
    let error = over(&last);
    if last.kind() == ErrorKind::Contended && last.holder().is_none() && Instant::now() < by {
        return error.with_holder(nodes.read_lock(key, given, by).await.holder);
    }
    error
}

fn over(last: &Error) -> Error {
    let text = match last.kind() {
        ErrorKind::Contended => {
            "the lock was not free in the time allowed: wait longer, or find out who keeps it".to_owned()
        }
        _ => format!("the lock could not be had in the time allowed; in the end {}", last.summary()),
    };
    let error = Error::new(ErrorKind::TimedOut, text).waited_for(last.kind());
    let error = error.with_holder(last.holder().cloned()).with_nodes(last.nodes().to_vec());
    match last.retry_after() {
        Some(after) => error.with_retry_after(after),
        None => error,
    }
}
