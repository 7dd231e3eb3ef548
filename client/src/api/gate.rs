//! Commands that the server with the data performs only if no newer holder of the lock has come.

use std::fmt;

use palisade_quorum::Wanted;
use redis::{Cmd, RedisError, cmd};

use crate::Guard;

/// Builds commands that a gate protects. The server that has the data performs them only if no later grant that
/// excludes this one has passed the gate. Created by [`Guard::gate`].
///
/// Each command carries the token and the mode that the lock has when the command is built.
#[derive(Clone, Debug)]
pub struct Gate<'a> {
    guard: &'a Guard,
    name: Vec<u8>,
    is_lock: bool,
}

impl Guard {
    /// Returns the gate `name` on the server that has the data, for this lock. That server needs the module; the lock
    /// may be elsewhere. One gate is enough for all data that a lock protects: name it after the lock.
    ///
    /// The commands are of the crate `redis` (version 1), and are sent on a connection that you open.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, GateError};
    /// # async fn run(locks: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut data = redis::Client::open("redis://10.0.0.9")?.get_multiplexed_async_connection().await?;
    ///
    /// let guard = locks.lock("invoices").await?;
    /// let gate = guard.gate("invoices");
    /// match gate.cmd("SET").arg("invoice:42").arg("paid").exec_async(&mut data).await.map_err(GateError::from) {
    ///     Ok(()) => println!("written"),
    ///     Err(GateError::Fenced { largest }) => println!("nothing written: the holder of token {largest} was here"),
    ///     Err(why) => return Err(why.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn gate(&self, name: impl AsRef<[u8]>) -> Gate<'_> {
        Gate { guard: self, name: name.as_ref().to_vec(), is_lock: false }
    }
}

impl Gate<'_> {
    /// Makes the server check its lock of this name in place of a gate: it performs a command only if it has this
    /// guard's grant. Use it where one node has both the lock and the data.
    ///
    /// ```no_run
    /// # use palisade_client::Guard;
    /// # fn run(guard: &Guard) {
    /// let write = guard.gate(guard.key()).held().cmd("SET").arg("invoice:42").arg("paid").take();
    /// # }
    /// ```
    #[must_use]
    pub fn held(mut self) -> Self {
        self.is_lock = true;
        self
    }

    /// Returns the command that passes the token through the gate without another command. Once it has succeeded, no
    /// earlier holder can write: send it as soon as the lock is held, before anything is read.
    ///
    /// ```no_run
    /// # use palisade_client::{GateError, Guard};
    /// # async fn run(guard: &Guard, data: &mut redis::aio::MultiplexedConnection) -> Result<(), GateError> {
    /// guard.gate("invoices").pass().exec_async(data).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pass(&self) -> Cmd {
        let mut command = cmd("LOCK.GATE");
        command.arg(&self.name).arg(self.guard.token());
        match self.guard.lease().wanted() {
            // A lock with one permit is exclusive.
            Wanted::Exclusive | Wanted::Permit { limit: 1, .. } => {}
            Wanted::Shared => {
                command.arg("SHARED");
            }
            Wanted::Permit { .. } => {
                command.arg("PERMIT").arg(self.guard.number());
            }
        }
        if self.is_lock {
            command.arg("HELD");
        }
        command
    }

    /// Begins the command `name` behind the gate, as [`redis::cmd`] does without one: add its arguments, and send it.
    /// It is performed together with the check of the token, or not at all. A client of a cluster needs the gate in
    /// the slot of the command's keys, such as `{invoice}:gate`.
    ///
    /// ```no_run
    /// # use palisade_client::{GateError, Guard};
    /// # async fn run(guard: &Guard, data: &mut redis::aio::MultiplexedConnection) -> Result<(), GateError> {
    /// let open: u64 = guard.gate("invoices").cmd("DECR").arg("invoices:open").query_async(data).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cmd(&self, name: &str) -> Cmd {
        self.pass().arg("COMMAND").arg(name).take()
    }
}

/// The reason why a command behind a [`Gate`] failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum GateError {
    /// Nothing was done: a later grant that excludes this one has passed the gate. The lock is lost.
    Fenced {
        /// The largest token that has passed the gate and excludes this grant.
        largest: u64,
    },
    /// Nothing was done: with [`Gate::held`], this grant is not present on the server. The lock is lost.
    NotHeld,
    /// The server refused for another reason, the command itself failed, or the server could not be reached. In the
    /// last case the command may have been performed.
    Redis(RedisError),
}

impl From<RedisError> for GateError {
    fn from(error: RedisError) -> Self {
        let largest = || error.detail()?.split(' ').next()?.parse().ok();
        match (error.code(), largest()) {
            (Some("FENCED"), Some(largest)) => Self::Fenced { largest },
            (Some("NOTHELD"), _) => Self::NotHeld,
            _ => Self::Redis(error),
        }
    }
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced { largest } => {
                write!(f, "a newer grant, with token {largest}, has passed the gate: the lock is lost, so stop")
            }
            Self::NotHeld => {
                f.write_str("the lock's server has no present grant with this token: the lock is lost, so stop")
            }
            Self::Redis(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Redis(error) => Some(error),
            Self::Fenced { .. } | Self::NotHeld => None,
        }
    }
}
