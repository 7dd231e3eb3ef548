//! Errors, for programs ([`ErrorKind`]) and for people (the message).

use std::fmt;
use std::time::Duration;

use palisade_quorum::Printable;

use crate::values::failure::Why;
use crate::values::shown_key::ShownKey;

/// The error of a call: the reason why a lock was not acquired, or was lost.
///
/// The message says what to do. Match on [`Error::kind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    /// The key of the lock that the error is about.
    key: Option<Box<[u8]>>,
    text: String,
    nodes: Vec<NodeError>,
    holder: Option<Holder>,
    retry_after: Option<Duration>,
    /// True if the cause is permanent, so that someone has to act.
    is_lasting: bool,
    /// True if the time was up before the nodes had answered.
    is_cut_short: bool,
    /// True if the request may have had its effect on a majority.
    is_perhaps_done: bool,
    /// The kind of the last refusal, if the caller's time to wait is over.
    in_the_way: Option<ErrorKind>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another owner holds the lock: [`Error::holder`] returns it.
    Contended,
    /// The lock was not granted within the limit of the wait.
    TimedOut,
    /// Too few nodes can answer: [`Error::nodes`] returns each node's reason.
    NoQuorum,
    /// Too few nodes grant locks, because they may have forgotten grants: [`Error::retry_after`] returns for how long.
    Guarded,
    /// The nodes granted the lock too late: nothing of the lease is left to rely on.
    Expired,
    /// This owner already holds the lock. An owner is a session, or a name that the caller chose.
    Owned,
    /// The lock was held, and no longer is.
    Lost,
    /// An argument of the call is out of bounds.
    BadArgument,
    /// The addresses are wrong, or do not belong to a set of lock nodes.
    Configuration,
    /// The nodes do not permit the request to this client's user.
    NotAllowed,
    /// Another program is changing the set of nodes to a different one.
    Overtaken,
    /// The client was closed.
    Closed,
    /// The client was closed, and some of its locks are not free: guards still hold them, or too few nodes answered.
    NotGivenBack,
}

/// The reason why one node did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeError {
    /// The node's address, without passwords.
    pub node: String,
    /// The node's error, or why it did not answer.
    pub why: Why,
}

