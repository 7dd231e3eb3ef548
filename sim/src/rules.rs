//! The rules that make a lock safe. Each can be switched off, to show that it is needed and that the checks detect its
//! absence.
//!
//! The rules of `palisade-core` have no switches. A rule is switched off at the border between `palisade-core` and this
//! crate's nodes, clients and network, by changing the rule's inputs or outputs.

use clap::ValueEnum;

/// A rule, described by what happens while it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub enum Rule {
    /// If a majority grants unequal tokens, they are raised to the largest, and that is acknowledged, before the lock
    /// is held.
    SecondRound,
    /// A node that may have forgotten a grant grants nothing for a while.
    Guard,
    /// The guard lasts as long as the longest lease.
    GuardLength,
    /// A proposed token, which comes from a client's clock, is issued only if it is above the node's last token.
    ProposalAboveLast,
    /// An answer to an extension counts only if it arrives before the present validity of the lock ends.
    AnswersInTime,
    /// An answer counts only for the round in which its question was sent.
    AnswersOfTheirRound,
    /// Every acquisition has an owner of its own.
    OwnerOfItsOwn,
    /// A majority is counted by servers: two names of one server are one vote.
    ServersNotNames,
    /// Any two majorities have a node in common.
    MajoritiesMeet,
    /// Validity is counted from before the first question was sent.
    FromTheSend,
    /// Validity ends before the leases do, by as much as clocks can drift apart.
    DriftMargin,
    /// Tokens are issued up to a ceiling that is on the disk, and a later incarnation starts above it.
    Ceiling,
    /// LOCK.FENCE raises a token even to a value far ahead of the node's clock.
    FenceBeyondTheClock,
    /// When the lease of a lock ends by itself, its queue is served.
    QueueIsLookedAt,
    /// A token that a client raised far ahead affects no other key.
    FarTokensApart,
    /// A state file counts only for the data it belongs to, and a copy of it never counts.
    TiedData,
    /// A slot that a node gains without its locks, or whose locks are dropped together, is guarded until their leases
    /// have ended.
    SlotsGuarded,
    /// A node that gains a slot issues no token for its keys that the slot's former owner can have issued.
    SlotsFloor,
    /// A failed round of extensions is repeated while there is time.
    RoundsRepeated,
    /// The first round of extensions begins early enough for further rounds to follow.
    RoundsInTime,
    /// A lock is lost once a majority has taken it away, even if its lease has not ended.
    TakenAwayIsLost,
    /// A caller with a time limit asks for the lock again after each refusal, until the limit.
    AsksOn,
    /// A caller gives up at once if the reason for a refusal will not pass by itself.
    LastingEnds,
    /// A caller pauses between attempts, longer each time.
    BacksOff,
    /// A caller joins the queues again with its old ticket.
    TicketIsKept,
    /// A caller asks for the permit that nodes show as free, or reserve for it.
    ShownIsAskedFor,
    /// Among the callers of one process that want a lock exclusively, one asks the nodes and the others wait for their
    /// turn.
    OneOfAProcessAsks,
    /// Waiters are served first in, first out.
    FirstInFirstOut,
    /// A request for a free lock does not pass those who wait for it.
    NoBarging,
    /// A waiter whose client is gone leaves the queue, and the next is served.
    DeadHeadPasses,
    /// The requests of one owner share a place in the queue: one grant answers all of them.
    OwnersShareAPlace,
    /// A reservation for a waiter whose turn has come lasts only a moment.
    ReservationEnds,
    /// Waiters are served when the guard ends.
    GuardEndServes,
    /// A repeated request is answered with the grant that its owner already has.
    RepetitionIsAnswered,
    /// A client takes a request's wait to be shorter than the node reports, by as much as their clocks may drift apart
    /// meanwhile.
    WaitLessDrift,
    /// Only the holder re-enters a lock.
    HolderReenters,
    /// A lock that an operator broke no longer belongs to its holder.
    BrokenEnds,
    /// The lease of a lock that the server evicted keeps others out until it would have ended.
    EvictedBars,
    /// An incarnation in which a held lock was evicted leaves no proof that it remembers every grant.
    EvictedUnproved,
    /// Readers keep writers out.
    ReadersKeepWritersOut,
    /// Each permit has a number that a majority grants to one holder: nodes do not just count holders.
    NumbersNotCounts,
    /// A permit's number is within the limits of all other holders too, not only within its own limit.
    BothLimits,
    /// A reader's token is above those of the writers and permits before it.
    ReadersAboveWriters,
    /// A reader does not pass a writer that waits, even while others read.
    ReadersWaitForWriters,
    /// A grant that joins others is written to the AOF and sent to replicas.
    GrantsAreTold,
    /// A reader becomes a writer only if nobody else reads.
    ConvertsAlone,
    /// Consecutive versions of the set differ by one node.
    OneNodeAtATime,
    /// A node agrees to the next version only after the leases of clients with older versions have ended there.
    LeasesEndFirst,
    /// A node refuses clients whose version of the set is older than its own.
    OlderClientsAreRefused,
    /// A version is decided only once a majority of the nodes in the version before it has accepted it.
    MajorityAccepts,
    /// A node that accepts a version issues no token that clients of earlier versions had.
    TokensGoOn,
    /// A node still knows its version of the set after a restart.
    VersionIsKept,
    /// A node that lost its memory is no longer a member.
    MembersHaveIds,
    /// A held lock is extended by a majority of the set version that its client works with.
    HeldByTheNewMajority,
    /// An acquisition that is under way when its client learns of a version begins anew.
    AcquisitionsBeginAnew,
    /// A node takes part in no attempt with a smaller ballot than it promised.
    PromisesAreKept,
    /// A program that changes the set first completes a change that may be decided already.
    EarlierIsCompleted,
}

impl Rule {
    /// Returns the description of the rule.
    pub fn sentence(self) -> String {
        sentence(self)
    }
}

/// Returns the doc comment of a rule as text.
pub(crate) fn sentence(rule: impl ValueEnum) -> String {
    rule.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
}

/// The rule that is switched off; `None` if every rule is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Without(pub Option<Rule>);

impl Without {
    /// Returns true if `rule` is switched off.
    pub fn is(self, rule: Rule) -> bool {
        self.0 == Some(rule)
    }
}
