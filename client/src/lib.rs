//! Locks that keep their promises, on one Redis or Valkey server with the Palisade module or on a quorum of several.
//!
//! A lock from this crate has a *fencing token* that is larger than that of every earlier holder, also over crashes,
//! restarts and fail-overs of nodes; a *validity* that is counted on this machine's boot clock from before the nodes were
//! asked; and a signal when it is *lost*. Nodes that restarted are given the lock again while it is held, so it outlives a
//! rolling restart of all of them. Who waits does so in a fair queue in the servers, without polling.
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
//! | you want | |
//! |---|---|
//! | a lock if it is free, now | [`Client::try_lock`] |
//! | a lock, waiting in turn | [`Client::lock`], with a limit in [`Options::wait`] |
//! | locks with another lease, limit or note than the client's defaults | [`Client::with`], [`Options`] |
//! | to read beside other readers, or to write alone | [`Client::rw_lock`], [`WriteGuard::downgrade`] |
//! | so many at a time, each with a number | [`Client::semaphore`], [`Permit::number`] |
//! | several locks, all or none, and kept together | [`Client::lock_all`], [`Client::session`], [`Session::done`] |
//! | one leader of many, and to know who leads | [`Client::election`], [`Election::campaign`], [`Election::leader`], [`Election::observe`] |
//! | to run something under a lock, and stop it when the lock is lost | [`Client::with_lock`] |
//! | to know what a lock is worth | [`Guard::is_valid`], [`Guard::valid_for`], [`Guard::token`], [`Guard::lost`] |
//! | to leave nothing locked at the end | [`Guard::release`], or [`Client::close`] |
//! | the same without async | [`blocking`] |
//! | to know why there is none | [`Error::kind`] |
//! | locks on a cluster, or on a master that Sentinels watch | [`Builder::cluster`], [`Builder::sentinel`] |
//! | certificates, or passwords that change | [`Builder::credentials`], and `Builder::tls` with the feature `tls` |
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
//! What a resource checks differs: see [`RwLock`] and [`Semaphore`].
//!
//! # Under load
//!
//! A client has a thread of its own, from its first use until it and its last guard are gone: connections, timers and the
//! extending of locks live there. So it works in any runtime, and nothing that the application does with its own one keeps a
//! lock from being extended. It sends to each node so many requests at a time; the others wait for their turn, and neither their
//! leases nor the time that a node is given run meanwhile. A node that hangs or is down is in nobody's way: it is not asked until it
//! answers again, and the locks that it missed the release of are given back then.
//!
//! What cannot be helped:
//!
//! - A process that is stopped as a whole, or a machine that has no time for this thread for longer than a lease, loses its locks.
//! - A task that computes without an await does not see that its lock is lost before it looks: check [`Guard::is_valid`].
//! - A runtime whose threads are all busy hears late of a lock it asked for. The lock is held and extended meanwhile.
//!
//! # What no lock with a lease can promise
//!
//! That a holder which is paused stops writing. It may be paused right after it saw that the lock is valid, for longer than
//! the lease. Only the resource can refuse that write, by the token.
//!
//! # Features
//!
//! - `tls`: `rediss://` addresses, by rustls with the system's certificates, or those that `Builder::tls` names.
//! - `metrics`: counters and histograms for the recorder of the program (crate `metrics`): how long was waited, how locks ended, which nodes
//!   answer. `Options::class` says which kind of lock it was.

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
pub use api::guard::Guard;
pub use api::options::Options;
pub use api::rw_lock::{ReadGuard, RwLock, WriteGuard};
pub use api::semaphore::{Permit, Semaphore};
pub use api::session::Session;
pub use net::access::Credentials;
#[cfg(feature = "tls")]
pub use net::access::Tls;
#[doc(hidden)]
pub use net::address::url_of;
pub use run::kept::SessionEnd;
pub use run::observing::Leader;
pub use values::error::{Error, ErrorKind, Holder, NodeError};
pub use values::failure::Why;
pub use values::loss::{Loss, Released};

/// The page about clusters and Sentinel: its examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/cluster.md")]
mod page_of_clusters {}

/// The page that shows users how locks are shared: its examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/modes.md")]
mod page_of_modes {}

/// The same of the page about metrics and traces.
#[cfg(all(doctest, feature = "metrics"))]
#[doc = include_str!("../../docs/telemetry.md")]
mod page_of_telemetry {}
