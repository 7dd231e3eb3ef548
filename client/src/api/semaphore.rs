//! Semaphores: a limited number of permits, which are numbered.

use palisade_quorum::Wanted;

use crate::api::held::held;
use crate::{Client, Error, ErrorKind, Guard};

/// A limited number of permits, created by [`Client::semaphore`].
///
/// Each permit has a number, from 1 to the limit, that no other holder has at the same time. It can be a worker's id, a
/// shard or a port. Its token is larger than that of every earlier permit with its number, so a resource remembers one
/// largest token per number.
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Client,
    key: Vec<u8>,
    limit: u16,
}

impl Client {
    /// Returns a semaphore of `limit` permits, from 1 to 65 535. Sends nothing to the nodes yet.
    ///
    /// All clients of this key should use the same limit. If they do not, the smaller limit is honoured: no permit is
    /// granted above the limit of one that is held.
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
    /// A permit that is held until it is dropped or released. Offers all methods of a [`Guard`].
    Permit(Guard), release:
    /// Releases the permit, which is then free for others. See [`Guard::release`].
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
    /// Waits in turn until a permit is free, within the limit of [`Options::wait`](crate::Options::wait).
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
    /// Those of [`Client::lock`]; `BadArgument` if the limit is 0.
    pub async fn acquire(&self) -> Result<Permit, Error> {
        self.client.take(&self.key, self.wanted()?, true, None).await.map(Permit)
    }

    /// Acquires a permit if one is free now.
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
    /// Those of [`Client::try_lock`]; `Contended` if all permits are held, or somebody waits for one. `BadArgument` if
    /// the limit is 0.
    pub async fn try_acquire(&self) -> Result<Permit, Error> {
        self.client.take(&self.key, self.wanted()?, false, None).await.map(Permit)
    }

    /// Returns the mode that asks for any permit. The only permit of a semaphore of one is an exclusive lock.
    fn wanted(&self) -> Result<Wanted, Error> {
        let text = "the limit of a semaphore must be from 1 to 65535";
        palisade_quorum::request::permit(self.limit.into(), None).map_err(|_| Error::new(ErrorKind::BadArgument, text))
    }
}

impl Permit {
    /// Returns the number of the permit, from 1 to the limit. It does not change while the permit is held.
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
