//! The same for code without async: types and methods have the names of their async twins, whose pages have the examples.
//!
//! ```no_run
//! # fn main() -> Result<(), palisade_client::Error> {
//! use palisade_client::blocking::Client;
//!
//! let locks = Client::new(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])?;
//! let guard = locks.lock("orders:42")?;
//! println!("held with token {}", guard.token());
//! guard.release();
//!
//! let reading = locks.rw_lock("prices").write()?.downgrade()?;
//! let permit = locks.semaphore("uploads", 8).acquire()?;
//! println!("worker {}, reads with token {}", permit.number(), reading.token());
//!
//! let both = locks.lock_all(["account:7", "account:3"])?;
//! println!("{:?}: {:?}", both.keys(), both.close());
//!
//! let leadership = locks.election("scheduler").campaign("10.0.0.1:80")?;
//! leadership.proclaim("10.0.0.2:80")?;
//! for leader in locks.election("scheduler").observe()? {
//!     println!("{leader:?}");
//! }
//! locks.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! None of it is for use inside an async runtime, which it would block.

mod block_on;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use self::block_on::block_on;
use crate::api::client::RAN_ON;
use crate::api::election;
use crate::{Builder, Error, Holder, Leader, Loss, Options, Released, SessionEnd};

/// Declares methods of a type that call those of `inner()`, of the twin's type. `blocks` waits for an async one, `now` calls another one. After `->`
/// the value is converted by `into`; after `=>` what is in a `Result` or an `Option` is.
macro_rules! methods {
    ($name:ident, $twin:ident, $($how:ident $method:ident($($argument:ident: $type:ty),*) $arrow:tt $returned:ty;)*) => {
        impl $name {
            $(
                #[doc = methods!(doc $how, concat!("[`crate::", stringify!($twin), "::", stringify!($method), "`]"))]
                pub fn $method(&self, $($argument: $type),*) -> $returned {
                    methods!(convert $arrow, methods!(call $how, self.inner().$method($($argument),*)))
                }
            )*
        }
    };
    (doc blocks, $link:expr) => { concat!("Blocks until it is done: see ", $link, ".") };
    (doc now, $link:expr) => { concat!("See ", $link, ".") };
    (call blocks, $call:expr) => { block_on($call) };
    (call now, $call:expr) => { $call };
    (convert ->, $value:expr) => { $value.into() };
    (convert =>, $value:expr) => { $value.map(Into::into) };
}

