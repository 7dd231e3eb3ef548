//! Distributed locks with fencing tokens, on one Redis or Valkey server with the Palisade module or on a quorum of
//! several.
//!
//! A lock from this crate has a *fencing token*, which is larger than that of every earlier holder, across crashes,
//! restarts and fail-overs of nodes. It has a *validity*, counted on this machine's boot clock from before the nodes
//! were asked. And it signals when it is *lost*. A node that restarts while the lock is held is asked to grant it
//! again, so the lock outlives a rolling restart of all nodes. Waiting clients are in a fair queue on the servers;
//! nothing is polled.
//!
//! ```no_run
//! use palisade_client::{Client, Error};
//!
//! # async fn pay(order: u64, token: u64) {}
//! # async fn run() -> Result<(), Error> {
//! // Three independent masters with the module. One address works too: the same API.
//! let locks = Client::new(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])?;
//! locks.connect().await?;
//!
//! // Waits in turn. The lease is extended in the background while the guard lives.
//! let guard = locks.lock("orders:42").await?;
//!
//! // The resource remembers the largest token it has seen, and refuses smaller ones.
//! if guard.is_valid() {
//!     pay(42, guard.token()).await;
//! }
//!
//! guard.release().await;
//!
//! // At the end of the program: waits until everything has been given back.
//! locks.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! | you want | use |
//! |---|---|
//! | a lock if it is free now | [`Client::try_lock`] |
//! | a lock, waiting in turn | [`Client::lock`], with a limit in [`Options::wait`] |
//! | locks with another lease, limit or note than the client's defaults | [`Client::with`], [`Options`] |
//! | to read beside other readers, or to write alone | [`Client::rw_lock`], [`WriteGuard::downgrade`] |
//! | a limited number of holders, each with a number | [`Client::semaphore`], [`Permit::number`] |
//! | several locks, all or none, kept together | [`Client::lock_all`], [`Client::session`], [`Session::done`] |
//! | one leader among many candidates, and observers | [`Client::election`], [`Election::campaign`], [`Election::leader`], [`Election::observe`] |
//! | to run something under a lock, and stop it when the lock is lost | [`Client::with_lock`] |
//! | writes that the data's server refuses once the lock is lost | [`Guard::gate`] |
//! | the state of a held lock | [`Guard::is_valid`], [`Guard::valid_for`], [`Guard::token`], [`Guard::lost`] |
//! | nothing left locked at the end | [`Guard::release`], or [`Client::close`] |
//! | the same without async | [`blocking`] |
//! | the reason why there is no lock | [`Error::kind`] |
//! | locks on a cluster, or on a master behind Sentinels | [`Builder::cluster`], [`Builder::sentinel`] |
//! | certificates, or rotating passwords | [`Builder::credentials`], and `Builder::tls` with the feature `tls` |
//!
//! # Readers and writers, permits
//!
//! ```no_run
//! use palisade_client::{Client, Error};
//!
//! # async fn run(locks: Client) -> Result<(), Error> {
//! let prices = locks.rw_lock("prices");
//! let writing = prices.write().await?;
//! // The same lock, without letting another writer in between; other readers get in.
//! let reading = writing.downgrade().await?;
//! let beside = prices.read().await?;
//!
//! // One of eight, on all hosts together, with a number that nobody else has meanwhile.
//! let permit = locks.semaphore("uploads", 8).acquire().await?;
//! println!("worker {} with token {}", permit.number(), permit.token());
//! # Ok(())
//! # }
//! ```
//!
//! A resource checks the tokens of these differently: see [`RwLock`] and [`Semaphore`].
//!
//! # Under load
//!
//! A client starts a thread of its own at its first use. The thread lives until the client and its last guard are gone,
//! and runs the timers, the waits and the extension of locks. The runtime of a caller reads and writes the sockets for
//! the caller's own attempts and releases, as long as it runs; otherwise the thread does. So the client works in any
//! runtime, and a busy runtime of the application does not stop locks from being extended. In a runtime without I/O
//! enabled, the first use causes a panic that is caught, with its message on standard error. So enable I/O, above all
//! in a program that is built with `panic = "abort"`.
//!
//! The client limits its requests in flight to each node. Further requests queue in the process; meanwhile neither
//! their leases nor their timeouts run. A node that hangs or is down delays no caller: it is sent no requests until it
//! answers an earlier one, or is connected again. Then releases that it missed are repeated.
//!
//! Limits:
//!
//! - A process that is suspended, or a machine that gives this thread no time for longer than a lease, loses its locks.
//!   After a machine has slept, [`Guard::is_valid`] is right at once. [`Guard::lost`] may return late: by a third of the
//!   ttl, or by the whole ttl if the lock is not extended in the background.
//! - A task that computes without an await does not notice the loss of its lock by itself: check [`Guard::is_valid`].
//! - If all threads of a runtime are busy, a caller learns late that it has got a lock. If the caller had to wait before,
//!   the lock is held and extended meanwhile. Otherwise it may end, and other tasks of the program that want it wait until
//!   the future is polled or dropped.
//!
//! # What no lock with a lease can guarantee
//!
//! No lock with a lease can keep a paused holder from writing. The pause may begin right after the holder saw that the
//! lock is valid, and outlast the lease. Only the resource can refuse that write, by the token: see [`Guard::gate`].
//!
//! # Features
//!
//! - `tls`: `rediss://` addresses, through rustls with the system's certificates or those that `Builder::tls` names.
//! - `metrics`: counters and histograms for the program's recorder (crate `metrics`): times spent waiting, how locks
//!   ended, which nodes answer. `Options::class` sets their label `class`.

mod api;
#[doc(hidden)]
pub mod by_owner;
#[doc(hidden)]
pub mod direct;
mod metrics;
mod net;
mod run;
mod values;

pub use api::blocking;
pub use api::builder::Builder;
pub use api::changes::Changes;
pub use api::client::Client;
pub use api::election::{Election, Leadership};
pub use api::gate::{Gate, GateError};
pub use api::guard::Guard;
pub use api::options::Options;
pub use api::rw_lock::{ReadGuard, RwLock, WriteGuard};
pub use api::semaphore::{Permit, Semaphore};
pub use api::session::Session;
pub use net::access::Credentials;
#[doc(hidden)]
pub use net::address::url_of;
#[cfg(feature = "tls")]
pub use net::certificates::Tls;
pub use run::kept::SessionEnd;
pub use run::observing::Leader;
pub use values::error::{Error, ErrorKind, Holder, NodeError};
pub use values::failure::Why;
pub use values::loss::{Loss, Released};
pub use values::tls_fault::TlsFault;

/// Compiles the examples of the page about clusters and Sentinel.
#[cfg(doctest)]
#[doc = include_str!("../../docs/cluster.md")]
mod page_of_clusters {}

/// Compiles the example of the page about fencing.
#[cfg(doctest)]
#[doc = include_str!("../../docs/fencing.md")]
mod page_of_fencing {}

/// Compiles the examples of the page about shared locks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/modes.md")]
mod page_of_modes {}

/// Compiles the examples of the page about metrics and traces.
#[cfg(all(doctest, feature = "metrics"))]
#[doc = include_str!("../../docs/telemetry.md")]
mod page_of_telemetry {}
