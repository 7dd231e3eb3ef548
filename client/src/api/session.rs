//! Several locks that are kept together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use palisade_quorum::Wanted;
use tokio::time::Instant;

use crate::run::kept::{Kept, SessionEnd};
use crate::{Client, Error, ErrorKind, Guard, Released};

/// Locks that are kept together: they are extended in the same rounds, so that a node gets them in one write, the first that is lost
/// ends the session, and closing it gives all of them back.
///
/// For a process whose work needs all of its locks, or none. Dropping a session closes it in the background; at the end of a program
/// [close](Session::close) it, as guards are released there.
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
    kept: Arc<Kept>,
    /// By key.
    locks: Mutex<BTreeMap<Vec<u8>, Arc<Guard>>>,
    /// The keys that tasks of it ask for now.
    asked: Mutex<BTreeSet<Vec<u8>>>,
}

impl Client {
    /// Locks that are kept together, none yet: the first of them that is lost ends the session, closing it gives all of them back.
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

    /// Takes several locks, all of them or none, in an order in which nobody who takes several like this waits for somebody who waits for
    /// him ([`Session::lock_all`]), and keeps them as one session.
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
    /// As [`Client::lock`], of the first that could not be had, with its name; then none is held. `BadArgument` if there is no key.
    pub async fn lock_all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Session, Error> {
        let session = self.session();
        session.lock_all(keys).await?;
        Ok(session)
    }
}

impl Session {
    pub(crate) fn begin(client: &Client) -> Self {
        Self { client: client.clone(), kept: Arc::new(Kept::begin()), locks: Mutex::default(), asked: Mutex::default() }
    }

    /// Takes a lock more, waiting for it in turn. The session keeps it; what is returned tells of it.
    ///
    /// Whoever takes one lock after another may wait for somebody who waits for him: [`Session::lock_all`] takes several without that.
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
    /// As [`Client::lock`]; `Owned` if this session has it already, or another task of it asks for it; `Lost` or `Closed` if the
    /// session is over.
    pub async fn lock(&self, key: impl AsRef<[u8]>) -> Result<Arc<Guard>, Error> {
        self.take(key.as_ref(), Wanted::Exclusive, &self.client, true).await
    }

    /// Takes a lock more if it is free, now.
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
    /// As [`Client::try_lock`], and as [`Session::lock`].
    pub async fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<Arc<Guard>, Error> {
        self.take(key.as_ref(), Wanted::Exclusive, &self.client, false).await
    }

    /// Takes a lock more as one of its readers, waiting for it in turn ([`Client::rw_lock`]).
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
    /// As [`Session::lock`].
    pub async fn read(&self, key: impl AsRef<[u8]>) -> Result<Arc<Guard>, Error> {
        self.take(key.as_ref(), Wanted::Shared, &self.client, true).await
    }

    /// Takes these locks, all of them or none, waiting for each in turn; the limit of [`Options::wait`](crate::Options::wait) is for all of them together.
    ///
    /// They are taken one after the other in the order of their bytes, so nobody who takes several like this waits for somebody who waits
    /// for him. That holds among those who hold nothing else meanwhile: a session that has locks already may wait in a circle all the same.
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
    /// Of the first that could not be had, with its name; those taken before it are given back. `BadArgument` if there is no key; else as
    /// [`Session::lock`].
    pub async fn lock_all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<(), Error> {
        let keys: BTreeSet<Vec<u8>> = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        if keys.is_empty() {
            return Err(Error::new(ErrorKind::BadArgument, "name one key at least"));
        }
        let options = self.client.options();
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
        // Waiting for a lock that its own session is about to have, it would wait for ever.
        let _asked = Asked::begin(self, key).ok_or_else(|| owned("another task of this session asks for the lock"))?;
        if self.get(key).is_some() {
            return Err(owned("this session has the lock already"));
        }
        let guard = client.take(key, wanted, waits, Some(&self.kept)).await?;
        let guard = Arc::new(guard);
        let mut locks = self.locks();
        // It may be over since.
        self.is_open()?;
        locks.insert(key.to_vec(), Arc::clone(&guard));
        Ok(guard)
    }

    fn is_open(&self) -> Result<(), Error> {
        match self.kept.ended() {
            None => Ok(()),
            Some(end @ SessionEnd::Closed) => Err(Error::new(ErrorKind::Closed, end.to_string())),
            Some(end) => Err(Error::new(ErrorKind::Lost, end.to_string())),
        }
    }

    /// A lock of this session: its token, and whether it is valid.
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

    /// The keys that it has locks of, in the order of their bytes.
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

    /// For how long all of its locks may be relied on, from now; zero if it is over. A session without locks may be relied on for nothing.
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

    /// Gives one lock back; the session goes on. `None`: it has no such lock.
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

    /// Returns when the session is over, and why: a lock of it was lost, or it was closed. Then nothing can be taken in it any more, and
    /// what it still has is not extended any more; it is given back when the session is closed or dropped.
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

    /// Whether it is over.
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

    /// Gives all of its locks back, and tells what came of each.
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

    fn asked(&self) -> MutexGuard<'_, BTreeSet<Vec<u8>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locks(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Arc<Guard>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.kept.end(SessionEnd::Closed);
        // Somebody may have a part of it still.
        self.locks().values().for_each(|lock| lock.give_back_later());
    }
}

/// A key that a task asks for, as long as it does.
struct Asked<'a> {
    session: &'a Session,
    key: &'a [u8],
}

impl<'a> Asked<'a> {
    /// Begins, unless another task asks for it.
    fn begin(session: &'a Session, key: &'a [u8]) -> Option<Self> {
        session.asked().insert(key.to_vec()).then(|| Self { session, key })
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.session.asked().remove(self.key);
    }
}

/// Some locks of several that are taken together; dropped, they are given back.
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
