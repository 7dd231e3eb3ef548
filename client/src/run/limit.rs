//! The end of a wait: what is told when its caller's limit is reached, whatever the nodes do.

use std::sync::Arc;
use std::time::Duration;

use palisade_quorum::LAST_TRY_MS;
use tokio::time::{Instant, timeout_at};

use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::{Error, ErrorKind};

/// What is asked of the nodes after the limit takes this long together.
pub const LAST_TRY: Duration = Duration::from_millis(LAST_TRY_MS as u64);

/// An answer older than this says nothing about now.
const FRESH: Duration = Duration::from_millis(200);

/// Why a lock was not granted, and when that was told.
#[derive(Clone, Debug)]
pub struct Said {
    pub error: Error,
    at: Instant,
}

impl Said {
    /// Told now.
    pub fn now(error: Error) -> Self {
        Self { error, at: Instant::now() }
    }

    /// The error, if it is from now. A holder whose lease has ended since is not named.
    fn fresh(&self) -> Option<Error> {
        let age = self.at.elapsed();
        let holder = self.error.holder().filter(|holder| holder.lease_left > age).cloned();
        (age <= FRESH).then(|| self.error.clone().with_holder(holder))
    }
}

/// Returns what `future` comes to, by then if there is a limit; `None`: nothing in that time.
pub async fn within<T>(by: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match by {
        Some(by) => timeout_at(by, future).await.ok(),
        None => Some(future.await),
    }
}

/// Returns what is known of `key` after an attempt that began then and was `refused`. If its time was over before the nodes had answered, that is
/// what they said `before`, as long as it is from now, or they answer other requests and are only slow. In that case nobody knows who
/// holds the lock by now.
pub fn last_word(nodes: &Nodes, key: &[u8], before: Option<Said>, refused: Error, began: Instant) -> Error {
    match before {
        Some(before) if refused.is_cut_short() => match before.fresh() {
            Some(fresh) => fresh,
            None if nodes.answered_since(key, began) => before.error.with_holder(None),
            None => refused,
        },
        _ => refused,
    }
}

/// Returns the error of a wait that ended behind others of this process, of which one was told this when it was `seen` last.
pub async fn behind(nodes: &Arc<Nodes>, key: &[u8], seen: Option<Said>, given: Given) -> Error {
    let began = Instant::now();
    if let Some(fresh) = seen.as_ref().and_then(Said::fresh) {
        return timed_out(nodes, key, fresh, given, began + LAST_TRY).await;
    }
    let look = nodes.look(key, given, began + LAST_TRY).await;
    if !look.is_answered && !nodes.answered_since(key, began) {
        return over(&nodes.cannot_be_asked(look.whys.iter().flatten().count(), &look.whys));
    }
    match seen {
        Some(said) if look.holder.is_none() && said.error.kind() == ErrorKind::Guarded => over(&said.error),
        _ => {
            // Those before it may not be done with their first attempt: nothing else is known.
            let text = "the lock could not be had in the time allowed; in the end others of this process were asking for it before";
            Error::new(ErrorKind::TimedOut, text).waited_for(ErrorKind::Contended).with_holder(look.holder)
        }
    }
}

/// Returns the error of a wait that ended with this `last` word of the nodes, which can be asked until then who holds the lock.
pub async fn timed_out(nodes: &Arc<Nodes>, key: &[u8], last: Error, given: Given, by: Instant) -> Error {
    let error = over(&last);
    if last.kind() == ErrorKind::Contended && last.holder().is_none() && Instant::now() < by {
        return error.with_holder(nodes.look(key, given, by).await.holder);
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
