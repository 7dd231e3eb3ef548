//! The client: who asks for locks.

use std::sync::{Arc, Mutex, PoisonError};

use palisade_quorum::Wanted;
use tracing::field::Empty;
use tracing::instrument::WithSubscriber;
use tracing::{Instrument, debug_span};

use crate::net::nodes::Nodes;
use crate::run::kept::Kept;
use crate::run::locking::{self, Sought, Turns};
use crate::run::members;
use crate::run::renewer::{self, Auto};
use crate::run::thread::Thread;
use crate::run::watch;
use crate::values::clock;
use crate::values::shown_key::ShownKey;
use crate::{Changes, Error, ErrorKind, Guard, Holder, Options};

/// Locks on a node, or on a quorum of several independent ones.
///
/// Cheap to clone; all clones share their connections. A process needs one.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
    /// The options that its locks are taken with.
    options: Arc<Options>,
}

#[derive(Debug)]
struct Inner {
    /// Of the version of the set that it works with, or of one before.
    nodes: Mutex<Arc<Nodes>>,
    turns: Arc<Turns>,
    /// None before the first use, nor when the client was closed.
    thread: Mutex<Option<Arc<Thread>>>,
}

impl Client {
    /// A client of these nodes, which takes locks with these options.
    pub(crate) fn of(nodes: Arc<Nodes>, options: Options) -> Self {
        let inner = Inner { nodes: Mutex::new(nodes), turns: Arc::default(), thread: Mutex::default() };
        Self { inner: Arc::new(inner), options: Arc::new(options) }
    }

    /// The same client, whose locks are taken with these options in place of its defaults.
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

    /// Connects to a majority of the nodes, for up to a second. Not needed, but a wrong address shows here already.
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
    /// `NoQuorum`: too few nodes can be reached, or be nodes; each with its reason.
    pub async fn connect(&self) -> Result<(), Error> {
        let (nodes, given) = (self.nodes(), self.options.checked()?.given);
        let connect = async move { nodes.on_present(given, |nodes| async move { nodes.connected().await }).await };
        self.thread()?.run(connect).await?
    }