/// The holder of a lock, as one of the nodes reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The name of the attempt on the nodes.
    pub(crate) owner: Vec<u8>,
    /// The holder's note; empty if there is none.
    pub note: String,
    /// Time since the holder acquired the lock.
    pub held_for: Duration,
    /// Remaining time of the lease, unless it is extended.
    pub lease_left: Duration,
    /// The grant's token on the node that reported it. Another node may have a slightly different one: the holder's
    /// fencing token is the largest that a majority has reached.
    pub token: u64,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            key: None,
            text: text.into(),
            nodes: vec![],
            holder: None,
            retry_after: None,
            is_lasting: false,
            is_cut_short: false,
            is_perhaps_done: false,
            in_the_way: None,
        }))
    }

    /// Adds that the request may have had its effect on a majority.
    pub(crate) fn perhaps_done(mut self) -> Self {
        self.0.is_perhaps_done = true;
        self
    }

    /// Returns whether the request may have had its effect on a majority. Then a repetition finds nothing left to do.
    pub(crate) fn is_perhaps_done(&self) -> bool {
        self.0.is_perhaps_done
    }

    /// Returns the error of a lock that was held and is lost.
    pub(crate) fn lost() -> Self {
        Self::new(ErrorKind::Lost, "the lock is lost: stop what it protects")
    }

    /// Returns the error of a release that was sent, if too few nodes tell whether the owner held the lock until then.
    /// `nodes` did not answer.
    pub(crate) fn release_sent(nodes: Vec<NodeError>) -> Self {
        let text = "the release was sent, and too few nodes tell whether this owner held the lock until then: stop relying on it. Nodes that did \
                    not answer are told as soon as they do, or it ends there with its lease";
        Self::new(ErrorKind::NoQuorum, text).with_nodes(nodes).perhaps_done()
    }

    /// Adds that nothing was released: too little is known of the lock to send a release.
    pub(crate) fn before_release(mut self) -> Self {
        self.0.text += ", so nothing was released: ask again, or let it end with its lease";
        self
    }

    /// Returns the error about address number `number` in the list. The address itself may contain a password, and is
    /// not shown.
    pub(crate) fn address(number: usize, why: &str) -> Self {
        Self::new(ErrorKind::Configuration, format!("address number {number} is no use: {why}"))
    }

    /// Returns the error of a closed client.
    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "this client was closed: make another one")
    }

    /// Sets whether the cause is permanent, so that someone has to act.
    pub(crate) fn lasting(mut self, is_lasting: bool) -> Self {
        self.0.is_lasting = is_lasting;
        self
    }

    /// Marks that the time was up before the nodes had answered, so that the error says nothing about them or the lock.
    pub(crate) fn cut_short(mut self) -> Self {
        self.0.is_cut_short = true;
        self
    }

    pub(crate) fn is_cut_short(&self) -> bool {
        self.0.is_cut_short
    }

    /// Records the kind of obstacle that remained when the caller's time to wait was over.
    pub(crate) fn waited_for(mut self, what: ErrorKind) -> Self {
        self.0.in_the_way = Some(what);
        self
    }

    /// Adds the name of the lock to the message.
    pub(crate) fn of_key(mut self, key: &[u8]) -> Self {
        self.0.key = Some(key.into());
        self
    }

    pub(crate) fn with_nodes(mut self, nodes: Vec<NodeError>) -> Self {
        self.0.nodes = nodes;
        self
    }

    pub(crate) fn with_holder(mut self, holder: Option<Holder>) -> Self {
        self.0.holder = holder;
        self
    }

    pub(crate) fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Returns the kind of the error.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// use palisade_client::ErrorKind;
    ///
    /// let error = locks.try_lock("report").await.unwrap_err();
    /// if error.kind() == ErrorKind::NoQuorum {
    ///     println!("{error}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the last obstacle of a wait that is over (for [`ErrorKind::TimedOut`]):
    /// [`Contended`](ErrorKind::Contended) if other owners wanted the lock. [`NoQuorum`](ErrorKind::NoQuorum),
    /// [`Guarded`](ErrorKind::Guarded) or [`Expired`](ErrorKind::Expired) mean that the nodes were the obstacle, and
    /// that the lock may be free.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error, Options};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// use palisade_client::ErrorKind;
    ///
    /// let options = Options::new().wait(std::time::Duration::from_secs(3));
    /// let error = locks.with(&options).lock("report").await.unwrap_err();
    /// if error.in_the_way() == Some(ErrorKind::NoQuorum) {
    ///     println!("too few nodes answer: {error}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_the_way(&self) -> Option<ErrorKind> {
        self.0.in_the_way
    }

    /// Returns whether the cause is permanent, so that someone has to act. Such causes are a wrong password, a missing
    /// permission, an untrusted certificate, a server without the module, an argument that nodes refuse. Anything else
    /// passes by itself, so waiting or retrying helps. Examples are nodes that are down, load their data or are
    /// guarded, and a lock that another owner holds.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let error = locks.connect().await.unwrap_err();
    /// if !error.is_lasting() {
    ///     println!("waits for nodes: {error}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_lasting(&self) -> bool {
        match self.0.kind {
            // For `NoQuorum` the value was derived from the nodes' errors when this error was created.
            ErrorKind::NoQuorum => self.0.is_lasting,
            ErrorKind::Owned
            | ErrorKind::BadArgument
            | ErrorKind::Configuration
            | ErrorKind::NotAllowed
            | ErrorKind::Closed => true,
            ErrorKind::Contended
            | ErrorKind::TimedOut
            | ErrorKind::Guarded
            | ErrorKind::Expired
            | ErrorKind::Lost
            | ErrorKind::Overtaken
            | ErrorKind::NotGivenBack => false,
        }
    }

    /// Returns the message without the nodes' reasons and the holder, which are available separately.
    #[doc(hidden)]
    pub fn summary(&self) -> &str {
        &self.0.text
    }

    /// Returns the nodes that refused or failed, each with its reason.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let error = locks.try_lock("report").await.unwrap_err();
    /// for node in error.nodes() {
    ///     println!("{}: {}", node.node, node.why);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn nodes(&self) -> &[NodeError] {
        &self.0.nodes
    }

    /// Returns the holder of the lock, if a node could be asked.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let error = locks.try_lock("report").await.unwrap_err();
    /// if let Some(holder) = error.holder() {
    ///     println!("held for {:?} by {}", holder.held_for, holder.note);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    /// Returns the time after which a retry makes sense, if guarded nodes are the obstacle.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let error = locks.try_lock("report").await.unwrap_err();
    /// if let Some(after) = error.retry_after() {
    ///     tokio::time::sleep(after).await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl fmt::Display for NodeError {
    /// Escapes everything that controls a terminal, since the texts of nodes, and of other servers at their addresses,
    /// are not trusted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Printable(&self.node), Printable(&self.why.to_string()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.0.key {
            write!(f, "{}: ", ShownKey(key))?;
        }
        write!(f, "{}", Printable(&self.0.text))?;
        if let Some(holder) = &self.0.holder {
            write!(f, "; it has been held for {:?}", holder.held_for)?;
            if !holder.note.is_empty() {
                write!(f, " by \"{}\"", Printable(&holder.note))?;
            }
        }
        for (n, node) in self.0.nodes.iter().enumerate() {
            write!(f, "{}{node}", if n == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a server or of a note is arbitrary, and errors are written to terminals and logs.
    #[test]
    fn nothing_that_a_terminal_obeys() {
        let evil = "a\u{1b}[2J\r\nb\u{202e}";
        let node = NodeError { node: evil.to_owned(), why: Why::Broken(evil.to_owned()) };
        let holder = Holder {
            owner: vec![],
            note: evil.to_owned(),
            held_for: Duration::from_secs(1),
            lease_left: Duration::from_secs(1),
            token: 7,
        };
        let error = Error::new(ErrorKind::Contended, evil).with_holder(Some(holder)).with_nodes(vec![node.clone()]);
        let error = error.of_key(b"orders\x1b");
        assert!(error.to_string().starts_with("orders\\u{1b}: a\\u{1b}"), "{error}");
        for text in [error.to_string(), crate::Loss::TakenAway(vec![node]).to_string()] {
            assert!(!text.contains(palisade_quorum::is_obeyed), "{text:?}");
            assert!(text.contains("a\\u{1b}[2J\\r\\nb\\u{202e}: a\\u{1b}[2J"), "{text:?}");
        }
    }
}
