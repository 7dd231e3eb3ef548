//! Permits: so many can hold one at a time, each with a number of its own.

use palisade_quorum::Wanted;

use crate::api::held::held;
use crate::{Client, Error, ErrorKind, Guard};

/// Permits, of which there are so many; of [`Client::semaphore`].
///
/// Each permit has a number, from 1 to the limit, that nobody else has at the time: it can be a worker's id, a shard, a port. Its
/// token is larger than that of every earlier permit with its number, so a resource remembers one largest token a number.
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Client,
    key: Vec<u8>,
    limit: u16,
}

impl Client {
    /// `limit` permits, from 1 to 65 535, each of which one can hold. Nothing is asked of the nodes yet.
    ///
    /// All who use this key say the same limit. Where they do not, whoever says less is honoured: no permit is granted above
    /// the limit of one that is held.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let uploads = locks.semaphore("uploads", 8);
    /// let permit = uploads.acquire().await?;
    /// println!("worker {} of 8", permit.number());
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, key: impl AsRef<[u8]>, limit: u16) -> Semaphore {
        Semaphore { client: self.clone(), key: key.as_ref().to_vec(), limit }
    }
}

held! {
    /// A permit that is held until this is dropped or released; with all that a [`Guard`] tells.
    Permit(Guard), release:
    /// As [`Guard::release`]: the permit is free for others then.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let permit = locks.semaphore("uploads", 8).acquire().await?;
    /// println!("{:?}", permit.release().await);
    /// # Ok(())
    /// # }
    /// ```
    [async] [.await]
}

impl Semaphore {
    /// Waits in turn until a permit is free, for as long as [`Options::wait`](crate::Options::wait) says.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let permit = locks.semaphore("uploads", 8).acquire().await?;
    /// println!("worker {} of 8", permit.number());
    /// permit.release().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::lock`]; `BadArgument` if the limit is 0.
    pub async fn acquire(&self) -> Result<Permit, Error> {
        self.client.take(&self.key, self.wanted()?, true, None).await.map(Permit)
    }

    /// Takes a permit if one is free, now.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// match locks.semaphore("uploads", 8).try_acquire().await {
    ///     Ok(permit) => println!("worker {} of 8", permit.number()),
    ///     Err(error) => println!("not now: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::try_lock`]; `Contended` if all are held, or somebody waits for one. `BadArgument` if the limit is 0.
    pub async fn try_acquire(&self) -> Result<Permit, Error> {
        self.client.take(&self.key, self.wanted()?, false, None).await.map(Permit)
    }

    /// Any of them. The only one of one is the lock itself.
    fn wanted(&self) -> Result<Wanted, Error> {
        let text = "the limit of a semaphore must be from 1 to 65535";
        palisade_quorum::request::permit(self.limit.into(), None).map_err(|_| Error::new(ErrorKind::BadArgument, text))
    }
}

impl Permit {
    /// Its number, from 1 to the limit. It stays the same as long as the permit is held.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let permit = locks.semaphore("uploads", 8).acquire().await?;
    /// println!("listens on port {}", 9_000 + permit.number());
    /// # Ok(())
    /// # }
    /// ```
    pub fn number(&self) -> u16 {
        self.0.number()
    }
}