/// Declares the twin of a type, with these methods.
macro_rules! face {
    ($(#[$meta:meta])* $name:ident($twin:path), $($methods:tt)*) => {
        $(#[$meta])*
        #[doc = concat!("\nSee [`crate::", stringify!($name), "`].")]
        pub struct $name($twin);

        impl From<$twin> for $name {
            fn from(twin: $twin) -> Self {
                Self(twin)
            }
        }

        impl $name {
            fn inner(&self) -> &$twin {
                &self.0
            }
        }

        methods! { $name, $name, $($methods)* }
    };
}

/// Declares a guard of one mode: all that a [`Guard`] is, with these methods.
macro_rules! guard {
    ($(#[$meta:meta])* $name:ident($twin:path)) => {
        $(#[$meta])*
        #[doc = concat!("\nSee [`crate::", stringify!($name), "`].")]
        #[derive(Debug)]
        #[must_use = "the lock is given back when its guard is dropped"]
        pub struct $name(Guard);

        impl From<$twin> for $name {
            fn from(twin: $twin) -> Self {
                Self(crate::Guard::from(twin).into())
            }
        }

        impl Deref for $name {
            type Target = Guard;

            fn deref(&self) -> &Guard {
                &self.0
            }
        }

        impl $name {
            #[doc = concat!("Blocks until it is done: see [`crate::", stringify!($name), "::release`].")]
            pub fn release(self) -> Released {
                self.0.release()
            }
        }
    };
}

face! {
    /// Locks on a node, or on a quorum of several independent ones.
    #[derive(Clone, Debug)]
    Client(crate::Client),
    now with(options: &Options) -> Client;
    blocks connect() -> Result<(), Error>;
    blocks set_nodes(addresses: impl IntoIterator<Item = impl Into<String>>) -> Result<(), Error>;
    blocks try_lock(key: impl AsRef<[u8]>) => Result<Guard, Error>;
    blocks lock(key: impl AsRef<[u8]>) => Result<Guard, Error>;
    now rw_lock(key: impl AsRef<[u8]>) -> RwLock;
    now semaphore(key: impl AsRef<[u8]>, limit: u16) -> Semaphore;
    now election(name: impl AsRef<[u8]>) -> Election;
    now session() -> Session;
    blocks lock_all(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) => Result<Session, Error>;
    now watch(key: impl AsRef<[u8]>) => Result<Changes<Option<Holder>>, Error>;
    blocks close() -> Result<(), Error>;
}

face! {
    /// A lock that many can read under together, or one write.
    #[derive(Clone, Debug)]
    RwLock(crate::RwLock),
    blocks read() => Result<ReadGuard, Error>;
    blocks try_read() => Result<ReadGuard, Error>;
    blocks write() => Result<WriteGuard, Error>;
    blocks try_write() => Result<WriteGuard, Error>;
}

face! {
    /// Permits, of which there are so many.
    #[derive(Clone, Debug)]
    Semaphore(crate::Semaphore),
    blocks acquire() => Result<Permit, Error>;
    blocks try_acquire() => Result<Permit, Error>;
    now limit() -> u16;
}

face! {
    /// Locks that are kept together.
    #[derive(Debug)]
    #[must_use = "its locks are given back when a session is dropped"]
    Session(crate::Session),
    blocks lock(key: impl AsRef<[u8]>) => Result<SessionLock, Error>;
    blocks try_lock(key: impl AsRef<[u8]>) => Result<SessionLock, Error>;
    blocks read(key: impl AsRef<[u8]>) => Result<SessionLock, Error>;
    blocks lock_all(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<(), Error>;
    now get(key: impl AsRef<[u8]>) => Option<SessionLock>;
    now keys() -> Vec<Vec<u8>>;
    now valid_for() -> Duration;
    blocks release(key: impl AsRef<[u8]>) -> Option<Released>;
    blocks done() -> SessionEnd;
    now is_done() -> bool;
    blocks close() -> BTreeMap<Vec<u8>, Released>;
}

face! {
    /// An election.
    #[derive(Clone, Debug)]
    Election(crate::Election),
    blocks leader() -> Result<Option<Leader>, Error>;
    now observe() => Result<Changes<Option<Leader>>, Error>;
}

methods! {
    Guard, Guard,
    now token() -> u64;
    now key() -> &[u8];
    now owner() -> &[u8];
    now is_valid() -> bool;
    now valid_for() -> Duration;
    now is_lost() -> bool;
    blocks lost() -> Loss;
    blocks extend() -> Result<(), Error>;
    blocks reenter() => Result<Guard, Error>;
}

methods! {
    SessionLock, Guard,
    now token() -> u64;
    now is_valid() -> bool;
    now valid_for() -> Duration;
}

guard! {
    /// A lock that is held together with other readers.
    ReadGuard(crate::ReadGuard)
}

guard! {
    /// A lock that is held alone, for writing.
    WriteGuard(crate::WriteGuard)
}

guard! {
    /// A permit that is held.
    Permit(crate::Permit)
}

methods! { Permit, Permit, now number() -> u16; }

/// A lock that is held. See [`crate::Guard`].
///
/// Dropped outside of a runtime it waits until a majority has it back, or has had its time to answer: the process may be about to end.
#[derive(Debug)]
#[must_use = "the lock is given back when its guard is dropped"]
pub struct Guard(
    /// `None` only while it is dropped.
    Option<crate::Guard>,
);

/// A lock of a session: its token, and whether it is valid.
#[derive(Clone, Debug)]
pub struct SessionLock(Arc<crate::Guard>);

/// Leads. See [`crate::Leadership`].
#[derive(Debug)]
#[must_use = "a leader resigns when its leadership is dropped"]
pub struct Leadership {
    guard: Guard,
    term: u64,
    sequence: AtomicU64,
}

/// Changes of something, as an iterator that blocks until the next one and ends when the client is closed. See [`crate::Changes`].
#[derive(Debug)]
pub struct Changes<T>(crate::Changes<T>);

impl Builder {
    /// Makes the client, for code without async.
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
    /// See [`crate::Client::new`].
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        crate::Client::new(addresses).map(Client)
    }

    /// Runs `body` under the lock, and gives it back. Code without async cannot be cancelled: `body` has to look at
    /// [`Guard::is_valid`] itself.
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let token = locks.with_lock("orders:42", |guard| guard.token())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::lock`], and `Lost` if it was when `body` ended.
    pub fn with_lock<T>(&self, key: impl AsRef<[u8]>, body: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.lock(key)?;
        let value = body(&guard);
        if guard.is_lost() {
            return Err(guard.inner().lost_meanwhile(RAN_ON));
        }
        guard.release();
        Ok(value)
    }
}

impl From<crate::Guard> for Guard {
    fn from(twin: crate::Guard) -> Self {
        Self(Some(twin))
    }
}

impl Guard {
    fn inner(&self) -> &crate::Guard {
        self.0.as_ref().expect("there until it is dropped")
    }

    /// Blocks until it is done: see [`crate::Guard::release`].
    pub fn release(mut self) -> Released {
        let inner = self.0.take().expect("there until it is dropped");
        block_on(inner.release())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(inner) = self.0.take() else { return };
        // Inside somebody's runtime nothing may be waited for: it is given back in the background.
        if Handle::try_current().is_err() {
            block_on(inner.release());
        }
    }
}

impl From<Arc<crate::Guard>> for SessionLock {
    fn from(twin: Arc<crate::Guard>) -> Self {
        Self(twin)
    }
}

impl SessionLock {
    fn inner(&self) -> &crate::Guard {
        &self.0
    }
}

impl WriteGuard {
    /// Blocks until it is done: see [`crate::WriteGuard::downgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(self) -> Result<ReadGuard, Error> {
        block_on(self.inner().share())?;
        Ok(ReadGuard(self.0))
    }
}

impl Election {
    /// Blocks until it leads: see [`crate::Election::campaign`].
    ///
    /// # Errors
    /// As there.
    pub fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Leadership, Error> {
        let (guard, term, sequence) = block_on(self.0.campaign(value))?.into_parts();
        Ok(Leadership { guard: guard.into(), term, sequence: AtomicU64::new(sequence) })
    }
}

impl Leadership {
    /// See [`crate::Leadership::term`].
    pub fn term(&self) -> u64 {
        self.term
    }

    /// See [`crate::Leadership::sequence`].
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Blocks until it is done: see [`crate::Leadership::proclaim`].
    ///
    /// # Errors
    /// As there.
    pub fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        block_on(election::proclaim(self.guard.inner(), &self.sequence, value.as_ref()))
    }

    /// Blocks until it is done: see [`crate::Leadership::resign`].
    pub fn resign(self) -> Released {
        self.guard.release()
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl<T> From<crate::Changes<T>> for Changes<T> {
    fn from(twin: crate::Changes<T>) -> Self {
        Self(twin)
    }
}

impl<T> Iterator for Changes<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        block_on(self.0.changed()).ok()
    }
}
