//! What can go wrong, for programs ([`ErrorKind`]) and for people (the message).

use std::fmt;
use std::time::Duration;

use palisade_quorum::Printable;

use crate::values::failure::Why;
use crate::values::shown_key::ShownKey;

/// Why there is no lock, or no lock any more.
///
/// Its message says what to do. Match on [`Error::kind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    /// The lock that it is about.
    key: Option<Box<[u8]>>,
    text: String,
    nodes: Vec<NodeError>,
    holder: Option<Holder>,
    retry_after: Option<Duration>,
    /// It does not pass by itself.
    is_lasting: bool,
    /// The time was over before the nodes had answered.
    is_cut_short: bool,
    /// Of a wait that is over: what it waited for in the end.
    in_the_way: Option<ErrorKind>,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else holds the lock: [`Error::holder`] tells who.
    Contended,
    /// It was waited for as long as was allowed.
    TimedOut,
    /// Too few nodes can be asked: [`Error::nodes`] tells why, node by node.
    NoQuorum,
    /// Too few nodes grant, since they may have forgotten grants: [`Error::retry_after`] tells for how long.
    Guarded,
    /// The nodes granted it, but so late that nothing of the lease is left to rely on.
    Expired,
    /// This owner holds it already: a session, or an owner whose name the caller chose.
    Owned,
    /// It was held and is not any more.
    Lost,
    /// An argument is out of its bounds.
    BadArgument,
    /// The addresses are wrong, or what is there is not a set of lock nodes.
    Configuration,
    /// The nodes do not let the user of this client do that.
    NotAllowed,
    /// Another program changes the set of nodes too, and wants others.
    Overtaken,
    /// The client was closed.
    Closed,
    /// The client was closed, and some of its locks are not free: guards still hold them, or too few nodes answered.
    NotGivenBack,
}

/// What is the matter with one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeError {
    /// Its address, without passwords.
    pub node: String,
    /// What it said, or why it did not.
    pub why: Why,
}

/// Who holds a lock, as one of the nodes tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// What the nodes call it.
    pub(crate) owner: Vec<u8>,
    /// Its note; empty if it left none.
    pub note: String,
    /// How long it has held the lock.
    pub held_for: Duration,
    /// How long its lease still runs, if it is not extended.
    pub lease_left: Duration,
    /// The token it has on the node that told. On another node it may be a little different: the holder's fencing token is what
    /// a majority has at least.
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
            in_the_way: None,
        }))
    }

    /// Of a lock that was held.
    pub(crate) fn lost() -> Self {
        Self::new(ErrorKind::Lost, "the lock is lost: stop what it protects")
    }

    /// A release was sent, and nobody can tell whether the owner held the lock until then; `nodes` did not answer.
    pub(crate) fn release_sent(nodes: Vec<NodeError>) -> Self {
        let text = "the release was sent, and too few nodes tell whether this owner held the lock until then: stop relying on it. Nodes that did \
                    not answer are told as soon as they do, or it ends there with its lease";
        Self::new(ErrorKind::NoQuorum, text).with_nodes(nodes)
    }

    /// Adds that nothing was released: too little is known of the lock to ask for that.
    pub(crate) fn before_release(mut self) -> Self {
        self.0.text += ", so nothing was released: ask again, or let it end with its lease";
        self
    }

    /// Of an address, the one with this number in the list. Not the address itself: there may be a password in it.
    pub(crate) fn address(number: usize, why: &str) -> Self {
        Self::new(ErrorKind::Configuration, format!("address number {number} is no use: {why}"))
    }

    /// Of a client that was closed.
    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "this client was closed: make another one")
    }

    /// It does not pass by itself: somebody has to do something about it.
    pub(crate) fn lasting(mut self, is_lasting: bool) -> Self {
        self.0.is_lasting = is_lasting;
        self
    }

    /// The time was over before the nodes had answered: it says nothing about them, nor about the lock.
    pub(crate) fn cut_short(mut self) -> Self {
        self.0.is_cut_short = true;
        self
    }

    pub(crate) fn is_cut_short(&self) -> bool {
        self.0.is_cut_short
    }

    /// The wait is over; this stood in its way.
    pub(crate) fn waited_for(mut self, what: ErrorKind) -> Self {
        self.0.in_the_way = Some(what);
        self
    }

    /// Names the lock that it is about in its message.
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

    /// What kind of error it is.
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

    /// What stood in the way when the wait was over (of [`ErrorKind::TimedOut`]): [`Contended`](ErrorKind::Contended) if it was others who wanted
    /// the lock; [`NoQuorum`](ErrorKind::NoQuorum), [`Guarded`](ErrorKind::Guarded) or [`Expired`](ErrorKind::Expired) if it was the nodes, and nobody
    /// can say whether the lock is free.
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

    /// Returns true if somebody has to act: a wrong password, a missing permission, a certificate that is not trusted, a server without the module, an argument
    /// that nodes refuse. Anything else passes by itself, so it helps to wait or to ask again: nodes that are down, load their data or
    /// are guarded, and a lock that somebody else holds.
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
            // Which of them it is depends on what the nodes said.
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

    /// What happened, without the reasons of the nodes and without the holder: those are told apart.
    #[doc(hidden)]
    pub fn summary(&self) -> &str {
        &self.0.text
    }

    /// The nodes that refused or failed, each with its reason.
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

    /// Who holds the lock, where a node could be asked.
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

    /// After how long it is worth to try again.
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
    /// Without what a terminal would obey: nodes, and what is in their place, say what they want.
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

    /// A server, or a note, may say anything, and errors are written to terminals and logs.
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
