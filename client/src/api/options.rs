//! Options for acquiring and keeping a lock.

use std::time::Duration;

use palisade_quorum::limits::{MAX_TTL_LIMIT_MS, NOTE_BYTES_MAX, WAIT_MAX_MS};

use crate::metrics::Class;
use crate::net::pace::Given;
use crate::run::checked::Checked;
use crate::values::holder_id;
use crate::{Error, ErrorKind};

/// Default length of a lease: long enough for two failed extensions, short enough to free a dead holder's lock soon.
const TTL_DEFAULT: Duration = Duration::from_secs(10);

/// Default limit for extending a lock in the background: a holder that hangs for longer loses it.
const MAX_HOLD_DEFAULT: Duration = Duration::from_secs(3_600);

/// Upper bound of all times in options: ten years, so that sums of times do not overflow.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Lower bound of the default time that a node has to answer: the ttl divided by this number, or this duration if that
/// is less. Nodes answer within a millisecond or two.
const NODE_TIME_LEAST: (u32, Duration) = (10, Duration::from_millis(50));

/// Upper bound of the default time that a node has to answer: the ttl divided by this number, or this duration if that
/// is less. A later answer is worth little.
const NODE_TIME_MOST: (u32, Duration) = (3, Duration::from_secs(1));

/// Maximum length of the metrics label `class` ([`Options::class`]), in bytes.
#[cfg(feature = "metrics")]
const CLASS_BYTES_MAX: usize = 64;

/// Options for acquiring and keeping a lock.
///
/// ```
/// use std::time::Duration;
/// use palisade_client::Options;
///
/// let options = Options::new().ttl(Duration::from_secs(30)).wait(Duration::from_secs(60)).note("nightly report");
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    note: Vec<u8>,
    holder: Option<String>,
    pub(crate) auto_extend: bool,
    /// The longest time to hold; `None`: [`MAX_HOLD_DEFAULT`] for a lock, no limit for a leader.
    pub(crate) max_hold: Option<Duration>,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) told_at_once: bool,
    #[cfg(feature = "metrics")]
    pub(crate) class: Option<std::sync::Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: TTL_DEFAULT,
            wait: None,
            note: vec![],
            holder: None,
            auto_extend: true,
            max_hold: None,
            node_timeout: None,
            told_at_once: true,
            #[cfg(feature = "metrics")]
            class: None,
        }
    }
}

impl Options {
    /// Returns the defaults: a lease of 10 s, extended for up to an hour, and no limit for waiting.
    ///
    /// ```
    /// # use palisade_client::Options;
    /// let options = Options::new();
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the length of the lease, 10 s by default: others wait this long after a holder dies. From 1 ms to the
    /// nodes' `lock.max-ttl` (60 s by default).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use palisade_client::Options;
    /// let options = Options::new().ttl(Duration::from_secs(30));
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long `lock` waits at most, up to a day. Without it, `lock` waits as long as it takes. `try_lock` never
    /// waits.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use palisade_client::Options;
    /// let options = Options::new().wait(Duration::from_secs(60));
    /// ```
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Sets a text for people, up to 1 KiB: who holds the lock, and what for. Clients that find the lock held see it.
    ///
    /// ```
    /// # use palisade_client::Options;
    /// let options = Options::new().note("invoice run on web-3");
    /// ```
    pub fn note(mut self, note: impl AsRef<[u8]>) -> Self {
        self.note = note.as_ref().to_vec();
        self
    }

    /// Sets the holder id, under which locks are held and waited for. Use one id for all locks of one flow of control,
    /// which waits for one lock at a time. `palisade deadlocks` uses it to find holders that wait for each other. From
    /// 1 to 64 letters, digits, `.`, `_`, `:`, `/`, `@`, `+` and `-`. It is appended to the note (` [holder=ID]`), but
    /// not to a leader's proclamation.
    ///
    /// ```
    /// # use palisade_client::Options;
    /// let options = Options::new().note("invoice run").holder("web-3/4711/worker-2");
    /// ```
    pub fn holder(mut self, id: impl Into<String>) -> Self {
        self.holder = Some(id.into());
        self
    }

