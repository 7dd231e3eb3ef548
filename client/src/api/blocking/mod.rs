//! The API without async. Types and methods have the names of their async twins, whose documentation has the examples.
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
//! Do not use these types inside an async runtime, which they would block.

mod block_on;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use tokio::runtime::Handle;

use self::block_on::block_on;
use crate::api::client::RAN_ON;
use crate::api::election::checked;
use crate::api::held::held;
use crate::{Error, Holder, Leader, Loss, Options, Released, SessionEnd};

/// The async types, which the blocking ones call.
mod twins {
    pub use crate::{Client, Election, Guard, Permit, ReadGuard, RwLock, Semaphore, Session, WriteGuard};
}

/// Declares methods of a blocking type that call those of its async twin. `blocks` waits for an async method, `now`
/// calls a plain one. After `->` the value is converted by `into`, after `=>` the value inside the `Result`.
macro_rules! methods {
    ($name:ident, $($how:ident $method:ident($($argument:ident: $type:ty),*) $arrow:tt $returned:ty;)*) => {
        impl $name {
            $(
                #[doc = methods!(doc $how, concat!("[`crate::", stringify!($name), "::", stringify!($method), "`]"))]
                pub fn $method(&self, $($argument: $type),*) -> $returned {
                    methods!(convert $arrow, methods!(call $how, self.0.$method($($argument),*)))
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

/// Declares a blocking type that wraps its async twin. `methods` replaces the async methods; all other methods are
/// called on the twin.
macro_rules! face {
    ($(#[$meta:meta])* $name:ident, $($methods:tt)*) => {
        $(#[$meta])*
        #[doc = concat!("\nSee [`crate::", stringify!($name), "`].")]
        #[derive(Debug)]
        pub struct $name(twins::$name);

        impl From<twins::$name> for $name {
            fn from(twin: twins::$name) -> Self {
                Self(twin)
            }
        }

        impl Deref for $name {
            type Target = twins::$name;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }

        methods! { $name, $($methods)* }
    };
}

/// Declares the blocking guard of one mode.
macro_rules! guard {
    ($(#[$meta:meta])* $name:ident) => {
        held! {
            $(#[$meta])*
            #[doc = concat!("\nSee [`crate::", stringify!($name), "`].")]
            $name(Guard), release:
            #[doc = concat!("Blocks until it is done: see [`crate::", stringify!($name), "::release`].")]
            [] []
        }

        impl From<twins::$name> for $name {
            fn from(twin: twins::$name) -> Self {
                Self(crate::Guard::from(twin).into())
            }
        }
    };
}

face! {
    /// Locks on a node, or on a quorum of several independent ones. Created by [`Client::new`], or from the client of
    /// [`Builder::build`](crate::Builder::build).
    #[derive(Clone)]
    Client,
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
    /// A lock that many readers hold together, or one writer alone.
    #[derive(Clone)]
    RwLock,
    blocks read() => Result<ReadGuard, Error>;
    blocks try_read() => Result<ReadGuard, Error>;
    blocks write() => Result<WriteGuard, Error>;
    blocks try_write() => Result<WriteGuard, Error>;
}

face! {
    /// A limited number of permits.
    #[derive(Clone)]
    Semaphore,
    blocks acquire() => Result<Permit, Error>;
    blocks try_acquire() => Result<Permit, Error>;
}

face! {
    /// Several locks that are extended together, and released together. Its methods return async guards; without a
    /// runtime, use only those methods of a guard that do not wait.
    #[must_use = "its locks are given back when a session is dropped"]
    Session,
    blocks lock(key: impl AsRef<[u8]>) -> Result<Arc<crate::Guard>, Error>;
    blocks try_lock(key: impl AsRef<[u8]>) -> Result<Arc<crate::Guard>, Error>;
    blocks read(key: impl AsRef<[u8]>) -> Result<Arc<crate::Guard>, Error>;
    blocks lock_all(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<(), Error>;
    blocks release(key: impl AsRef<[u8]>) -> Option<Released>;
    blocks done() -> SessionEnd;
    blocks close() -> BTreeMap<Vec<u8>, Released>;
}

face! {
    /// An election: its candidates, one of whom leads at a time, and its observers.
    #[derive(Clone)]
    Election,
    blocks leader() -> Result<Option<Leader>, Error>;
    now observe() => Result<Changes<Option<Leader>>, Error>;
}

face! {
    /// A held lock.
    ///
    /// If it is dropped outside of a runtime, the drop blocks until a majority has released the lock or had its time to
    /// answer. The drop waits because the process may be about to end. If it is dropped inside a runtime, the lock is
    /// released in the background.
    #[must_use = "the lock is given back when its guard is dropped"]
    Guard,
    blocks lost() -> Loss;
    blocks extend() -> Result<(), Error>;
    blocks reenter() => Result<Guard, Error>;
}

guard! {
    /// A lock that is held together with other readers.
    ReadGuard
}

guard! {
    /// A lock that is held alone, for writing.
    WriteGuard
}

guard! {
    /// A permit that is held.
    Permit
}

/// A leadership. See [`crate::Leadership`].
#[derive(Debug)]
#[must_use = "a leader resigns when its leadership is dropped"]
pub struct Leadership {
    guard: Guard,
    term: u64,
}

/// An iterator over changes. It blocks until the next change, and ends when the client is closed. See
/// [`crate::Changes`].
#[derive(Debug)]
pub struct Changes<T>(crate::Changes<T>);

impl Client {
    /// Creates a client: see [`crate::Client::new`].
    ///
    /// # Errors
    /// Those of [`Builder::build`](crate::Builder::build).
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        crate::Client::new(addresses).map(Client)
    }

    /// Runs `body` under the lock, and releases it. Code without async cannot be cancelled: `body` has to check
    /// [`Guard::is_valid`](crate::Guard::is_valid) itself.
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
    /// Those of [`Client::lock`], and `Lost` if the lock was lost before `body` ended.
    pub fn with_lock<T>(&self, key: impl AsRef<[u8]>, body: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.lock(key)?;
        let value = body(&guard);
        if guard.is_lost() {
            return Err(guard.lost_meanwhile(RAN_ON));
        }
        guard.release();
        Ok(value)
    }
}

impl Guard {
    /// Blocks until the lock is released: see [`crate::Guard::release`].
    pub fn release(mut self) -> Released {
        block_on(self.0.release_now())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Blocking is not allowed inside a runtime: the lock is released in the background.
        if !self.released && Handle::try_current().is_err() {
            block_on(self.0.release_now());
        }
    }
}

impl Permit {
    /// Returns the number of the permit: see [`crate::Permit::number`].
    pub fn number(&self) -> u16 {
        self.0.number()
    }
}

impl WriteGuard {
    /// Makes this writer a reader, blocking until a majority has made the change: see [`crate::WriteGuard::downgrade`].
    ///
    /// # Errors
    /// Those of [`crate::WriteGuard::downgrade`].
    pub fn downgrade(self) -> Result<ReadGuard, Error> {
        block_on(self.share())?;
        Ok(ReadGuard(self.0))
    }
}

impl Election {
    /// Blocks until this candidate leads: see [`crate::Election::campaign`].
    ///
    /// # Errors
    /// Those of [`crate::Election::campaign`].
    pub fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Leadership, Error> {
        let crate::Leadership { guard, term } = block_on(self.0.campaign(value))?;
        Ok(Leadership { guard: guard.into(), term })
    }
}

impl Leadership {
    /// Returns the term: see [`crate::Leadership::term`].
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Blocks until a majority has the new value: see [`crate::Leadership::proclaim`].
    ///
    /// # Errors
    /// Those of [`crate::Leadership::proclaim`].
    pub fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        block_on(self.guard.0.proclaim(checked(value.as_ref())?)).map(drop)
    }

    /// Stops leading, blocking until the outcome is known: see [`crate::Leadership::resign`].
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
