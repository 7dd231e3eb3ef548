//! Sessions: several locks that are kept together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use palisade_quorum::Wanted;
use tokio::time::Instant;

use crate::run::kept::{SessionEnd, SessionLife};
use crate::{Client, Error, ErrorKind, Guard, Released};

/// Several locks that are kept together. They are extended in the same rounds, in one write to each node. The loss of
/// one ends the session, and closing the session releases all of them.
///
/// For a process whose work needs all of its locks, or none. Dropping a session closes it in the background; at the end
/// of a program [close](Session::close) it, as guards are released there.
///
/// ```no_run
/// use palisade_client::{Client, Error};
///
/// # async fn transfer(from: u64, to: u64) {}
/// # async fn run(locks: Client) -> Result<(), Error> {
/// // All of them, or none. Whatever order others name them in, nobody waits in a circle.
/// let session = locks.lock_all(["account:7", "account:3"]).await?;
/// let token = |key: &str| session.get(key).map_or(0, |lock| lock.token());
/// tokio::select! {
///     end = session.done() => println!("stopped: {end}"),
///     () = transfer(token("account:7"), token("account:3")) => {}
/// }
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "its locks are given back when a session is dropped"]
pub struct Session {
    client: Client,
    kept: Arc<SessionLife>,
    /// The locks, by key.
    locks: Mutex<BTreeMap<Vec<u8>, Arc<Guard>>>,
    /// The keys that tasks of this session are acquiring now.
    asked: Mutex<BTreeSet<Vec<u8>>>,
}

impl Client {
    /// Returns a session without locks. The loss of one of its locks ends it, and closing it releases all of
    /// them.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.session();
    /// session.lock("orders:42").await?;
    /// session.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn session(&self) -> Session {
        Session::begin(self)
    }

    /// Acquires several locks, all or none, and keeps them as one session. The order of acquisition
    /// ([`Session::lock_all`]) prevents deadlocks among callers that acquire several locks like this.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let both = locks.lock_all(["account:7", "account:3"]).await?;
    /// both.close().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::lock`], for the first lock that could not be acquired, with its name; then none is held.
    /// `BadArgument` if there is no key.
    pub async fn lock_all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Session, Error> {
        let session = self.session();
        session.lock_all(keys).await?;
        Ok(session)
    }
}

impl Session {
    pub(crate) fn begin(client: &Client) -> Self {
        Self {
            client: client.clone(),
            kept: Arc::new(SessionLife::begin()),
            locks: Mutex::default(),
            asked: Mutex::default(),
        }
    }

    /// Acquires another lock, waiting for it in turn. The session keeps it; the returned guard shows its state.
    ///
    /// Callers that acquire one lock after another can deadlock: [`Session::lock_all`] acquires several without that.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.session();
    /// let orders = session.lock("orders").await?;
    /// println!("held with token {}", orders.token());
    /// session.close().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::lock`]; `Owned` if this session has the lock already, or another task of it is acquiring it;
    /// `Lost` or `Closed` if the session is over.
    pub async fn lock(&self, key: impl AsRef<[u8]>) -> Result<Arc<Guard>, Error> {
        self.take(key.as_ref(), Wanted::Exclusive, &self.client, true).await
    }

    /// Acquires another lock if it is free now.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.session();
    /// if let Ok(report) = session.try_lock("report").await {
    ///     println!("held with token {}", report.token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::try_lock`] and [`Session::lock`].
    pub async fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<Arc<Guard>, Error> {
        self.take(key.as_ref(), Wanted::Exclusive, &self.client, false).await
    }

    /// Acquires another lock as a reader, waiting for it in turn ([`Client::rw_lock`]).
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.session();
    /// let prices = session.read("prices").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Session::lock`].
    pub async fn read(&self, key: impl AsRef<[u8]>) -> Result<Arc<Guard>, Error> {
        self.take(key.as_ref(), Wanted::Shared, &self.client, true).await
    }

    /// Acquires these locks, all or none, waiting for each in turn. The limit of
    /// [`Options::wait`](crate::Options::wait) covers all of them together.
    ///
    /// The locks are acquired one after the other, in the order of their bytes, so callers that acquire several like
    /// this never deadlock. This is true only if callers have no other locks: sessions that already have locks can
    /// still wait for each other in a circle.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.session();
    /// session.lock_all(["account:7", "account:3"]).await?;
    /// assert!(session.get("account:3").is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Session::lock`], for the first lock that could not be acquired, with its name; the locks acquired
    /// before it are released. `BadArgument` if there is no key.
    pub async fn lock_all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<(), Error> {
        let keys: BTreeSet<Vec<u8>> = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        if keys.is_empty() {
            return Err(Error::new(ErrorKind::BadArgument, "name one key at least"));
        }
        let options = self.client.options();
        options.checked()?;
        let deadline = options.wait.map(|wait| Instant::now() + wait);
        let mut taken = Taken { session: self, keys: vec![] };
        for key in keys {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let client = left.map_or_else(|| self.client.clone(), |left| self.client.with(&options.clone().wait(left)));
            match self.take(&key, Wanted::Exclusive, &client, true).await {
                Ok(_) => taken.keys.push(key),
                Err(error) => return Err(error),
            }
        }
        taken.keys.clear();
        Ok(())
    }

