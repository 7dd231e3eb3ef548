//! A lock that many can read under together, without async.

use std::ops::Deref;

use super::{Guard, block_on};
use crate::{Error, Released};

/// A lock that many can read under together, or one write. See [`crate::RwLock`].
#[derive(Clone, Debug)]
pub struct RwLock(pub(super) crate::RwLock);

/// A lock that is held together with other readers. See [`crate::ReadGuard`].
#[derive(Debug)]
#[must_use = "the lock is given back when its guard is dropped"]
pub struct ReadGuard(Guard);

/// A lock that is held alone, for writing. See [`crate::WriteGuard`].
#[derive(Debug)]
#[must_use = "the lock is given back when its guard is dropped"]
pub struct WriteGuard(Guard);

impl RwLock {
    /// See [`crate::RwLock::read`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.rw_lock("prices").read()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn read(&self) -> Result<ReadGuard, Error> {
        block_on(self.0.read()).map(|guard| ReadGuard(crate::Guard::from(guard).into()))
    }

    /// See [`crate::RwLock::try_read`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.rw_lock("prices").try_read()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn try_read(&self) -> Result<ReadGuard, Error> {
        block_on(self.0.try_read()).map(|guard| ReadGuard(crate::Guard::from(guard).into()))
    }

    /// See [`crate::RwLock::write`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.rw_lock("prices").write()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn write(&self) -> Result<WriteGuard, Error> {
        block_on(self.0.write()).map(|guard| WriteGuard(crate::Guard::from(guard).into()))
    }

    /// See [`crate::RwLock::try_write`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.rw_lock("prices").try_write()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn try_write(&self) -> Result<WriteGuard, Error> {
        block_on(self.0.try_write()).map(|guard| WriteGuard(crate::Guard::from(guard).into()))
    }
}

impl WriteGuard {
    /// See [`crate::WriteGuard::downgrade`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let reading = locks.rw_lock("prices").write()?.downgrade()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(self) -> Result<ReadGuard, Error> {
        block_on(self.0.inner().share())?;
        Ok(ReadGuard(self.0))
    }

    /// See [`crate::WriteGuard::release`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{:?}", locks.rw_lock("prices").write()?.release());
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(self) -> Released {
        self.0.release()
    }
}

impl ReadGuard {
    /// See [`crate::ReadGuard::release`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{:?}", locks.rw_lock("prices").read()?.release());
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(self) -> Released {
        self.0.release()
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl Deref for ReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
