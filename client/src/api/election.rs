//! Elections: one leader of many, and who leads.

use std::ops::Deref;
use std::sync::Arc;

use palisade_quorum::{VALUE_BYTES_MAX, Wanted};
use tokio::time::Instant;

use crate::run::observing;
use crate::{Changes, Client, Error, ErrorKind, Guard, Leader, Released};

/// An election; of [`Client::election`].
///
/// The leader is whoever holds the lock of this name on a majority of the nodes, and has proclaimed that: its *term* is larger than
/// that of every earlier leader. What a leader does to something that others can write to goes there with the term, and a smaller one than was seen is
/// refused: a leader that was paused does not know yet that there is another one.
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    name: Vec<u8>,
}

impl Client {
    /// An election: those who campaign under this name, one of whom leads at a time, and those who observe who does. Nothing is asked of
    /// the nodes yet. Unless [`Options::max_hold`](crate::Options::max_hold) is set, a leader leads until it resigns or is lost.
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

/// Leads until it [resigns](Leadership::resign), is dropped, or is [lost](Guard::lost); with all that a [`Guard`] tells.
#[derive(Debug)]
#[must_use = "a leader resigns when its leadership is dropped"]
pub struct Leadership {
    pub(super) guard: Guard,
    pub(super) term: u64,
}

impl Election {
    /// Waits in turn until this candidate leads, for as long as [`Options::wait`](crate::Options::wait) says, and proclaims `value`, at most 1 002 bytes. Returns
    /// when a majority of the nodes has that, so every observer that asks from then on sees this leader or a later one.
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
    /// As [`Client::lock`]; `BadArgument` if the value is too long; `NoQuorum` if the nodes do not let this client proclaim anything.
    pub async fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Leadership, Error> {
        let value = checked(value.as_ref())?;
        let by = self.client.options().wait.map(|wait| Instant::now() + wait);
        loop {
            let mut options = self.client.options().clone();
            options.wait = by.map(|by| by.saturating_duration_since(Instant::now()));
            let guard = self.client.with(&options).take(&self.name, Wanted::Exclusive, true, None).await?;
            match guard.proclaim(value.clone()).await {
                Ok(term) => return Ok(Leadership { guard, term }),
                // It had won, and nobody has heard of it.
                Err(error) if error.kind() == ErrorKind::Lost => {}
                Err(error) => {
                    guard.release().await;
                    return Err(error);
                }
            }
        }
    }

    /// Who leads, as a majority of the nodes says now; `None`: nobody has proclaimed to. One round trip, and a second one where the nodes do
    /// not agree.
    ///
    /// A leader that was seen may have gone by the time this returns. Nobody is sent anything that must not be done twice without its term.
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
    /// `NoQuorum`: too few nodes can be asked, or are not guarded.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let (nodes, name) = (self.client.nodes(), Arc::<[u8]>::from(&*self.name));
        let given = self.client.options().checked()?.given;
        let leader = move |nodes| {
            let name = Arc::clone(&name);
            async move { observing::leader(&nodes, &name, given).await }
        };
        self.client.thread()?.run(async move { nodes.on_present(given, leader).await }).await?
    }

    /// Tells each change of who leads, from now on: the present state first. Each node is watched on a connection of its own, and nobody polls.
    ///
    /// `Some`: this leader was proclaimed, or proclaims something new. Terms grow, and within one the sequence. `None`: nobody leads; a
    /// majority of the nodes says so. As long as too few nodes answer, nothing is told: what was told last is the best that is known.
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
    /// The term: larger than that of every earlier leader, and the same as long as this one leads. It is a fencing token, as
    /// [`Guard::token`] is, which can rise meanwhile: give a resource always the one or always the other.
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

    /// Proclaims another value; returns when a majority of the nodes has it.
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
    /// `Lost`: it does not lead any more. `BadArgument` if the value is too long; `NoQuorum` if the nodes refuse it.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.guard.proclaim(checked(value.as_ref())?).await.map(drop)
    }

    /// Stops leading: the next candidate leads at once. As [`Guard::release`].
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
