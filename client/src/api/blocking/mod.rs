//! The same for code without async.
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

mod changes;
mod election;
mod rw_lock;
mod semaphore;
mod session;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::Handle;

pub use self::changes::Changes;
pub use self::election::{Election, Leadership};
pub use self::rw_lock::{ReadGuard, RwLock, WriteGuard};
pub use self::semaphore::{Permit, Semaphore};
pub use self::session::{Session, SessionLock};
use crate::api::client::RAN_ON;
use crate::{Builder, Error, Holder, Loss, Options, Released};

/// Locks on a node, or on a quorum of several independent ones. See [`crate::Client`], whose names these are.
///
/// Not to be used inside an async runtime: there it would block it.
#[derive(Clone, Debug)]
pub struct Client(crate::Client);

/// A lock that is held. See [`crate::Guard`].
#[derive(Debug)]
#[must_use = "the lock is given back when its guard is dropped"]
pub struct Guard {
    /// `None` only while it is dropped.
    inner: Option<crate::Guard>,
}

impl Builder {
    /// The client, for code without async.
    ///
    /// ```
    /// # fn main() -> Result<(), palisade_client::Error> {
    /// let locks = palisade_client::Client::builder().node("redis://10.0.0.1").build_blocking()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_blocking(self) -> Result<Client, Error> {
        self.build().map(Client)
    }
}

impl Client {
    /// A client of these nodes.
    ///
    /// ```
    /// # fn main() -> Result<(), palisade_client::Error> {
    /// let locks = palisade_client::blocking::Client::new(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        crate::Client::builder().nodes(addresses).build_blocking()
    }

    /// See [`crate::Client::connect`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// locks.connect()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn connect(&self) -> Result<(), Error> {
        block_on(self.0.connect())
    }

    /// See [`crate::Client::set_nodes`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// locks.set_nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.4"])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn set_nodes<A: Into<String>>(&self, addresses: impl IntoIterator<Item = A>) -> Result<(), Error> {
        block_on(self.0.set_nodes(addresses))
    }

    /// See [`crate::Client::try_lock`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// match locks.try_lock("report") {
    ///     Ok(guard) => println!("it is ours, with token {}", guard.token()),
    ///     Err(error) => println!("not now: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        block_on(self.0.try_lock(key)).map(Guard::from)
    }

    /// See [`crate::Client::try_lock_with`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use palisade_client::{Error, Options, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let short = Options::new().ttl(Duration::from_secs(2)).auto_extend(false);
    /// let guard = locks.try_lock_with("report", &short)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn try_lock_with(&self, key: impl AsRef<[u8]>, options: &Options) -> Result<Guard, Error> {
        block_on(self.0.try_lock_with(key, options)).map(Guard::from)
    }

    /// See [`crate::Client::lock`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// guard.release();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        block_on(self.0.lock(key)).map(Guard::from)
    }

    /// See [`crate::Client::lock_with`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use palisade_client::{Error, Options, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let patient = Options::new().wait(Duration::from_secs(60));
    /// let guard = locks.lock_with("orders:42", &patient)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn lock_with(&self, key: impl AsRef<[u8]>, options: &Options) -> Result<Guard, Error> {
        block_on(self.0.lock_with(key, options)).map(Guard::from)
    }

    /// Runs `body` under the lock, and gives it back. Code without async cannot be cancelled: `body` has to look at
    /// [`Guard::is_valid`] itself.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use palisade_client::{Error, Options, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let token = locks.with_lock("orders:42", &Options::new(), |guard| guard.token())?;
    /// # Ok(())
    /// # }
    /// ```
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
            return Err(guard.inner().lost_meanwhile(RAN_ON));
        }
        guard.release();
        Ok(value)
    }

    /// See [`crate::Client::rw_lock`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let reading = locks.rw_lock("prices").read()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rw_lock(&self, key: impl AsRef<[u8]>) -> RwLock {
        RwLock(self.0.rw_lock(key))
    }

    /// See [`crate::Client::rw_lock_with`].
    ///
    /// ```no_run
    /// # use palisade_client::{Options, blocking::Client};
    /// # fn run(locks: Client) {
    /// let prices = locks.rw_lock_with("prices", &Options::new().note("import"));
    /// # }
    /// ```
    pub fn rw_lock_with(&self, key: impl AsRef<[u8]>, options: &Options) -> RwLock {
        RwLock(self.0.rw_lock_with(key, options))
    }

    /// See [`crate::Client::semaphore`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let permit = locks.semaphore("uploads", 8).acquire()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, key: impl AsRef<[u8]>, limit: u16) -> Semaphore {
        Semaphore(self.0.semaphore(key, limit))
    }

    /// See [`crate::Client::semaphore_with`].
    ///
    /// ```no_run
    /// # use palisade_client::{Options, blocking::Client};
    /// # fn run(locks: Client) {
    /// let uploads = locks.semaphore_with("uploads", 8, &Options::new().note("nightly"));
    /// # }
    /// ```
    pub fn semaphore_with(&self, key: impl AsRef<[u8]>, limit: u16, options: &Options) -> Semaphore {
        Semaphore(self.0.semaphore_with(key, limit, options))
    }

    /// Waits until what was given back has been, and closes the connections. See [`crate::Client::close`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// locks.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn close(&self) -> Result<(), Error> {
        block_on(self.0.close())
    }
}

