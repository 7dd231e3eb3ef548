//! The client: who asks for locks.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use palisade_core::limits::WAIT_MAX_MS;
use rand::RngExt;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{Instrument, debug_span};

use crate::attempt::{self, Taken};
use crate::keeper::{self, Auto};
use crate::node::Node;
use crate::nodes::Nodes;
use crate::options::Checked;
use crate::wire::Lease;
use crate::{Error, ErrorKind, Guard, Options, waiting};

/// Longest wait that is asked of the nodes at a time: the most they take.
const WAIT_AT_A_TIME: Duration = Duration::from_millis(WAIT_MAX_MS as u64);

/// First and longest pause after a collision (several clients were told that the lock is free, and none got a majority), and
/// where the nodes let nobody wait.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));

/// Locks on a node, or on a quorum of several independent ones.
///
/// Cheap to clone; all clones share their connections. A process needs one.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    nodes: Arc<Nodes>,
    defaults: Options,
    /// Who waits in this process, by key: one of them waits on the nodes, the others for their turn here.
    local: Mutex<HashMap<Vec<u8>, Weak<tokio::sync::Mutex<()>>>>,
}

/// Makes a [`Client`].
#[derive(Clone, Default)]
pub struct Builder {
    addresses: Vec<String>,
    defaults: Options,
}

impl Builder {
    /// Adds a node, by its URL: `redis://user:password@host:6379`, `rediss://…` with the feature `tls`, `unix:///path`; or by
    /// `host:port`.
    pub fn node(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Adds nodes.
    pub fn nodes<A: Into<String>>(mut self, addresses: impl IntoIterator<Item = A>) -> Self {
        self.addresses.extend(addresses.into_iter().map(Into::into));
        self
    }

    /// What locks are taken with, unless said otherwise.
    pub fn defaults(mut self, options: Options) -> Self {
        self.defaults = options;
        self
    }

    /// The client. Connections are made at its first use, in the background.
    ///
    /// # Errors
    /// `Configuration`: no address, or one that is none, or the same twice. `BadArgument`: defaults out of their bounds.
    pub fn build(self) -> Result<Client, Error> {
        self.defaults.checked()?;
        if self.addresses.is_empty() {
            return Err(Error::new(
                ErrorKind::Configuration,
                "give the address of one node at least, better of three or five",
            ));
        }
        let numbered = self.addresses.iter().enumerate();
        let list = numbered.map(|(n, address)| Node::new(n + 1, address)).collect::<Result<Vec<_>, _>>()?;
        for (n, node) in list.iter().enumerate() {
            if list[..n].iter().any(|other| other.name() == node.name()) {
                return Err(Error::new(
                    ErrorKind::Configuration,
                    format!("{} is given twice: give each node once", node.name()),
                ));
            }
        }
        Ok(Client(Arc::new(Inner { nodes: Nodes::new(list), defaults: self.defaults, local: Mutex::default() })))
    }
}

impl fmt::Debug for Builder {
    /// Addresses have passwords in them: only their number is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("nodes", &self.addresses.len()).field("defaults", &self.defaults).finish()
    }
}

