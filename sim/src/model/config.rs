//! The bounds of a model.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::checker::Bounded;
use crate::rules::{Rule, Without};
use crate::server::Setup;

/// The length of a tick, in microseconds. A tick is far longer than the margin of a validity, so rounding the margin up
/// to a tick is enough.
pub const TICK_US: u64 = 100_000;

/// The largest number of keys of a model.
pub(super) const KEYS_MAX: u32 = 2;

/// The messages that may arrive late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LateMessages {
    /// Requests and answers may arrive late.
    Always,
    /// Only requests may: the caller has a node's answer as soon as the request arrives there.
    Never,
}

/// A client of a model, with its clock and the actions that it may take.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// The server behind each name in the client's list of nodes.
    pub names: Vec<usize>,
    /// The lead of the client's wall clock, in ticks.
    pub ahead_ticks: u32,
    /// The first tick at which the client may act.
    pub from_tick: u32,
    /// The number of locks that the client tries to take.
    pub acquisitions: u32,
    /// The number of rounds of extension for each lock.
    pub extensions: u32,
    /// True if the client may release the lock.
    pub releases: bool,
}

/// The bounds of a model.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of servers.
    pub servers: usize,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// The number of keys, at most two.
    pub keys: u32,
    /// The length of a lease, in ticks.
    pub ttl_ticks: u32,
    /// `lock.max-clock-skew`, in ticks.
    pub skew_ticks: u32,
    /// The number of ticks after which time ends.
    pub ticks: u32,
    /// True if a client that was refused may wait in the queues.
    pub waits: bool,
    /// The number of times that a server may crash and lose its data.
    pub restarts: u32,
    /// The number of times that a hostile client raises the token of a key of its own.
    pub raises: u32,
    /// The number of messages delivered twice.
    pub duplicates: u32,
    /// The number of ticks by which a restarting node's wall clock is stepped back.
    pub step_back_ticks: u32,
    /// The lead of each node's wall clock over the previous node's, in ticks.
    pub node_clocks_apart_ticks: u32,
    /// The messages that may arrive late.
    pub late_messages: LateMessages,
    /// The rule that is switched off.
    pub without: Without,
}

impl Config {
    /// Returns bounds with this number of nodes and clients. Each client wants the same lock once, and there are no
    /// faults. The first client's clock is ahead, and a lease lasts two ticks.
    pub fn of(servers: usize, clients: u32) -> Self {
        let wants = |n: u32| {
            let ahead_ticks = if n == 0 { 2 } else { 0 };
            ClientPlan {
                names: (0..servers).collect(),
                ahead_ticks,
                from_tick: 0,
                acquisitions: 1,
                extensions: 0,
                releases: true,
            }
        };
        Self {
            servers,
            clients: (0..clients).map(wants).collect(),
            keys: 1,
            ttl_ticks: 2,
            skew_ticks: 0,
            ticks: 4,
            waits: false,
            restarts: 0,
            raises: 0,
            duplicates: 0,
            step_back_ticks: 0,
            node_clocks_apart_ticks: 0,
            late_messages: LateMessages::Never,
            without: Without(None),
        }
    }

    pub(super) fn ttl_ms(&self) -> u32 {
        self.ttl_ticks * (TICK_US / 1_000) as u32
    }

    pub(super) fn setup(&self) -> Setup {
        Setup { max_ttl_ms: self.ttl_ms(), skew_ms: self.skew_ticks * (TICK_US / 1_000) as u32, window_ms: 1 }
    }
}

/// A model, with a cache of results about its states.
pub(super) struct Checked {
    pub(super) config: Config,
    /// For each state of the nodes, by its hash: whether every lock becomes available from there. Two states whose
    /// nodes are equal share an entry.
    pub(super) right: Mutex<HashMap<u64, bool>>,
}

impl Checked {
    fn new(config: Config) -> Self {
        Self { config, right: Mutex::default() }
    }
}

/// Returns a model for each rule, without that rule, and with bounds within which its absence causes harm. Leaves out
/// the rules [`OUT_OF_SIGHT`].
pub fn broken() -> Vec<Bounded<Rule>> {
    use Rule::*;
    let without = |rule, servers, clients, change: fn(&mut Config)| {
        let mut config = Config { without: Without(Some(rule)), ..Config::of(servers, clients) };
        change(&mut config);
        Bounded::new(rule, move || Checked::new(config.clone()))
    };
    vec![
        without(SecondRound, 3, 2, |config| config.node_clocks_apart_ticks = 20),
        without(Guard, 1, 2, |config| config.restarts = 1),
        without(GuardLength, 1, 2, |config| (config.ttl_ticks, config.restarts) = (3, 1)),
        without(ProposalAboveLast, 3, 2, |config| config.skew_ticks = 2),
        without(AnswersInTime, 1, 2, |config| {
            config.late_messages = LateMessages::Always;
            config.clients[0].extensions = 1;
        }),
        without(AnswersOfTheirRound, 1, 2, |config| {
            (config.late_messages, config.ttl_ticks) = (LateMessages::Always, 3);
            config.clients[0].extensions = 2;
        }),
        without(OwnerOfItsOwn, 1, 2, |config| config.clients[0].acquisitions = 2),
        // The second name of one client leads to the first server, like its first name.
        without(ServersNotNames, 3, 2, |config| {
            config.ttl_ticks = 3;
            config.clients[0] =
                ClientPlan { names: vec![0, 0, 2], extensions: 2, releases: false, ..config.clients[0].clone() };
            config.clients[1] = ClientPlan { from_tick: 4, releases: false, ..config.clients[1].clone() };
        }),
        without(MajoritiesMeet, 3, 2, |_| {}),
        without(FromTheSend, 1, 2, |config| {
            (config.late_messages, config.ttl_ticks) = (LateMessages::Always, 3);
        }),
        without(Ceiling, 1, 2, |config| {
            (config.restarts, config.step_back_ticks, config.skew_ticks, config.ticks) = (1, 20, 2, 5);
        }),
        without(FenceBeyondTheClock, 3, 1, |config| (config.node_clocks_apart_ticks, config.ticks) = (20, 1)),
        without(QueueIsLookedAt, 1, 2, |config| {
            config.waits = true;
            config.clients[0].acquisitions = 2;
        }),
        without(FarTokensApart, 2, 1, |config| (config.raises, config.restarts, config.ticks) = (1, 1, 1)),
    ]
}