impl Client {
    /// See [`crate::Client::election`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let leadership = locks.election("scheduler").campaign("10.0.0.1:80")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election(self.0.election(name))
    }

    /// See [`crate::Client::election_with`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use palisade_client::{Options, blocking::Client};
    /// # fn run(locks: Client) {
    /// let election = locks.election_with("scheduler", &Options::new().ttl(Duration::from_secs(2)));
    /// # }
    /// ```
    pub fn election_with(&self, name: impl AsRef<[u8]>, options: &Options) -> Election {
        Election(self.0.election_with(name, options))
    }
}

impl Client {
    /// See [`crate::Client::watch`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// for holder in locks.watch("orders:42")? {
    ///     println!("{holder:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn watch(&self, key: impl AsRef<[u8]>) -> Result<Changes<Option<Holder>>, Error> {
        self.0.watch(key).map(Changes)
    }
}

impl From<crate::Guard> for Guard {
    fn from(inner: crate::Guard) -> Self {
        Self { inner: Some(inner) }
    }
}

impl Guard {
    fn inner(&self) -> &crate::Guard {
        self.inner.as_ref().expect("there until it is dropped")
    }

    /// See [`crate::Guard::token`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// println!("token {}", guard.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(&self) -> u64 {
        self.inner().token()
    }

    /// See [`crate::Guard::key`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// assert_eq!(guard.key(), b"orders:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        self.inner().key()
    }

    /// See [`crate::Guard::owner`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// assert_eq!(guard.owner().len(), 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        self.inner().owner()
    }

    /// See [`crate::Guard::is_valid`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// if guard.is_valid() {
    ///     println!("charged with token {}", guard.token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.inner().is_valid()
    }

    /// See [`crate::Guard::valid_for`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// println!("valid for {:?}", guard.valid_for());
    /// # Ok(())
    /// # }
    /// ```
    pub fn valid_for(&self) -> Duration {
        self.inner().valid_for()
    }

    /// See [`crate::Guard::is_lost`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// while !guard.is_lost() {
    ///     println!("one more step");
    ///     # break;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_lost(&self) -> bool {
        self.inner().is_lost()
    }

    /// Blocks until the lock is lost; why it is. See [`crate::Guard::lost`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| {
    ///         println!("the lock is lost: {}", guard.lost());
    ///     });
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> Loss {
        block_on(self.inner().lost())
    }

    /// See [`crate::Guard::extend`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// guard.extend()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn extend(&self) -> Result<(), Error> {
        block_on(self.inner().extend())
    }

    /// See [`crate::Guard::reenter`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// let inner = guard.reenter()?;
    /// inner.release(); // still held
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn reenter(&self) -> Result<Guard, Error> {
        block_on(self.inner().reenter()).map(Guard::from)
    }

    /// See [`crate::Guard::release`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42")?;
    /// println!("{:?}", guard.release());
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(mut self) -> Released {
        let inner = self.inner.take().expect("there until it is dropped");
        block_on(inner.release())
    }
}

impl Drop for Guard {
    /// Gives the lock back, and waits until a majority has it, or has had its time to answer: the process may be about to end.
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        // Inside somebody's runtime nothing may be waited for: it is given back in the background.
        if Handle::try_current().is_err() {
            block_on(inner.release());
        }
    }
}

/// Wakes a thread that waits.
struct Waiting(Thread);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for `future`, whose work is done on the client's thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Waiting(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
