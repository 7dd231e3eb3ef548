//! Permits, without async.

use std::ops::Deref;

use super::{Guard, block_on};
use crate::{Error, Released};

/// Permits, of which there are so many. See [`crate::Semaphore`].
#[derive(Clone, Debug)]
pub struct Semaphore(pub(super) crate::Semaphore);

/// A permit that is held. See [`crate::Permit`].
#[derive(Debug)]
#[must_use = "the permit is given back when its guard is dropped"]
pub struct Permit(Guard);

impl Semaphore {
    /// See [`crate::Semaphore::acquire`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let permit = locks.semaphore("uploads", 8).acquire()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Permit, Error> {
        block_on(self.0.acquire()).map(|permit| Permit(crate::Guard::from(permit).into()))
    }

    /// See [`crate::Semaphore::try_acquire`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let permit = locks.semaphore("uploads", 8).try_acquire()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Permit, Error> {
        block_on(self.0.try_acquire()).map(|permit| Permit(crate::Guard::from(permit).into()))
    }

    /// See [`crate::Semaphore::limit`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// assert_eq!(locks.semaphore("uploads", 8).limit(), 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(&self) -> u16 {
        self.0.limit()
    }
}

impl Permit {
    /// See [`crate::Permit::number`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("worker {}", locks.semaphore("uploads", 8).acquire()?.number());
    /// # Ok(())
    /// # }
    /// ```
    pub fn number(&self) -> u16 {
        self.0.inner().number()
    }

    /// See [`crate::Permit::release`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{:?}", locks.semaphore("uploads", 8).acquire()?.release());
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(self) -> Released {
        self.0.release()
    }
}

impl Deref for Permit {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
