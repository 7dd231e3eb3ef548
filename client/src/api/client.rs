//! The client, which acquires locks.

use std::sync::{Arc, Mutex, PoisonError};

use palisade_quorum::Wanted;
use tracing::field::Empty;
use tracing::instrument::WithSubscriber;
use tracing::{Instrument, debug_span};

use crate::net::nodes::Nodes;
use crate::run::kept::SessionLife;
use crate::run::locking::{self, Sought, Turns};
use crate::run::members;
use crate::run::orders;
use crate::run::renewer::Auto;
use crate::run::thread::Thread;
use crate::run::watch::{self, Change};
use crate::values::clock;
use crate::values::shown_key::ShownKey;
use crate::{Changes, Error, ErrorKind, Guard, Holder, Options};

/// Locks on a node, or on a quorum of several independent ones.
///
/// Cheap to clone; all clones share their connections. A process needs only one.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
    /// The options of all locks of the client.
    options: Arc<Options>,
}

#[derive(Debug)]
struct Inner {
    /// The nodes of the version of the set that the client works with. It is an earlier version while the client's
    /// thread has not noticed a change yet.
    nodes: Mutex<Arc<Nodes>>,
    turns: Arc<Turns>,
    /// The client's thread; `None` before the first use and after the client was closed.
    thread: Mutex<Option<Arc<Thread>>>,
}

impl Client {
    /// Creates a client of these nodes, with these default options.
    pub(crate) fn of(nodes: Arc<Nodes>, options: Options) -> Self {
        let inner = Inner { nodes: Mutex::new(nodes), turns: Arc::default(), thread: Mutex::default() };
        Self { inner: Arc::new(inner), options: Arc::new(options) }
    }

