//! Names, labels and units of the metrics. Only this module reports to the recorder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use metrics::{
    Gauge, Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use palisade_quorum::{BootTime, Wanted};

use crate::values::clock;
use crate::{Error, ErrorKind, Loss, Why};

const ACQUISITIONS: &str = "palisade_client_acquisitions_total";
const WAIT: &str = "palisade_client_wait_seconds";
const ROUNDS: &str = "palisade_client_acquire_rounds";
const HELD: &str = "palisade_client_held";
const HOLD: &str = "palisade_client_hold_seconds";
const EXTENSIONS: &str = "palisade_client_extensions_total";
const LOSSES: &str = "palisade_client_losses_total";
const NODE_UP: &str = "palisade_client_node_up";
const NODE_REQUESTS: &str = "palisade_client_node_requests_total";
const NODE_RESPONSE: &str = "palisade_client_node_response_seconds";

/// The label `class` of locks whose options set none.
const CLASS_DEFAULT: &str = "default";

/// Describes each metric and its unit. A recorder that is installed later does not receive the descriptions.
pub fn describe() {
    describe_counter!(ACQUISITIONS, Unit::Count, "Acquisitions, by how they ended.");
    describe_histogram!(WAIT, Unit::Seconds, "From the call to its end, by how it ended.");
    describe_histogram!(ROUNDS, Unit::Count, "Rounds to the nodes that a granted acquisition took.");
    describe_gauge!(HELD, Unit::Count, "Locks that are held now.");
    describe_histogram!(HOLD, Unit::Seconds, "From the grant to the release or the loss.");
    describe_counter!(EXTENSIONS, Unit::Count, "Rounds that extend a held lock, by what came of them.");
    describe_counter!(LOSSES, Unit::Count, "Locks that were lost while a guard held them, by reason.");
    describe_gauge!(NODE_UP, Unit::Count, "1: the node is connected and answers in its time.");
    describe_counter!(NODE_REQUESTS, Unit::Count, "Requests to a node, by what came of them.");
    describe_histogram!(NODE_RESPONSE, Unit::Seconds, "How long a node took to answer a request that does not wait.");
}

/// The label `class` of an acquisition's metrics, and the number of rounds that the acquisition has taken so far.
#[derive(Clone, Debug)]
pub struct Class {
    name: SharedString,
    rounds: Arc<AtomicU32>,
}

impl Default for Class {
    fn default() -> Self {
        Self { name: SharedString::const_str(CLASS_DEFAULT), rounds: Arc::default() }
    }
}

impl Class {
    pub fn named(name: Arc<str>) -> Self {
        Self { name: SharedString::from_shared(name), rounds: Arc::default() }
    }

    /// Counts another round of requests to the nodes.
    pub fn round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    fn labels(&self, wanted: Wanted) -> Vec<Label> {
        let mode = match wanted {
            Wanted::Exclusive => "exclusive",
            Wanted::Shared => "shared",
            Wanted::Permit { .. } => "permit",
        };
        vec![Label::new("class", self.name.clone()), Label::from_static_parts("mode", mode)]
    }
}

/// An acquisition in progress, whose outcome is counted.
pub struct Acquiring {
    class: Class,
    wanted: Wanted,
    began: BootTime,
    is_told: bool,
}

impl Acquiring {
    pub fn begin(class: &Class, wanted: Wanted) -> Self {
        Self { class: class.clone(), wanted, began: clock::boot_now(), is_told: false }
    }

    pub fn ended<T>(mut self, came: &Result<T, Error>) {
        self.count_outcome(came.as_ref().map_or_else(|error| outcome(error.kind()), |_| "granted"));
        if came.is_ok() {
            let rounds = self.class.rounds.load(Ordering::Relaxed);
            histogram!(ROUNDS, self.class.labels(self.wanted)).record(rounds);
        }
    }

    fn count_outcome(&mut self, outcome: &'static str) {
        self.is_told = true;
        let mut labels = self.class.labels(self.wanted);
        labels.push(Label::from_static_parts("outcome", outcome));
        counter!(ACQUISITIONS, labels.clone()).increment(1);
        histogram!(WAIT, labels).record(clock::since(self.began));
    }
}