    /// Takes the lock if it is free, now, and extends it in the background while the guard lives, unless [`Options::auto_extend`]
    /// says no.
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
    /// `Contended` with who holds it; also where several clients asked at the same moment and none got a majority. `Guarded`,
    /// `NoQuorum`, `Expired`.
    pub async fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.take(key.as_ref(), Wanted::Exclusive, false, None).await
    }

    /// Takes the lock, waiting for it in turn, and extends it in the background while the guard lives, unless
    /// [`Options::auto_extend`] says no.
    ///
    /// It goes on through nodes that hang, load their data or are down, until the limit of [`Options::wait`]; without a limit,
    /// until the lock can be had. What does not pass by itself ([`Error::is_lasting`]) is told at once: a wrong password, a server without
    /// the module.
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
    /// `TimedOut` after the limit of [`Options::wait`], with what stood in the way as it was seen last: the holder, or the nodes and
    /// what is the matter with each. `NoQuorum` if too few nodes can ever be asked as they are. Without a limit, `Expired` if they
    /// grant too late again and again.
    pub async fn lock(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.take(key.as_ref(), Wanted::Exclusive, true, None).await
    }

    /// Runs `body` under the lock, and gives it back. If the lock is lost meanwhile, `body` is cancelled at its next await, or
    /// runs on to its end if there is none, and the answer is an error, which says which of them it was; check [`Guard::is_valid`] in it before what must not happen without the lock.
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
    /// As [`Client::lock`], and `Lost`.
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

    /// Tells each change of who holds the lock, from now on: how it is now first. Takes nothing, and stands in no queue. Each node is watched on
    /// a connection of its own (LOCK.WATCH), and nobody polls.
    ///
    /// `Some`: a majority of the nodes says that this owner holds it; of several holders the first. Told again when its note is replaced, and
    /// when its token is raised: nodes give one grant different tokens, until its owner has brought them together.
    /// `None`: a majority says that it is free. As long as the nodes do not agree, or too few answer, nothing is told.
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
        Ok(Changes::begin(self.thread()?, &nodes, |tell| watch::watch(Arc::clone(&nodes), key, given, tell)))
    }

    /// Runs `future` on the client's own thread, beside its connections, to its end. For a program that does nothing but ask for locks on behalf of others:
    /// its requests need not pass from one thread to another and back. What computes for long there keeps locks from being extended.
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
        // It goes on when the client was closed or dropped.
        let own = Arc::clone(&thread);
        thread.spawn(async move {
            let _thread = own;
            future.await;
        });
        Ok(())
    }

    /// What all of its locks share.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.inner.turns
    }

    /// The nodes of the version of the set that it works with now.
    pub(crate) fn nodes(&self) -> Arc<Nodes> {
        let mut nodes = self.inner.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.is_superseded() {
            *nodes = nodes.latest();
        }
        Arc::clone(&nodes)
    }

    /// Makes these nodes the set, in place of the present ones, while locks are held and taken: by this client and by all others, which follow
    /// by themselves. No lock is lost. Addresses are as in [`Builder::node`](crate::Builder::node), each of one server.
    ///
    /// It takes a step for each node that is added or removed, and the nodes wait between two steps until leases of before have ended: the
    /// longest that they allow (`lock.max-ttl`). A node that is added must answer, and is added when it is not guarded any more, however long its
    /// guard is armed for: end the future to wait no longer, and call again to go on. One that is removed may be dead. The set is written down on the nodes with
    /// the first change: until then they know of none, and all clients must have been given the same nodes.
    ///
    /// Called again it goes on where it, or another one, stopped. Two at once do not disturb each other, but the one that wants something else
    /// than the other goes on until it has it.
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
    /// `NotAllowed`: it takes the permissions of an operator. `Configuration`: an address is none, or its node cannot be a member; nor can a cluster
    /// or a master behind Sentinel. `NoQuorum`: too few nodes agree, or one that is to be added does not answer.
    pub async fn set_nodes<A: Into<String>>(&self, addresses: impl IntoIterator<Item = A>) -> Result<(), Error> {
        let addresses: Vec<String> = addresses.into_iter().map(Into::into).collect();
        let nodes = self.nodes();
        self.thread()?.run(async move { members::set_nodes(&nodes, &addresses).await }).await?
    }

    /// Waits until what was given back has been: by guards that were released or dropped, and by those who gave up taking a
    /// lock; then the connections are closed. For the end of a program: what it leaves undone, nobody does.
    ///
    /// From here on nobody gets a lock from this client or its clones. A lock that a guard still holds is its own affair: it stays
    /// valid, is extended as before, and can be released.
    ///
    /// Nodes that do not answer are waited for until their connection is given up; all of it takes 2 s at most.
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
    /// `NotGivenBack`: locks that others have to wait for, since guards still hold them, or since too few nodes answered: there they
    /// end with their leases.
    pub async fn close(&self) -> Result<(), Error> {
        let nodes = self.nodes();
        nodes.close();
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Never used, or closed before.
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

    /// Returns what its locks are taken with.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The thread; started at the first use.
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

    /// Takes a lock in this mode, waiting for it if it `waits`, and keeps it; as one of a session, if it is one.
    pub(crate) async fn take(
        &self,
        key: &[u8],
        wanted: Wanted,
        waits: bool,
        session: Option<&Arc<Kept>>,
    ) -> Result<Guard, Error> {
        let (options, checked) = (&*self.options, self.options.checked()?);
        let (nodes, turns) = (self.nodes(), Arc::clone(&self.inner.turns));
        let ticket = nodes.clock.ticket();
        let span = match waits {
            true => debug_span!("lock", key = %ShownKey(key), ?wanted, nodes = nodes.len(), token = Empty),
            false => debug_span!("try_lock", key = %ShownKey(key), ?wanted, nodes = nodes.len(), token = Empty),
        };
        let (note, class) = (options.full_note(), options.counted_as());
        let sought = Sought { key: key.to_vec(), owner: None, request: 0, note, wanted, class, ticket };
        let wait = options.wait;
        let thread = self.thread()?;
        let auto = options.auto_extend.then_some(checked.max_hold);
        let session = session.cloned();
        let taken = async move {
            let _under_way = nodes.under_way.begin();
            let taking = async {
                match waits {
                    true => locking::lock(&nodes, &turns, &sought, wait, checked).await,
                    false => locking::try_lock(&nodes, &sought, checked).await,
                }
            };
            let taken = tokio::select! {
                biased;
                () = nodes.closed() => return Err(Error::closed()),
                taken = taking => taken?,
            };
            let auto = auto.map(|max_hold| Auto { until: clock::after(max_hold), ttl_ms: checked.ttl_ms });
            let nodes = Arc::clone(&taken.nodes);
            let (shared, orders, lease) = renewer::start(taken, checked, auto, session);
            Ok((nodes, shared, orders, lease))
        };
        let (nodes, shared, orders, lease) = thread
            .run(taken.instrument(span.clone()).with_current_subscriber())
            .await?
            .map_err(|error| error.of_key(key))?;
        span.record("token", shared.token());
        Ok(Guard::new(thread, &nodes, lease, shared, orders, checked))
    }
}

/// What ran under a lock cannot be called back.
pub(crate) const RAN_ON: &str =
    "the lock was lost while what ran under it ran on to its end: some of that may have been done without the lock";
