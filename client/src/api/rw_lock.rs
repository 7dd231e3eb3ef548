//! A readers-writer lock.

use palisade_quorum::Wanted;

use crate::api::held::held;
use crate::{Client, Error, Guard};

/// A lock that many readers hold together, or one writer alone, created by [`Client::rw_lock`].
///
/// The servers serve waiting readers and writers first in, first out, so neither starves. Adjacent readers in the queue
/// get the lock together.
///
/// A resource remembers the largest token of a writer, X, and the largest token of all, A. It accepts a write if its
/// token is at least A, and a read if its token is at least X. The tokens of readers need no order among each other.
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    key: Vec<u8>,
}

impl Client {
    /// Returns the lock of `key`, which many readers hold together, or one writer alone. Sends nothing to the nodes
    /// yet.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let prices = locks.rw_lock("prices");
    /// let reading = prices.read().await?;
    /// println!("read with token {}", reading.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn rw_lock(&self, key: impl AsRef<[u8]>) -> RwLock {
        RwLock { client: self.clone(), key: key.as_ref().to_vec() }
    }
}

held! {
    /// A lock that is held together with other readers, until it is dropped or released. Offers all methods of a
    /// [`Guard`].
    ReadGuard(Guard), release:
    /// Releases this reader's share of the lock; others may continue to read. See [`Guard::release`].
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.rw_lock("prices").read().await?;
    /// println!("{:?}", guard.release().await);
    /// # Ok(())
    /// # }
    /// ```
    [async] [.await]
}

held! {
    /// A lock that is held alone, for writing, until it is dropped or released. Offers all methods of a [`Guard`].
    WriteGuard(Guard), release:
    /// Releases the lock. See [`Guard::release`].
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.rw_lock("prices").write().await?;
    /// println!("{:?}", guard.release().await);
    /// # Ok(())
    /// # }
    /// ```
    [async] [.await]
}

impl RwLock {
    /// Waits until no writer holds the lock or is ahead in the queue, within the limit of
    /// [`Options::wait`](crate::Options::wait).
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.rw_lock("prices").read().await?;
    /// println!("valid for {:?}", guard.valid_for());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::lock`].
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        self.client.take(&self.key, Wanted::Shared, true, None).await.map(ReadGuard)
    }

    /// Acquires the lock as a reader if that is possible now.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// match locks.rw_lock("prices").try_read().await {
    ///     Ok(guard) => println!("read with token {}", guard.token()),
    ///     Err(error) => println!("not now: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::try_lock`]; `Contended` if a writer holds the lock or waits for it.
    pub async fn try_read(&self) -> Result<ReadGuard, Error> {
        self.client.take(&self.key, Wanted::Shared, false, None).await.map(ReadGuard)
    }

    /// Acquires the lock as a writer. Waits until nobody holds it or is ahead in the queue, within the limit of
    /// [`Options::wait`](crate::Options::wait).
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.rw_lock("prices").write().await?;
    /// println!("write with token {}", guard.token());
    /// guard.release().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::lock`].
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.client.take(&self.key, Wanted::Exclusive, true, None).await.map(WriteGuard)
    }

    /// Acquires the lock as a writer if that is possible now.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.rw_lock("prices").try_write().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::try_lock`]; `Contended` if anybody holds the lock or waits for it.
    pub async fn try_write(&self) -> Result<WriteGuard, Error> {
        self.client.take(&self.key, Wanted::Exclusive, false, None).await.map(WriteGuard)
    }
}

impl WriteGuard {
    /// Makes this writer a reader, without letting another writer in between. The change raises no token. From the call
    /// on, rely on the lock as a reader only. The call returns once a majority of the nodes has made the change, so
    /// that other readers get in.
    ///
    /// Nodes that do not answer are asked again while the lock is valid, and it is extended as before. If this call is
    /// cancelled, the lock is released.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let writing = locks.rw_lock("prices").write().await?;
    /// println!("written with token {}", writing.token());
    /// let reading = writing.downgrade().await?;
    /// println!("read back with token {}", reading.token());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Lost`: the lock is no longer held, or no majority answered before its validity ended. `NoQuorum`: too many nodes
    /// refuse for good (the user may not send LOCK.CONVERT). `BadArgument`: the lock has other guards
    /// ([`Guard::reenter`]), which rely on it as a writer. This guard is then released.
    pub async fn downgrade(self) -> Result<ReadGuard, Error> {
        self.0.share().await?;
        Ok(ReadGuard(self.0))
    }
}
