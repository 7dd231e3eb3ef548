//! Elections: one leader among many candidates, and observers of who leads.

use std::ops::Deref;
use std::sync::Arc;

use palisade_quorum::{VALUE_BYTES_MAX, Wanted};
use tokio::time::Instant;

use crate::run::observing;
use crate::{Changes, Client, Error, ErrorKind, Guard, Leader, Released};

/// An election, created by [`Client::election`].
///
/// The leader holds the lock of this name on a majority of the nodes, and has proclaimed that. Its *term* is larger
/// than that of every earlier leader. A leader sends its term with each write to a shared resource, which refuses a
/// term smaller than the largest it has seen. A paused leader does not know yet that another one leads.
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    name: Vec<u8>,
}

impl Client {
    /// Returns the election of this name: its candidates, one of whom leads at a time, and its observers. Sends nothing
    /// to the nodes yet. Unless [`Options::max_hold`](crate::Options::max_hold) is set, a leader leads until it resigns
    /// or loses the lock.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let leadership = locks.election("scheduler").campaign("10.0.0.1:80").await?;
    /// println!("leads in term {}", leadership.term());
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election { client: self.with(&self.options().clone().of_leader()), name: name.as_ref().to_vec() }
    }
}

/// A leadership, until it is [resigned](Leadership::resign), dropped or [lost](Guard::lost). Offers all methods of a
/// [`Guard`].
#[derive(Debug)]
#[must_use = "a leader resigns when its leadership is dropped"]
pub struct Leadership {
    pub(super) guard: Guard,
    pub(super) term: u64,
}

impl Election {
    /// Waits in turn until this candidate leads, within the limit of [`Options::wait`](crate::Options::wait), and
    /// proclaims `value`, at most 1 002 bytes. Returns once a majority of the nodes has the value, so every observer
    /// that asks afterwards sees this leader or a later one.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let leadership = locks.election("scheduler").campaign("10.0.0.1:80").await?;
    /// while leadership.is_valid() {
    ///     println!("one more step, in term {}", leadership.term());
    ///     # break;
    /// }
    /// leadership.resign().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::lock`]. `BadArgument` if the value is too long. `NoQuorum` if the nodes refuse this client's
    /// proclamations.
    pub async fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Leadership, Error> {
        let value = checked(value.as_ref())?;
        self.client.options().checked()?;
        let by = self.client.options().wait.map(|wait| Instant::now() + wait);
        loop {
            let mut options = self.client.options().clone();
            options.wait = by.map(|by| by.saturating_duration_since(Instant::now()));
            let guard = self.client.with(&options).take(&self.name, Wanted::Exclusive, true, None).await?;
            match guard.proclaim(value.clone()).await {
                Ok(term) => return Ok(Leadership { guard, term }),
                // The candidate had won, but observers may not have seen it.
                Err(error) if error.kind() == ErrorKind::Lost => {}
                Err(error) => {
                    guard.release().await;
                    return Err(error);
                }
            }
        }
    }

    /// Returns the leader that a majority of the nodes reports now, or `None` if nobody leads. Takes
    /// one round trip, and a second one if the nodes disagree.
    ///
    /// The leader may have gone by the time this returns. If you send it something that must not be done twice, send
    /// its term along.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// if let Some(leader) = locks.election("scheduler").leader().await? {
    ///     println!("{} leads in term {}", String::from_utf8_lossy(&leader.value), leader.term);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes answer, or too few are unguarded.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let (nodes, name) = (self.client.nodes(), Arc::<[u8]>::from(&*self.name));
        let given = self.client.options().checked()?.given;
        let leader = move |nodes| {
            let name = Arc::clone(&name);
            async move { observing::leader(&nodes, &name, given).await }
        };
        self.client.thread()?.run(async move { nodes.on_present(given, leader).await }).await?
    }

    /// Reports each change of the leader from now on, beginning with the present state. Each node is watched on a
    /// connection of its own; nothing is polled.
    ///
    /// `Some`: this leader has proclaimed itself or a new value. Terms grow, and within a term the sequence numbers.
    /// `None`: a majority of the nodes reports that nobody leads. While too few nodes answer, nothing is reported, and
    /// the last report is the best knowledge there is.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let mut leaders = locks.election("scheduler").observe()?;
    /// loop {
    ///     match leaders.changed().await? {
    ///         Some(leader) => println!("term {}: {}", leader.term, String::from_utf8_lossy(&leader.value)),
    ///         None => println!("nobody leads"),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Closed`, `BadArgument`.
    pub fn observe(&self) -> Result<Changes<Option<Leader>>, Error> {
        let (nodes, key, given) = (self.client.nodes(), Arc::from(&*self.name), self.client.options().checked()?.given);
        let tell = |tell| observing::observe(Arc::clone(&nodes), key, given, tell);
        Ok(Changes::begin(self.client.thread()?, &nodes, tell))
    }
}

impl Leadership {
    /// Returns the term: larger than that of every earlier leader, and constant while this one leads. It is a fencing
    /// token, as is [`Guard::token`], which can rise meanwhile: use only one of the two with a resource.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let leadership = locks.election("scheduler").campaign("10.0.0.1:80").await?;
    /// println!("UPDATE plan SET … WHERE term <= {}", leadership.term());
    /// # Ok(())
    /// # }
    /// ```
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Proclaims another value. Returns once a majority of the nodes has it.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let leadership = locks.election("scheduler").campaign("starting").await?;
    /// leadership.proclaim("10.0.0.1:80").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Lost`: the leadership is over. `BadArgument`: the value is too long. `NoQuorum`: the nodes refuse it.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.guard.proclaim(checked(value.as_ref())?).await.map(drop)
    }

    /// Stops leading; the next candidate leads at once. See [`Guard::release`].
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let leadership = locks.election("scheduler").campaign("10.0.0.1:80").await?;
    /// println!("{:?}", leadership.resign().await);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn resign(self) -> Released {
        self.guard.release().await
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

pub(super) fn checked(value: &[u8]) -> Result<Vec<u8>, Error> {
    if value.len() > VALUE_BYTES_MAX {
        let text = format!("what a leader proclaims must be at most {VALUE_BYTES_MAX} bytes long, not {}", value.len());
        return Err(Error::new(ErrorKind::BadArgument, text));
    }
    Ok(value.to_vec())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Options;

    /// A program writes "without a limit" as the longest time that there is. `Client::lock` refuses that.
    #[tokio::test]
    async fn a_wait_that_is_too_long_is_refused() {
        let client = Client::new(["redis://127.0.0.1:1"]).unwrap();
        let election = client.with(&Options::new().wait(Duration::MAX)).election("leader");
        assert_eq!(election.campaign("me").await.unwrap_err().kind(), ErrorKind::BadArgument);
    }
}