    async fn take(&self, key: &[u8], wanted: Wanted, client: &Client, waits: bool) -> Result<Arc<Guard>, Error> {
        self.is_open()?;
        let owned = |text| Error::new(ErrorKind::Owned, text);
        // Without this check, a task could wait forever for a lock that another task of its session is about to
        // acquire.
        let _asked =
            PendingKey::begin(self, key).ok_or_else(|| owned("another task of this session asks for the lock"))?;
        if self.get(key).is_some() {
            return Err(owned("this session has the lock already"));
        }
        let guard = tokio::select! {
            biased;
            end = self.kept.done() => return Err(over(&end)),
            guard = client.take(key, wanted, waits, Some(&self.kept)) => Arc::new(guard?),
        };
        let mut locks = self.locks();
        // The session may have ended meanwhile.
        self.is_open()?;
        locks.insert(key.to_vec(), Arc::clone(&guard));
        Ok(guard)
    }

    fn is_open(&self) -> Result<(), Error> {
        self.kept.ended().map_or(Ok(()), |end| Err(over(&end)))
    }

    /// Returns the guard of one lock of this session: its token, and whether it is valid.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.lock_all(["account:7", "account:3"]).await?;
    /// for key in session.keys() {
    ///     println!("{:?}: {:?}", key, session.get(&key).map(|lock| lock.token()));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Arc<Guard>> {
        self.locks().get(key.as_ref()).cloned()
    }

    /// Returns the keys of the session's locks, in the order of their bytes.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.lock_all(["b", "a"]).await?;
    /// assert_eq!(session.keys(), [b"a", b"b"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.locks().keys().cloned().collect()
    }

    /// Returns for how long all locks of the session may be relied on from now. Zero if the session is over or has no
    /// locks.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.lock_all(["account:7", "account:3"]).await?;
    /// if session.valid_for() > std::time::Duration::from_secs(1) {
    ///     println!("time enough for one more step");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn valid_for(&self) -> Duration {
        if self.kept.is_over() {
            return Duration::ZERO;
        }
        self.locks().values().map(|lock| lock.valid_for()).min().unwrap_or_default()
    }

    /// Releases one lock; the session continues. Returns `None` if the session has no such lock.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.lock_all(["account:7", "account:3"]).await?;
    /// println!("{:?}", session.release("account:3").await);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(&self, key: impl AsRef<[u8]>) -> Option<Released> {
        let lock = self.locks().remove(key.as_ref())?;
        Some(lock.give_back().await)
    }

    /// Waits until the session is over, and returns why: one of its locks was lost, or it was closed. No more locks can
    /// be acquired in it then. Its remaining locks are no longer extended, and are released when the session is closed
    /// or dropped.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.lock_all(["account:7", "account:3"]).await?;
    /// println!("{}", session.done().await);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn done(&self) -> SessionEnd {
        self.kept.done().await
    }

    /// Returns whether the session is over.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.lock_all(["account:7", "account:3"]).await?;
    /// assert!(!session.is_done());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_done(&self) -> bool {
        self.kept.is_over()
    }

    /// Ends the session, releases all of its locks, and returns the outcome of each.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// use palisade_client::Released;
    ///
    /// let session = locks.lock_all(["account:7", "account:3"]).await?;
    /// let released = session.close().await;
    /// assert!(released.values().all(|released| *released == Released::Released));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) -> BTreeMap<Vec<u8>, Released> {
        self.kept.end(SessionEnd::Closed);
        let locks = std::mem::take(&mut *self.locks());
        join_all(locks.into_iter().map(async |(key, lock)| (key, lock.give_back().await))).await.into_iter().collect()
    }

    fn asked_keys(&self) -> MutexGuard<'_, BTreeSet<Vec<u8>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locks(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Arc<Guard>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.kept.end(SessionEnd::Closed);
        // Other parts of the program may still have guards of the session's locks.
        self.locks().values().for_each(|lock| lock.give_back_later());
    }
}

/// Returns the error of a request for a lock in a session that is over.
fn over(end: &SessionEnd) -> Error {
    let kind = if *end == SessionEnd::Closed { ErrorKind::Closed } else { ErrorKind::Lost };
    Error::new(kind, end.to_string())
}

/// A key that a task of the session is acquiring. Until this value is dropped, no other task of the session can acquire
/// it.
struct PendingKey<'a> {
    session: &'a Session,
    key: &'a [u8],
}

impl<'a> PendingKey<'a> {
    /// Marks `key` as being acquired. Returns `None` if another task of the session is acquiring it.
    fn begin(session: &'a Session, key: &'a [u8]) -> Option<Self> {
        session.asked_keys().insert(key.to_vec()).then(|| Self { session, key })
    }
}

impl Drop for PendingKey<'_> {
    fn drop(&mut self) {
        self.session.asked_keys().remove(self.key);
    }
}

/// The locks acquired so far by a call that acquires several; dropping this value releases them.
struct Taken<'a> {
    session: &'a Session,
    keys: Vec<Vec<u8>>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut locks = self.session.locks();
        for lock in self.keys.iter().filter_map(|key| locks.remove(key)) {
            lock.give_back_later();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// A program writes "without a limit" as the longest time that there is. `Client::lock` refuses that.
    #[tokio::test]
    async fn a_wait_that_is_too_long_is_refused() {
        let client = Client::new(["redis://127.0.0.1:1"]).unwrap();
        let locks = client.with(&Options::new().wait(Duration::MAX));
        assert_eq!(locks.lock("a").await.unwrap_err().kind(), ErrorKind::BadArgument);
        assert_eq!(locks.lock_all(["a", "b"]).await.unwrap_err().kind(), ErrorKind::BadArgument);
    }
}
