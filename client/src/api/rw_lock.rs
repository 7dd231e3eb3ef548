//! A lock that many can read under together, or one write.

use palisade_quorum::Wanted;

use crate::api::held::held;
use crate::{Client, Error, Guard};

/// A lock that many can read under together, or one write; of [`Client::rw_lock`].
///
/// Whoever waits is served first in, first out, readers and writers alike: neither starve. Readers that stand side by side in the
/// queue get in together.
///
/// What a resource checks: it remembers the largest token of a writer, X, and the largest of anybody, A. It takes a write with a
/// token of at least A, and answers a read with a token of at least X. Readers need no order among themselves.
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    key: Vec<u8>,
}

impl Client {
    /// A lock that many can read under together, or one write. Nothing is asked of the nodes yet.
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
    /// A lock that is held together with other readers, until this is dropped or released; with all that a [`Guard`] tells.
    ReadGuard(Guard), release:
    /// As [`Guard::release`]: released is this reader's part; others may go on to read.
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
    /// A lock that is held alone, for writing, until this is dropped or released; with all that a [`Guard`] tells.
    WriteGuard(Guard), release:
    /// As [`Guard::release`].
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
    /// Waits until no writer has the lock, or is before this reader; for as long as [`Options::wait`](crate::Options::wait) says.
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
    /// As [`Client::lock`].
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        self.client.take(&self.key, Wanted::Shared, true, None).await.map(ReadGuard)
    }

    /// The same, but it does not wait.
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
    /// As [`Client::try_lock`]; `Contended` if a writer has the lock or waits for it.
    pub async fn try_read(&self) -> Result<ReadGuard, Error> {
        self.client.take(&self.key, Wanted::Shared, false, None).await.map(ReadGuard)
    }

    /// Waits until nobody has the lock, or is before this writer; for as long as [`Options::wait`](crate::Options::wait) says.
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
    /// As [`Client::lock`].
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.client.take(&self.key, Wanted::Exclusive, true, None).await.map(WriteGuard)
    }

    /// The same, but it does not wait.
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
    /// As [`Client::try_lock`]; `Contended` if anybody has the lock or waits for it.
    pub async fn try_write(&self) -> Result<WriteGuard, Error> {
        self.client.take(&self.key, Wanted::Exclusive, false, None).await.map(WriteGuard)
    }
}

impl WriteGuard {
    /// Goes on as a reader, without letting another writer in between. The token stays. From the call on the lock is a reader's;
    /// this returns when a majority of the nodes knows, so that other readers get in.
    ///
    /// Nodes that do not answer are told again as long as the lock is valid, and it is extended as before. If this is cancelled, the
    /// lock is given back.
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
    /// `Lost`: it is not held any more; also if no majority could be told before its validity ended. `BadArgument`: it has other
    /// guards ([`Guard::reenter`]), which rely on it as a writer; this guard is given back then.
    pub async fn downgrade(self) -> Result<ReadGuard, Error> {
        self.0.share().await?;
        Ok(ReadGuard(self.0))
    }
}
