//! How a client begins sessions.

use super::Session;
use crate::{Client, Error, Options};

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
        self.session_with(self.defaults())
    }

    /// The same, with these options for each of its locks.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use palisade_client::{Client, Options};
    /// # async fn run(locks: Client) {
    /// let session = locks.session_with(&Options::new().ttl(Duration::from_secs(5)).note("import"));
    /// # }
    /// ```
    pub fn session_with(&self, options: &Options) -> Session {
        Session::begin(self, options)
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
        self.lock_all_with(keys, self.defaults()).await
    }

    /// The same, with these options; the limit of [`Options::wait`] is for all of them together.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use palisade_client::{Client, Error, Options};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let patient = Options::new().wait(Duration::from_secs(60));
    /// let both = locks.lock_all_with(["account:7", "account:3"], &patient).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::lock_all`].
    pub async fn lock_all_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &Options,
    ) -> Result<Session, Error> {
        let session = self.session_with(options);
        session.lock_all(keys).await?;
        Ok(session)
    }
}