    /// Returns the note, with the holder id if there is one.
    pub(crate) fn full_note(&self) -> Vec<u8> {
        match &self.holder {
            Some(id) => holder_id::noted(&self.note, id),
            None => self.note.clone(),
        }
    }

    /// Sets the label `class` of the lock's metrics (feature `metrics`): `orders` for all locks named `orders:…`. From
    /// 1 to 64 bytes; `default` unless set. Use few distinct words, since a recorder keeps the numbers of each for as
    /// long as it runs.
    ///
    /// ```
    /// # use palisade_client::Options;
    /// let options = Options::new().class("orders");
    /// ```
    #[cfg(feature = "metrics")]
    pub fn class(mut self, name: impl AsRef<str>) -> Self {
        self.class = Some(name.as_ref().into());
        self
    }

    /// Sets whether the lease is extended in the background while the guard lives, every third of the ttl. On by
    /// default. If off, the lock is lost when its first lease ends.
    ///
    /// ```
    /// # use palisade_client::Options;
    /// let options = Options::new().auto_extend(false);
    /// ```
    pub fn auto_extend(mut self, on: bool) -> Self {
        self.auto_extend = on;
        self
    }

    /// Limits how long the lease is extended in the background: one hour by default, no limit for a leader
    /// ([`Client::election`](crate::Client::election)). After that, a holder that hangs loses the lock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use palisade_client::Options;
    /// let options = Options::new().max_hold(Duration::from_secs(24 * 3_600));
    /// ```
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// Sets whether the nodes report at once that the lock was taken away (LOCK.BREAK, DEL, FLUSHALL). On by default:
    /// [`Guard::lost`](crate::Guard::lost) then returns within two round trips. If off, the loss shows at the next
    /// extension, up to a third of the ttl later.
    ///
    /// Applies to leases of 3 s and more; shorter ones are extended within a second anyway. Costs one `LOCK.CHECK` on
    /// each node after 100 ms, and one after each extension. The user needs `CLIENT TRACKING` and `CLIENT CACHING`; a
    /// node that refuses them reports a loss at the next extension.
    ///
    /// ```
    /// # use palisade_client::Options;
    /// let options = Options::new().told_at_once(false);
    /// ```
    pub fn told_at_once(mut self, on: bool) -> Self {
        self.told_at_once = on;
        self
    }

    /// Sets how long a node has to answer, connecting included. The default is twice its slowest answer of the last
    /// seconds. It is at least a tenth of the ttl or 50 ms, whichever is less. It is at most a third of the ttl or 1 s,
    /// whichever is less. By default, the first connection has 1 s. The time begins when the request is sent; queueing
    /// in this process does not count. A slower node does not count, and is not asked again before it has answered.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use palisade_client::Options;
    /// let options = Options::new().node_timeout(Duration::from_millis(500));
    /// ```
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// Removes the default limit on extending the lock, if no limit is set: a leader leads until it resigns or is lost.
    pub(crate) fn of_leader(mut self) -> Self {
        self.max_hold = self.max_hold.or(Some(FOR_EVER));
        self
    }

    /// Returns the value of the metrics label `class` for these locks.
    pub(crate) fn counted_as(&self) -> Class {
        #[cfg(feature = "metrics")]
        if let Some(name) = &self.class {
            return Class::named(std::sync::Arc::clone(name));
        }
        Class::default()
    }