/// The reason why the models of nodes and of a queue do not notice if a rule about several holders is switched off.
const ALONE: &str = "locks are taken alone there";

/// The reasons why these models do not notice if a rule about keeping a lock, or about taking one, is switched off.
const MAY_GIVE_UP: &str = "clients may give up there at any moment";
const NO_TAKER: &str = "clients ask and wait there at any moment";

/// Rules whose absence this model cannot detect, with the reasons.
pub const OUT_OF_SIGHT: [(Rule, &str); 26] = [
    (Rule::DriftMargin, "clocks do not drift there"),
    (Rule::TiedData, "no data is copied there"),
    (Rule::SlotsGuarded, "slots do not move there"),
    (Rule::SlotsFloor, "slots do not move there"),
    (Rule::RoundsRepeated, MAY_GIVE_UP),
    (Rule::RoundsInTime, MAY_GIVE_UP),
    (Rule::TakenAwayIsLost, "no lock is taken away there"),
    (Rule::AsksOn, MAY_GIVE_UP),
    (Rule::LastingEnds, NO_TAKER),
    (Rule::BacksOff, NO_TAKER),
    (Rule::TicketIsKept, NO_TAKER),
    (Rule::ShownIsAskedFor, NO_TAKER),
    (Rule::OneOfAProcessAsks, NO_TAKER),
    (Rule::RepetitionIsAnswered, "no answer is lost there"),
    (Rule::WaitLessDrift, "clocks do not drift there"),
    (Rule::HolderReenters, "nobody else tries to there"),
    (Rule::BrokenEnds, "holders do not ask again there"),
    (Rule::EvictedBars, "the node is as it is there"),
    (Rule::EvictedUnproved, "nothing is evicted where nodes crash there"),
    (Rule::ReadersKeepWritersOut, ALONE),
    (Rule::NumbersNotCounts, ALONE),
    (Rule::BothLimits, ALONE),
    (Rule::ReadersAboveWriters, ALONE),
    (Rule::ReadersWaitForWriters, ALONE),
    (Rule::GrantsAreTold, ALONE),
    (Rule::ConvertsAlone, ALONE),
];

/// Returns the models with every rule on, each with its subject. Within their bounds, no law may be broken.
pub fn sound() -> Vec<Bounded<&'static str>> {
    let with = |about, servers, clients, change: fn(&mut Config)| {
        let mut config = Config::of(servers, clients);
        change(&mut config);
        Bounded::new(about, move || Checked::new(config.clone()))
    };
    vec![
        with("one node, three clients, a crash", 1, 3, |config| config.restarts = 1),
        with("one node, two clients, every message late, one doubled, an extension, a crash", 1, 2, |config| {
            (config.late_messages, config.duplicates, config.restarts) = (LateMessages::Always, 1, 1);
            config.clients[0].extensions = 1;
        }),
        with("one node, two clients that wait and come twice, a crash", 1, 2, |config| {
            (config.waits, config.ticks, config.restarts) = (true, 3, 1);
            config.clients.iter_mut().for_each(|client| client.acquisitions = 2);
        }),
        with("one node, two keys, three clients", 1, 3, |config| (config.keys, config.ticks) = (2, 2)),
        with("two nodes, two clients, a doubled message, a crash", 2, 2, |config| {
            (config.duplicates, config.restarts, config.ticks) = (1, 1, 3);
        }),
        with("three nodes, two clients", 3, 2, |config| config.ticks = 3),
        with("three nodes whose clocks are further apart than the skew", 3, 2, |config| {
            (config.ticks, config.node_clocks_apart_ticks) = (2, 20)
        }),
        with("three nodes, a crash, a holder that extends and heals", 3, 2, |config| {
            (config.restarts, config.ticks) = (1, 3);
            config.clients[0].extensions = 1;
            config.clients[0].releases = false;
            config.clients[1].from_tick = 2;
        }),
        with("three nodes, a hostile client that raises tokens, a crash", 3, 1, |config| {
            (config.raises, config.restarts, config.ticks) = (2, 1, 2)
        }),
        with("three nodes, three clients", 3, 3, |config| config.ticks = 1),
    ]
}
