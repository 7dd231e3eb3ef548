//! The same for code without async: a [`Client`] with a runtime of its own.
//!
//! ```no_run
//! # fn main() -> Result<(), palisade_client::Error> {
//! let locks = palisade_client::blocking::Client::new(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])?;
//! let guard = locks.lock("orders:42")?;
//! println!("held with token {}", guard.token());
//! guard.release();
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};

use crate::{Builder, Error, ErrorKind, Options, Released};

/// Locks on a node, or on a quorum of several independent ones. See [`crate::Client`], whose names these are.
///
/// Not to be used inside an async runtime: there it would block it.
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
    runtime: Arc<Background>,
}

/// A lock that is held. See [`crate::Guard`].
#[derive(Debug)]
#[must_use = "the lock is given back when its guard is dropped"]
pub struct Guard {
    /// `None` only while it is dropped.
    inner: Option<crate::Guard>,
    runtime: Arc<Background>,
}

impl Builder {
    /// The client, for code without async.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_blocking(self) -> Result<Client, Error> {
        let inner = self.build()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("palisade").enable_all().build();
        let runtime =
            runtime.map_err(|why| Error::new(ErrorKind::Configuration, format!("no thread can be started: {why}")))?;
        Ok(Client { inner, runtime: Arc::new(Background(Some(runtime))) })
    }
}

impl Client {
    /// A client of these nodes.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        crate::Client::builder().nodes(addresses).build_blocking()
    }

    /// See [`crate::Client::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(&self) -> Result<(), Error> {
        self.runtime.block_on(self.inner.connect())
    }

    /// See [`crate::Client::try_lock`].
    ///
    /// # Errors
    /// As there.
    pub fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.guard(self.runtime.block_on(self.inner.try_lock(key)))
    }

    /// See [`crate::Client::try_lock_with`].
    ///
    /// # Errors
    /// As there.
    pub fn try_lock_with(&self, key: impl AsRef<[u8]>, options: &Options) -> Result<Guard, Error> {
        self.guard(self.runtime.block_on(self.inner.try_lock_with(key, options)))
    }

    /// See [`crate::Client::lock`].
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.guard(self.runtime.block_on(self.inner.lock(key)))
    }

    /// See [`crate::Client::lock_with`].
    ///
    /// # Errors
    /// As there.
    pub fn lock_with(&self, key: impl AsRef<[u8]>, options: &Options) -> Result<Guard, Error> {
        self.guard(self.runtime.block_on(self.inner.lock_with(key, options)))
    }

    /// Runs `body` under the lock, and gives it back. Code without async cannot be cancelled: `body` has to look at
    /// [`Guard::is_valid`] itself.
    ///
    /// # Errors
    /// As [`Client::lock_with`], and `Lost` if it was when `body` ended.
    pub fn with_lock<T>(
        &self,
        key: impl AsRef<[u8]>,
        options: &Options,
        body: impl FnOnce(&Guard) -> T,
    ) -> Result<T, Error> {
        let guard = self.lock_with(key, options)?;
        let value = body(&guard);
        if guard.is_lost() {
            return Err(Error::new(ErrorKind::Lost, "the lock was lost while what it protects was running"));
        }
        guard.release();
        Ok(value)
    }

    fn guard(&self, inner: Result<crate::Guard, Error>) -> Result<Guard, Error> {
        Ok(Guard { inner: Some(inner?), runtime: Arc::clone(&self.runtime) })
    }
}

impl Guard {
    fn inner(&self) -> &crate::Guard {
        self.inner.as_ref().expect("there until it is dropped")
    }

    /// See [`crate::Guard::token`].
    pub fn token(&self) -> u64 {
        self.inner().token()
    }

    /// See [`crate::Guard::key`].
    pub fn key(&self) -> &[u8] {
        self.inner().key()
    }

    /// See [`crate::Guard::owner`].
    pub fn owner(&self) -> &[u8] {
        self.inner().owner()
    }

    /// See [`crate::Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.inner().is_valid()
    }

    /// See [`crate::Guard::valid_for`].
    pub fn valid_for(&self) -> Duration {
        self.inner().valid_for()
    }

    /// See [`crate::Guard::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.inner().is_lost()
    }

    /// Blocks until the lock is lost. See [`crate::Guard::lost`].
    pub fn lost(&self) {
        self.runtime.block_on(self.inner().lost());
    }

    /// See [`crate::Guard::extend`].
    ///
    /// # Errors
    /// As there.
    pub fn extend(&self) -> Result<(), Error> {
        self.runtime.block_on(self.inner().extend())
    }

    /// See [`crate::Guard::reenter`].
    ///
    /// # Errors
    /// As there.
    pub fn reenter(&self) -> Result<Guard, Error> {
        let inner = self.runtime.block_on(self.inner().reenter())?;
        Ok(Guard { inner: Some(inner), runtime: Arc::clone(&self.runtime) })
    }

    /// See [`crate::Guard::release`].
    pub fn release(mut self) -> Released {
        let inner = self.inner.take().expect("there until it is dropped");
        self.runtime.block_on(inner.release())
    }
}

impl Drop for Guard {
    /// Gives the lock back, and waits for that as long as a node is given to answer: the process may be about to end.
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if Handle::try_current().is_ok() {
            // Inside somebody's runtime nothing may be waited for.
            let _runtime = self.runtime.0.as_ref().map(Runtime::enter);
            drop(inner);
        } else {
            self.runtime.block_on(inner.release());
        }
    }
}

/// The runtime that locks are kept on.
#[derive(Debug)]
struct Background(Option<Runtime>);

impl Background {
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.as_ref().expect("there until it is dropped").block_on(future)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may be dropped inside somebody's runtime, where nothing may be waited for.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
