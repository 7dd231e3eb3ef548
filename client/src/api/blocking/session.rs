//! Several locks that are kept together, without async.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Client, block_on};
use crate::{Error, Options, Released, SessionEnd};

/// Locks that are kept together. See [`crate::Session`].
#[derive(Debug)]
#[must_use = "its locks are given back when a session is dropped"]
pub struct Session(crate::Session);

/// A lock of a session: its token, and whether it is valid.
#[derive(Clone, Debug)]
pub struct SessionLock(Arc<crate::Guard>);

impl Client {
    /// See [`crate::Client::session`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.session();
    /// session.lock("orders:42")?;
    /// session.close();
    /// # Ok(())
    /// # }
    /// ```
    pub fn session(&self) -> Session {
        Session(self.0.session())
    }

    /// See [`crate::Client::session_with`].
    ///
    /// ```no_run
    /// # use palisade_client::{Options, blocking::Client};
    /// # fn run(locks: Client) {
    /// let session = locks.session_with(&Options::new().note("import"));
    /// # }
    /// ```
    pub fn session_with(&self, options: &Options) -> Session {
        Session(self.0.session_with(options))
    }

    /// See [`crate::Client::lock_all`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let both = locks.lock_all(["account:7", "account:3"])?;
    /// both.close();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn lock_all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Session, Error> {
        block_on(self.0.lock_all(keys)).map(Session)
    }

    /// See [`crate::Client::lock_all_with`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use palisade_client::{Error, Options, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let both = locks.lock_all_with(["account:7", "account:3"], &Options::new().wait(Duration::from_secs(60)))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn lock_all_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &Options,
    ) -> Result<Session, Error> {
        block_on(self.0.lock_all_with(keys, options)).map(Session)
    }
}

impl Session {
    /// See [`crate::Session::lock`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("held with token {}", locks.session().lock("orders")?.token());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Result<SessionLock, Error> {
        block_on(self.0.lock(key)).map(SessionLock)
    }

    /// See [`crate::Session::try_lock`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("held with token {}", locks.session().try_lock("orders")?.token());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<SessionLock, Error> {
        block_on(self.0.try_lock(key)).map(SessionLock)
    }

    /// See [`crate::Session::read`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("read with token {}", locks.session().read("prices")?.token());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, key: impl AsRef<[u8]>) -> Result<SessionLock, Error> {
        block_on(self.0.read(key)).map(SessionLock)
    }

    /// See [`crate::Session::lock_all`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// locks.session().lock_all(["account:7", "account:3"])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn lock_all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<(), Error> {
        block_on(self.0.lock_all(keys))
    }

    /// See [`crate::Session::get`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let session = locks.lock_all(["account:7", "account:3"])?;
    /// println!("{:?}", session.get("account:7").map(|lock| lock.token()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<SessionLock> {
        self.0.get(key).map(SessionLock)
    }

    /// See [`crate::Session::keys`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// assert_eq!(locks.lock_all(["b", "a"])?.keys(), [b"a", b"b"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.0.keys()
    }

    /// See [`crate::Session::valid_for`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{:?}", locks.lock_all(["b", "a"])?.valid_for());
    /// # Ok(())
    /// # }
    /// ```
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// See [`crate::Session::release`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{:?}", locks.lock_all(["b", "a"])?.release("a"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(&self, key: impl AsRef<[u8]>) -> Option<Released> {
        block_on(self.0.release(key))
    }

    /// See [`crate::Session::done`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{}", locks.lock_all(["b", "a"])?.done());
    /// # Ok(())
    /// # }
    /// ```
    pub fn done(&self) -> SessionEnd {
        block_on(self.0.done())
    }

    /// See [`crate::Session::is_done`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// assert!(!locks.lock_all(["b", "a"])?.is_done());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// See [`crate::Session::close`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{:?}", locks.lock_all(["b", "a"])?.close());
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(&self) -> BTreeMap<Vec<u8>, Released> {
        block_on(self.0.close())
    }
}

impl SessionLock {
    /// See [`crate::Guard::token`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("held with token {}", locks.session().lock("orders")?.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// See [`crate::Guard::is_valid`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// assert!(locks.session().lock("orders")?.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// See [`crate::Guard::valid_for`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{:?}", locks.session().lock("orders")?.valid_for());
    /// # Ok(())
    /// # }
    /// ```
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }
}