    /// Returns a clone of this client whose locks use these options in place of its defaults.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use palisade_client::{Client, Error, Options};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let patient = locks.with(&Options::new().wait(Duration::from_secs(60)).note("invoice run on web-3"));
    /// let guard = patient.lock("orders:42").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with(&self, options: &Options) -> Self {
        Self { inner: Arc::clone(&self.inner), options: Arc::new(options.clone()) }
    }

    /// Connects to a majority of the nodes, for up to a second. Optional, but reports a wrong address early.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// if let Err(error) = locks.connect().await {
    ///     eprintln!("{error}"); // each node that cannot be reached, and why
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes can be reached, or too few can serve as nodes; each with its reason.
    pub async fn connect(&self) -> Result<(), Error> {
        let (nodes, given) = (self.nodes(), self.options.checked()?.given);
        let connect = async move { nodes.on_present(given, |nodes| async move { nodes.connected().await }).await };
        self.thread()?.run(connect).await?
    }

    /// Acquires the lock if it is free now. The lease is extended in the background while the guard lives, unless
    /// [`Options::auto_extend`] is off.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// use palisade_client::ErrorKind;
    ///
    /// match locks.try_lock("report").await {
    ///     Ok(guard) => println!("it is ours, with token {}", guard.token()),
    ///     Err(error) if error.kind() == ErrorKind::Contended => println!("not now: {error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Contended` with the holder; also if several clients asked at the same moment and none got a majority.
    /// `Guarded`, `NoQuorum`, `Expired`.
    pub async fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.take(key.as_ref(), Wanted::Exclusive, false, None).await
    }

    /// Acquires the lock, waiting for it in turn. The lease is extended in the background while the guard lives, unless
    /// [`Options::auto_extend`] is off.
    ///
    /// While nodes hang, load their data or are down, the call keeps trying until the limit of [`Options::wait`];
    /// without a limit, until it has the lock. A lasting error ([`Error::is_lasting`]), such as a wrong password or a
    /// server without the module, is returned at once.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// println!("it is ours, with token {}", guard.token());
    /// guard.release().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `TimedOut` after the limit of [`Options::wait`], with the last obstacle seen: the holder, or each node's
    /// failure. `NoQuorum` if too few nodes can answer until somebody repairs them. Without a limit, `Expired` if ten
    /// grants in a row come too late to rely on.
    pub async fn lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.take(key.as_ref(), Wanted::Exclusive, true, None).await
    }

    /// Runs `body` under the lock, and releases it. If the lock is lost meanwhile, `body` is cancelled at its next
    /// await, or runs to its end if there is none. Either way the call returns an error, which says which of the two
    /// happened. Check [`Guard::is_valid`] in `body` before each step that must not happen without the lock.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let total = locks
    ///     .with_lock("orders:42", async |guard| {
    ///         println!("charged with token {}", guard.token());
    ///         3
    ///     })
    ///     .await?;
    /// assert_eq!(total, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::lock`], and `Lost`.
    pub async fn with_lock<T>(&self, key: impl AsRef<[u8]>, body: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.lock(key).await?;
        let value = tokio::select! {
            biased;
            _ = guard.lost() => None,
            value = body(&guard) => Some(value),
        };
        match value {
            Some(value) if !guard.is_lost() => {
                guard.release().await;
                Ok(value)
            }
            Some(_) => Err(guard.lost_meanwhile(RAN_ON)),
            None => Err(guard.lost_meanwhile("the lock was lost, and what ran under it was cancelled")),
        }
    }

    /// Reports each change of the holder from now on, beginning with the present state. Acquires nothing, and does not
    /// join a queue. Each node is watched on a connection of its own (LOCK.WATCH); nothing is polled.
    ///
    /// `Some`: a majority of the nodes names this owner as holder (of several holders, the first). It is reported
    /// again when the holder's note is replaced, and when its token rises. (Nodes may grant one lock under different
    /// tokens until its owner has raised them to the same one.) `None`: a majority reports the lock as free. While the
    /// nodes disagree, or too few answer, nothing is reported.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let mut changes = locks.watch("orders:42")?;
    /// loop {
    ///     match changes.changed().await? {
    ///         Some(holder) => println!("held, token {}: {}", holder.token, holder.note),
    ///         None => println!("free"),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Closed`.
    pub fn watch(&self, key: impl AsRef<[u8]>) -> Result<Changes<Option<Holder>>, Error> {
        let (nodes, key, given) = (self.nodes(), Arc::from(key.as_ref()), Options::default().checked()?.given);
        let watch = |tell| watch::watch(Arc::clone(&nodes), key, given, tell, Change::holder);
        Ok(Changes::begin(self.thread()?, &nodes, watch))
    }

    /// Runs `future` to its end on the client's own thread, which also serves its connections. This suits a program
    /// that only acquires locks on behalf of others, because its requests then need no change of threads. A long
    /// computation there keeps locks from being extended.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # fn run(locks: Client) -> Result<(), Error> {
    /// let own = locks.clone();
    /// locks.spawn(async move {
    ///     let _guard = own.lock("orders:42").await;
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Closed`.
    #[doc(hidden)]
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        let thread = self.thread()?;
        // `future` may run on after the client was closed or dropped.
        let own = Arc::clone(&thread);
        thread.spawn(async move {
            let _thread = own;
            future.await;
        });
        Ok(())
    }

    /// Returns the queues in which this client's requests for the same key wait for each other. All clones share them.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.inner.turns
    }

    /// Returns the nodes of the client's current version of the set.
    pub(crate) fn nodes(&self) -> Arc<Nodes> {
        let mut nodes = self.inner.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.is_superseded() {
            *nodes = nodes.latest();
        }
        Arc::clone(&nodes)
    }

    /// Replaces the set of nodes with these, while locks are held and acquired. All other clients follow by themselves,
    /// and no lock is lost. Addresses are as in [`Builder::node`](crate::Builder::node), each of one server.
    ///
    /// Each added or removed node takes one step. Between two steps the nodes wait until earlier leases have ended, for
    /// as long as the longest lease that they allow (`lock.max-ttl`). A node that is added must answer within 10 s. It
    /// is added once its guard has ended, however long that takes. Drop the future to stop waiting, and call again to
    /// continue. A node that is removed may be dead. The first change stores the set on the nodes. Before that the
    /// nodes know no set, so all clients must be configured with the same nodes.
    ///
    /// A later call continues where an earlier one, also of another client, stopped. Two concurrent calls that want
    /// the same set do no harm. If they want different sets, the one that the other outruns fails with `Overtaken`.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// // 10.0.0.3 is dead.
    /// locks.set_nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.4"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotAllowed`: the user lacks an operator's permissions. `Configuration`: an address is invalid, or its node
    /// cannot be a member; a cluster or a master behind Sentinels cannot be one either. `NoQuorum`: too few nodes
    /// agree, or an added node does not answer. `Overtaken`: another program changes the set to a different one.
    pub async fn set_nodes<A: Into<String>>(&self, addresses: impl IntoIterator<Item = A>) -> Result<(), Error> {
        let addresses: Vec<String> = addresses.into_iter().map(Into::into).collect();
        let nodes = self.nodes();
        self.thread()?.run(async move { members::set_nodes(&nodes, &addresses).await }).await?
    }

    /// Waits until all released and dropped guards and all cancelled acquisitions have released their locks, then
    /// closes the connections, unless guards still need them. Call it at the end of a program, where nothing is
    /// released in the background any longer.
    ///
    /// From this call on, neither this client nor its clones acquire locks. A lock that a guard still holds stays
    /// valid, is extended as before, and can be released.
    ///
    /// Takes at most 2 s. Nodes that do not answer are waited for until their connections are given up.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// drop(locks.lock("orders:42").await?);
    /// // The program is about to end: not before the lock is free for others.
    /// locks.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotGivenBack`: some locks stay locked until their leases end, because guards still hold them, or because too
    /// few nodes answered.
    pub async fn close(&self) -> Result<(), Error> {
        let nodes = self.nodes();
        nodes.close();
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Without a thread the client was never used, or was closed before.
        let Some(thread) = thread else { return Ok(()) };
        thread
            .run({
                let nodes = Arc::clone(&nodes);
                async move { nodes.settled().await }
            })
            .await?;
        let (held, (unpaid, errors)) = (nodes.held.count(), nodes.unpaid());
        let mut what = vec![];
        if held > 0 {
            what.push(format!("guards still hold {held} locks: release or drop them first"));
        }
        if unpaid > 0 {
            what.push(format!("{unpaid} locks could not be given back: they end with their leases"));
        }
        if what.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotGivenBack, what.join("; ")).with_nodes(errors))
    }

    /// Returns the options of the client's locks.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the thread; the first use starts it.
    pub(crate) fn thread(&self) -> Result<Arc<Thread>, Error> {
        let nodes = self.nodes();
        if nodes.is_closed() {
            return Err(Error::closed());
        }
        let mut thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*thread {
            return Ok(Arc::clone(thread));
        }
        let started = Arc::new(Thread::start(&nodes)?);
        *thread = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Acquires a lock in mode `wanted`, waiting for it if `waits`, and extends it from then on. If `session` is given,
    /// the lock is one of its locks.
    pub(crate) async fn take(
        &self,
        key: &[u8],
        wanted: Wanted,
        waits: bool,
        session: Option<&Arc<SessionLife>>,
    ) -> Result<Guard, Error> {
        let (options, checked) = (&*self.options, self.options.checked()?);
        let (nodes, turns) = (self.nodes(), Arc::clone(&self.inner.turns));
        let ticket = nodes.clock.ticket();
        let span = match waits {
            true => debug_span!("lock", key = %ShownKey(key), ?wanted, nodes = nodes.len(), token = Empty),
            false => debug_span!("try_lock", key = %ShownKey(key), ?wanted, nodes = nodes.len(), token = Empty),
        };
        let (note, class) = (options.full_note(), options.counted_as());
        let sought = Sought { key: key.into(), owner: None, request: 0, note, wanted, class, ticket };
        let wait = options.wait;
        let thread = self.thread()?;
        let auto = options.auto_extend.then_some(checked.max_hold);
        let session = session.cloned();
        // Boxed before it is wrapped: it is large, and each wrapper would move it.
        let taken = Box::pin(async move {
            let _under_way = nodes.under_way.begin();
            let taking = async {
                match waits {
                    true => locking::lock(&nodes, &turns, &sought, wait, checked).await,
                    false => locking::try_lock(&nodes, &sought, checked).await,
                }
            };
            let taken = tokio::select! {
                biased;
                () = nodes.closed_at_home() => return Err(Error::closed()),
                taken = taking => taken?,
            };
            let auto = auto.map(|max_hold| Auto { until: clock::after(max_hold), ttl_ms: checked.ttl_ms });
            let nodes = Arc::clone(&taken.nodes);
            let (shared, orders, lease) = orders::start(taken, checked, auto, session);
            Ok((nodes, shared, orders, lease))
        });
        let (nodes, shared, orders, lease) = thread
            .begin(taken.instrument(span.clone()).with_current_subscriber())
            .await?
            .map_err(|error| error.of_key(key))?;
        span.record("token", shared.token());
        Ok(Guard::new(thread, &nodes, lease, shared, orders, checked))
    }
}

/// The error text for a lock that was lost before `body` ended, if `body` was not cancelled and ran to its end.
pub(crate) const RAN_ON: &str =
    "the lock was lost while what ran under it ran on to its end: some of that may have been done without the lock";
