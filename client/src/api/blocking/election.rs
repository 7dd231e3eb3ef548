//! Elections, without async.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Changes, Guard, block_on};
use crate::api::election;
use crate::{Error, Leader, Released};

/// An election. See [`crate::Election`].
#[derive(Clone, Debug)]
pub struct Election(pub(super) crate::Election);

/// Leads. See [`crate::Leadership`].
#[derive(Debug)]
#[must_use = "a leader resigns when its leadership is dropped"]
pub struct Leadership {
    guard: Guard,
    term: u64,
    sequence: AtomicU64,
}

impl Election {
    /// See [`crate::Election::campaign`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let leadership = locks.election("scheduler").campaign("10.0.0.1:80")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Leadership, Error> {
        let (guard, term, sequence) = block_on(self.0.campaign(value))?.into_parts();
        Ok(Leadership { guard: guard.into(), term, sequence: AtomicU64::new(sequence) })
    }

    /// See [`crate::Election::leader`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{:?}", locks.election("scheduler").leader()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        block_on(self.0.leader())
    }

    /// See [`crate::Election::observe`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// for leader in locks.election("scheduler").observe()? {
    ///     println!("{leader:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn observe(&self) -> Result<Changes<Option<Leader>>, Error> {
        self.0.observe().map(Changes)
    }
}

impl Leadership {
    /// See [`crate::Leadership::term`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{}", locks.election("scheduler").campaign("10.0.0.1:80")?.term());
    /// # Ok(())
    /// # }
    /// ```
    pub fn term(&self) -> u64 {
        self.term
    }

    /// See [`crate::Leadership::sequence`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// assert_eq!(locks.election("scheduler").campaign("10.0.0.1:80")?.sequence(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// See [`crate::Leadership::proclaim`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// locks.election("scheduler").campaign("starting")?.proclaim("10.0.0.1:80")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        block_on(election::proclaim(self.guard.inner(), &self.sequence, value.as_ref()))
    }

    /// See [`crate::Leadership::resign`].
    ///
    /// ```no_run
    /// # use palisade_client::{Error, blocking::Client};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// println!("{:?}", locks.election("scheduler").campaign("10.0.0.1:80")?.resign());
    /// # Ok(())
    /// # }
    /// ```
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