impl Client {
    /// Begins a client: its nodes, its defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client of these nodes, with the defaults of [`Options`].
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        Self::builder().nodes(addresses).build()
    }

    /// Connects to a majority of the nodes, for up to a second. Not needed, but a lock that is asked for first of all has to
    /// connect within the time that a node is given to answer, and a wrong address shows here already.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes can be reached, or be nodes; each with its reason.
    pub async fn connect(&self) -> Result<(), Error> {
        self.0.nodes.start();
        self.0.nodes.connected().await
    }

    /// Takes the lock if it is free, now. It is not extended in the background unless asked for.
    ///
    /// # Errors
    /// `Contended` with who holds it; also where several clients asked at the same moment and none got a majority. `Guarded`,
    /// `NoQuorum`, `Expired`.
    pub async fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.try_lock_with(key, &self.0.defaults).await
    }

    /// The same, with these options.
    ///
    /// # Errors
    /// As [`Client::try_lock`], and `BadArgument`.
    pub async fn try_lock_with(&self, key: impl AsRef<[u8]>, options: &Options) -> Result<Guard, Error> {
        let checked = options.checked()?;
        self.0.nodes.start();
        let key = key.as_ref();
        let span = debug_span!("try_lock", key = %String::from_utf8_lossy(key), nodes = self.0.nodes.len());
        let taken = attempt::acquire(&self.0.nodes, Lease::new(key, &options.note), checked).instrument(span).await?;
        Ok(self.keep(taken, checked, options, false))
    }

    /// Takes the lock, waiting for it in turn, and extends it in the background while the guard lives.
    ///
    /// # Errors
    /// `TimedOut` after the limit of [`Options::wait`], `NoQuorum` at once, `Expired`.
    pub async fn lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock_with(key, &self.0.defaults).await
    }

    /// The same, with these options.
    ///
    /// # Errors
    /// As [`Client::lock`], and `BadArgument`.
    pub async fn lock_with(&self, key: impl AsRef<[u8]>, options: &Options) -> Result<Guard, Error> {
        let checked = options.checked()?;
        self.0.nodes.start();
        let key = key.as_ref();
        let span = debug_span!("lock", key = %String::from_utf8_lossy(key), nodes = self.0.nodes.len());
        let taken = self.wait_for(key, options, checked).instrument(span).await?;
        Ok(self.keep(taken, checked, options, true))
    }

    /// Runs `body` under the lock, and gives it back. If the lock is lost meanwhile, `body` is cancelled at its next await
    /// and the answer is an error; check [`Guard::is_valid`] in it before what must not happen without the lock.
    ///
    /// # Errors
    /// As [`Client::lock_with`], and `Lost`.
    pub async fn with_lock<T>(
        &self,
        key: impl AsRef<[u8]>,
        options: &Options,
        body: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, Error> {
        let guard = self.lock_with(key, options).await?;
        let value = tokio::select! {
            biased;
            () = guard.lost() => None,
            value = body(&guard) => Some(value),
        };
        match value {
            // It may have run on without an await while the lock was lost.
            Some(value) if !guard.is_lost() => {
                guard.release().await;
                Ok(value)
            }
            _ => Err(Error::new(ErrorKind::Lost, "the lock was lost, and what ran under it was cancelled")),
        }
    }

    fn keep(&self, taken: Taken, checked: Checked, options: &Options, extends: bool) -> Guard {
        let auto = options.auto_extend.unwrap_or(extends).then(|| Auto { until: Instant::now() + checked.max_hold });
        let (shared, orders, lease) = keeper::keep(&self.0.nodes, taken, checked, auto);
        Guard::new(&self.0.nodes, lease, shared, orders, checked)
    }

    async fn wait_for(&self, key: &[u8], options: &Options, checked: Checked) -> Result<Taken, Error> {
        let deadline = options.wait.map(|wait| Instant::now() + wait);
        let turn = self.local_turn(key);
        let _turn = match deadline {
            None => turn.lock().await,
            Some(deadline) => timeout_at(deadline, turn.lock()).await.map_err(|_| timed_out(None))?,
        };
        let nodes = &self.0.nodes;
        let ticket = nodes.clock.propose();
        let mut lease = Lease::new(key, &options.note);
        let mut pause = BACK_OFF.0;
        let mut collided = false;
        let patience = || {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            left.map_or(WAIT_AT_A_TIME, |left| left.min(WAIT_AT_A_TIME))
        };
        loop {
            let left = patience();
            let attempt = if nodes.len() == 1 && !left.is_zero() {
                attempt::acquire_waiting(nodes, lease, checked, left).await
            } else {
                attempt::acquire(nodes, lease, checked).await.map(Some)
            };
            let refused = match attempt {
                Ok(Some(taken)) => return Ok(taken),
                Ok(None) => Error::new(ErrorKind::Contended, "somebody else holds the lock"),
                Err(error) => error,
            };
            if !matches!(refused.kind(), ErrorKind::Contended | ErrorKind::Guarded) {
                return Err(refused);
            }
            if patience().is_zero() {
                return Err(timed_out(Some(refused)));
            }
            // Told that it was free, and somebody else was faster: not all at the same moment again. Nor where the nodes
            // let nobody wait, or grant nothing for a while.
            if collided || refused.kind() == ErrorKind::Guarded {
                let longest = refused.retry_after().unwrap_or(pause).min(left).min(BACK_OFF.1);
                let jittered = longest.mul_f64(rand::rng().random_range(0.2..1.0));
                sleep(jittered).await;
                pause = (pause * 2).min(BACK_OFF.1);
            }
            // A new name for each attempt: a late message about the last one cannot touch it.
            lease = Lease::new(key, &options.note);
            if nodes.len() > 1 {
                let patient = patience().max(Duration::from_millis(1));
                let turn = waiting::turn(nodes, lease, ticket, patient, checked.node_timeout).await?;
                // Told that it is free; or the nodes let nobody wait. (If the time is up, the last attempt follows.)
                collided = turn.is_some() || !patience().is_zero();
                lease = turn.unwrap_or_else(|| Lease::new(key, &options.note));
            }
        }
    }

    /// The place in this process where those who want `key` wait for each other, in order.
    fn local_turn(&self, key: &[u8]) -> Arc<tokio::sync::Mutex<()>> {
        let mut local = self.0.local.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = local.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        local.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        local.insert(key.to_vec(), Arc::downgrade(&turn));
        turn
    }
}

fn timed_out(last: Option<Error>) -> Error {
    let error = Error::new(
        ErrorKind::TimedOut,
        "the lock was not free in the time allowed: wait longer, or find out who keeps it",
    );
    match last {
        Some(last) => error.with_holder(last.holder().cloned()).with_nodes(last.nodes().to_vec()),
        None => error,
    }
}