impl Drop for Acquiring {
    /// Counts a cancelled acquisition: its caller gave up, or the client was closed.
    fn drop(&mut self) {
        if !self.is_told {
            self.count_outcome("cancelled");
        }
    }
}

fn outcome(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Contended => "contended",
        ErrorKind::TimedOut => "timed_out",
        ErrorKind::NoQuorum => "no_quorum",
        ErrorKind::Guarded => "guarded",
        ErrorKind::Expired => "expired",
        ErrorKind::Owned => "owned",
        ErrorKind::Lost => "lost",
        ErrorKind::BadArgument => "bad_argument",
        // The last two occur only during a change of the set of nodes.
        ErrorKind::Configuration | ErrorKind::NotAllowed | ErrorKind::Overtaken => "configuration",
        ErrorKind::Closed | ErrorKind::NotGivenBack => "cancelled",
    }
}

/// A held lock, whose end is counted.
pub struct Holding {
    class: Class,
    /// The mode at acquisition, also after a downgrade.
    wanted: Wanted,
    began: BootTime,
    /// The gauge that counts this lock while it is held. The end is counted in the same one, even if another recorder
    /// has been installed meanwhile.
    held: Gauge,
    has_ended: bool,
}

impl Holding {
    pub fn begin(class: &Class, wanted: Wanted) -> Self {
        let class = class.clone();
        let held = gauge!(HELD, class.labels(wanted));
        held.increment(1);
        Self { class, wanted, began: clock::boot_now(), held, has_ended: false }
    }

    /// Records the first end of the lock; later ones are ignored.
    pub fn end(&mut self, loss: &Loss) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        self.held.decrement(1);
        let mut labels = self.class.labels(self.wanted);
        histogram!(HOLD, labels.clone()).record(clock::since(self.began));
        if let Some(reason) = reason(loss) {
            labels.push(Label::from_static_parts("reason", reason));
            counter!(LOSSES, labels).increment(1);
        }
    }
}

/// Returns the label of a loss; `None` for a release.
fn reason(loss: &Loss) -> Option<&'static str> {
    Some(match loss {
        Loss::Released => return None,
        Loss::TakenAway(_) => "taken_away",
        Loss::TooFewNodes(_) => "too_few_nodes",
        Loss::MaxHold => "max_hold",
        Loss::NotExtended => "not_extended",
        Loss::Asleep => "asleep",
        Loss::Closed => "closed",
    })
}

/// Counts a finished round of extension of a held lock.
pub fn extended(class: &Class, wanted: Wanted, is_extended: bool) {
    let mut labels = class.labels(wanted);
    labels.push(Label::from_static_parts("outcome", if is_extended { "extended" } else { "failed" }));
    counter!(EXTENSIONS, labels).increment(1);
}

/// The metrics of one node: whether it answers, and its requests.
#[derive(Debug)]
pub struct NodeMeter(SharedString);

impl NodeMeter {
    /// Creates the metrics of the node with this address, which contains no password.
    pub fn new(name: &str) -> Self {
        Self(SharedString::from_shared(name.into()))
    }

    fn label(&self) -> Label {
        Label::new("node", self.0.clone())
    }

    pub fn up(&self, is_up: bool) {
        gauge!(NODE_UP, vec![self.label()]).set(if is_up { 1 } else { 0 });
    }

    /// Counts a finished request, or one that was not sent because the node is down.
    pub fn count_request<T>(&self, came: &Result<T, Why>) {
        let outcome = match came {
            Ok(_) => "answered",
            Err(why) if why.is_answer() => "refused",
            Err(Why::Silent) => "silent",
            Err(Why::Broken(_)) => "broken",
            Err(why) if why.is_lasting() => "unfit",
            Err(_) => "unreachable",
        };
        counter!(NODE_REQUESTS, vec![self.label(), Label::from_static_parts("outcome", outcome)]).increment(1);
    }

    pub fn responded(&self, took: Duration) {
        histogram!(NODE_RESPONSE, vec![self.label()]).record(took);
    }
}