    /// Checks the options, and returns them in the form that acquisitions use.
    pub(crate) fn checked(&self) -> Result<Checked, Error> {
        let bad = |text: String| Error::new(ErrorKind::BadArgument, text);
        let ttl_ms = u32::try_from(self.ttl.as_millis()).unwrap_or(u32::MAX);
        if !(1..=MAX_TTL_LIMIT_MS).contains(&ttl_ms) {
            return Err(bad(format!("ttl must be from 1 to {MAX_TTL_LIMIT_MS} ms, not {:?}", self.ttl)));
        }
        if self.wait.is_some_and(|wait| wait.as_millis() > WAIT_MAX_MS.into()) {
            return Err(bad(format!(
                "wait must be at most {WAIT_MAX_MS} ms; leave it out to wait as long as it takes"
            )));
        }
        if let Some(id) = self.holder.as_ref().filter(|id| !holder_id::is_one(id)) {
            return Err(bad(format!("holder must be 1 to 64 letters, digits, . _ : / @ + or -, not {id:?}")));
        }
        let note_bytes = self.full_note().len();
        if note_bytes > NOTE_BYTES_MAX {
            return Err(bad(format!("note must be at most {NOTE_BYTES_MAX} bytes long, not {note_bytes}")));
        }
        #[cfg(feature = "metrics")]
        if let Some(class) = self.class.as_ref().filter(|class| !(1..=CLASS_BYTES_MAX).contains(&class.len())) {
            return Err(bad(format!("class must be 1 to {CLASS_BYTES_MAX} bytes long, not {}", class.len())));
        }
        if self.node_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(bad("node_timeout must not be zero".to_owned()));
        }
        let of_ttl = |(part, longest): (u32, Duration)| (self.ttl / part).min(longest);
        let given = match self.node_timeout {
            Some(timeout) => Given::Exactly(timeout.min(FOR_EVER)),
            None => Given::Within { least: of_ttl(NODE_TIME_LEAST), most: of_ttl(NODE_TIME_MOST) },
        };
        // A node may take longer to answer an extension. No caller waits for it, and a missed answer may be the one
        // that shows a loss.
        let extending = match given {
            Given::Exactly(_) => given,
            Given::Within { most, .. } => Given::Within { least: (self.ttl / NODE_TIME_LEAST.0).min(most), most },
        };
        Ok(Checked {
            ttl_ms,
            given,
            extending,
            max_hold: self.max_hold.unwrap_or(MAX_HOLD_DEFAULT).min(FOR_EVER),
            told_at_once: self.told_at_once,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock is extended for an hour at most by default, a leader without a limit.
    #[test]
    fn a_leader_leads_without_a_limit() {
        let longest = |options: Options| options.checked().unwrap().max_hold;
        let minute = Duration::from_secs(60);
        assert_eq!(longest(Options::new()), MAX_HOLD_DEFAULT);
        assert_eq!(longest(Options::new().of_leader()), FOR_EVER);
        assert_eq!(longest(Options::new().max_hold(minute).of_leader()), minute);
    }

    #[test]
    fn bounds_are_named() {
        let ms = Duration::from_millis;
        let cases = [
            (Options::new().ttl(ms(0)), "ttl must be from 1 to 86400000 ms"),
            (Options::new().ttl(ms(86_400_001)), "ttl must be from 1 to 86400000 ms"),
            (Options::new().wait(ms(86_400_001)), "wait must be at most 86400000 ms"),
            (Options::new().note([0; 1_025]), "note must be at most 1024 bytes long, not 1025"),
            (Options::new().note([0; 1_015]).holder("a"), "note must be at most 1024 bytes long, not 1026"),
            (Options::new().holder("a b"), "holder must be 1 to 64 letters, digits, . _ : / @ + or -, not \"a b\""),
            (Options::new().node_timeout(ms(0)), "node_timeout must not be zero"),
        ];
        for (options, expected) in cases {
            let error = options.checked().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument);
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        assert_eq!(Options::new().checked().unwrap().given, Given::Within { least: ms(50), most: ms(1_000) });
        assert_eq!(
            Options::new().ttl(ms(300)).checked().unwrap().given,
            Given::Within { least: ms(30), most: ms(100) }
        );
        assert_eq!(Options::new().node_timeout(ms(7)).checked().unwrap().given, Given::Exactly(ms(7)));
    }
}
