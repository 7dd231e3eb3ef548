//! Extensions and changes that a guard sends to all nodes, in several rounds if need be.

use std::sync::Arc;
use std::time::Duration;

use palisade_quorum::{BootTime, majority, margin_us};
use redis::Value;
use tokio::time::sleep;

use super::Guard;
use crate::net::nodes::Nodes;
use crate::values::clock;
use crate::{Error, ErrorKind, Why};

/// Maximum number of rounds to extend a lease. One may not be enough: a request can join a round that began before it,
/// and then gets less.
const EXTENDED_TIMES: u32 = 7;

/// First pause before another round, if nodes have to be asked again; doubled each time.
const AGAIN: Duration = Duration::from_millis(5);

impl Guard {
    /// Extends the lock until it is valid for `ttl_ms`, less the margin, from `came` on: the moment at which the request
    /// arrived.
    ///
    /// # Errors
    /// `NoQuorum`, `Lost`; `Expired`: the nodes extended it too late.
    pub(crate) async fn extend_until(&self, ttl_ms: u32, came: BootTime) -> Result<(), Error> {
        let until = came.plus_us((u64::from(ttl_ms) * 1_000).saturating_sub(margin_us(ttl_ms)));
        let mut failed = None;
        for n in 0..EXTENDED_TIMES {
            match self.extend_to(ttl_ms).await {
                Ok(()) if self.valid_until() >= until => return Ok(()),
                Ok(()) => failed = None,
                // Nodes whose token is being raised, perhaps by another process, take part only in the next round.
                Err(error) if error.kind() == ErrorKind::NoQuorum && !self.too_many_away(&error) => {
                    sleep(AGAIN * 2_u32.pow(n)).await;
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if clock::boot_now() >= until {
            return Err(Error::new(
                ErrorKind::Expired,
                "the nodes extended it so late that nothing of the lease is left",
            ));
        }
        Err(changes_meet())
    }

    /// Returns whether fewer than a majority of the nodes answered.
    fn too_many_away(&self, error: &Error) -> bool {
        let nodes = self.nodes.latest().len();
        error.nodes().iter().filter(|node| node.why != Why::NotHeld).count() > nodes - majority(nodes)
    }

    /// Sends `command` to all nodes, and returns the numbers that they answered, once a majority has. `what` completes
    /// the error text "too few nodes ...".
    ///
    /// # Errors
    /// `NoQuorum`; `Lost` if no majority can hold the lock any longer.
    pub(crate) async fn send_to_majority(&self, command: redis::Cmd, what: &str) -> Result<Vec<u64>, Error> {
        match self.send_once(command.clone(), what).await {
            // A node that was added to the set a moment ago knows the lock only once the lease has been extended.
            Err(error) if error.kind() == ErrorKind::Lost => {
                let (left_ms, now) = self.left_ms();
                if left_ms == 0 {
                    return Err(error);
                }
                self.extend_until(left_ms, now).await?;
                self.send_once(command, what).await
            }
            sent => sent,
        }
    }

    /// Returns the length of a lease from now on that is valid for as long as the present one, 0 if that is over; and now.
    fn left_ms(&self) -> (u32, BootTime) {
        let now = clock::boot_now();
        let left_ms = u32::try_from(self.valid_until().ms_since_rounded_up(now)).unwrap_or(u32::MAX);
        let margin_ms = u32::try_from(margin_us(left_ms).div_ceil(1_000)).unwrap_or(0);
        (if left_ms == 0 { 0 } else { left_ms.saturating_add(margin_ms) }, now)
    }

    async fn send_once(&self, command: redis::Cmd, what: &str) -> Result<Vec<u64>, Error> {
        let (nodes, replies) = self.send_to_all(command, |reply| matches!(reply, Ok(Value::Int(_)))).await?;
        let (mut numbers, mut whys) = (vec![], vec![None; nodes.len()]);
        for (why, reply) in whys.iter_mut().zip(replies) {
            match reply {
                Some(Ok(Value::Int(number))) => numbers.extend(u64::try_from(number)),
                Some(Ok(_)) => *why = Some(Why::NotHeld),
                Some(Err(failure)) => *why = Some(failure),
                None => {}
            }
        }
        let needed = majority(nodes.len());
        if numbers.len() >= needed {
            return Ok(numbers);
        }
        if whys.iter().flatten().filter(|why| **why == Why::NotHeld).count() > nodes.len() - needed {
            return Err(Error::lost());
        }
        let lasting = whys.iter().flatten().filter(|why| why.is_lasting()).count();
        let error = Error::new(ErrorKind::NoQuorum, format!("too few nodes {what}"));
        Err(error.with_nodes(nodes.errors(&whys)).lasting(lasting > nodes.len() - needed))
    }

    /// Sends `command` to every node, more than once if need be. Returns the nodes with their answers so far, as soon
    /// as `counts` is true for the answers of a majority, or all nodes have answered.
    pub(super) async fn send_to_all(
        &self,
        command: redis::Cmd,
        counts: fn(&Result<Value, Why>) -> bool,
    ) -> Result<(Arc<Nodes>, Vec<Option<Result<Value, Why>>>), Error> {
        let (nodes, given) = (self.nodes.latest(), self.checked.given);
        let told = self.thread.run(async move {
            let mut replies: Vec<_> = nodes.list.iter().map(|_| None).collect();
            let mut answers = nodes.send_to_all(command, given);
            let mut yes = 0;
            while yes < majority(nodes.len())
                && let Some((node, reply)) = answers.recv().await
            {
                yes += usize::from(counts(&reply));
                replies[node] = Some(reply);
            }
            (nodes, replies)
        });
        told.await
    }
}

/// Returns the error of a change that repeatedly collided with other changes of the lock.
pub(crate) fn changes_meet() -> Error {
    Error::new(ErrorKind::NoQuorum, "other changes of it were under way on the nodes: try again")
}
