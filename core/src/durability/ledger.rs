//! The ledger of what must be on the disk before a promise.
//!
//! Everything that a later incarnation must know is on the disk before this one relies on it: the ceiling above which
//! it issues no token, the guard, and whether the AOF is complete. Until then promises are refused with NOTYET; a write
//! takes a few milliseconds. Some events invalidate what a later incarnation would believe: a change of the AOF's
//! settings or the role, a flush of live locks, an armed guard. After such an event nothing is promised before the new
//! state is on the disk.
//!
//! The file's writer takes a state from [`crate::Node::state_to_write`], and reports with [`crate::Node::written`] that
//! it is on the disk.

use crate::durability::node_state::NodeState;
use crate::durability::ties::{Found, IncarnationId};
use crate::guard::outstanding::{Master, OutstandingTtl};
use crate::guard::{Armed, SavedGuard};
use crate::tokens::Tokens;
use crate::values::time::{BootId, BootTime, Now};

/// An incarnation's knowledge of itself and of its disk.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// True if the node has a state file.
    has_file: bool,
    id: u128,
    incarnation: u64,
    boot: BootId,
    /// The longest lease that may still run.
    outstanding: OutstandingTtl,
    /// The time at which an operator last lifted a guard.
    lifted: BootTime,
    /// The highest ceiling that was handed out to be written, or received.
    ceiling: u64,
    handed: Handed,
    /// The number of the latest state on the disk, and of the one that must be there before anything is promised.
    on_disk: u64,
    needed: u64,
    /// True once the last incarnation's state has been judged: whether this start proves that it remembers every grant.
    is_judged: bool,
    /// True if the data is marked as used by this incarnation.
    is_stamped: bool,
    /// True if another server has the state file.
    is_taken: bool,
}

/// The parts of the latest state handed out to the writer that later checks read.
#[derive(Clone, Copy, Debug, Default)]
struct Handed {
    number: u64,
    ceiling: u64,
    stripe_change: u64,
    outstanding_ttl_ms: u32,
    /// The guard, and the number of the first state with it.
    guard: Option<Armed>,
    guard_number: u64,
}

/// The beginning of an incarnation.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// The last incarnation's state from the state file, if it is readable.
    pub last: Option<&'a NodeState>,
    /// The findings other than the state file.
    pub found: &'a Found,
    /// True if there is a state file at all.
    pub has_file: bool,
    /// The node's id if no state file has one.
    pub new_id: u128,
    /// This boot of the machine.
    pub boot: BootId,
    /// `lock.max-ttl`, in milliseconds.
    pub max_ttl_ms: u32,
    /// `lock.max-clock-skew`, in milliseconds.
    pub skew_ms: u32,
    /// True if the node follows no master.
    pub is_master: bool,
}

impl Ledger {
    /// Creates the ledger of a node without a file: its promises need no write.
    pub fn without_file() -> Self {
        let boot = BootId([0; 16]);
        let found = &Found::default();
        let nothing = Beginning {
            last: None,
            found,
            has_file: false,
            new_id: 0,
            boot,
            max_ttl_ms: 0,
            skew_ms: 0,
            is_master: true,
        };
        Self { is_judged: true, is_stamped: true, ..Self::new(&nothing, BootTime::default()) }
    }

    /// Creates the ledger of an incarnation that begins at `now`. Nothing is promised before its start is judged and
    /// its first state is on the disk.
    pub fn new(beginning: &Beginning<'_>, now: BootTime) -> Self {
        let Beginning { last, found, has_file, new_id, boot, max_ttl_ms, skew_ms, is_master } = *beginning;
        // A copy must not pass for the original node.
        let same_node = last.filter(|last| !last.is_copy(found.file));
        let mut outstanding =
            OutstandingTtl::new(last.map_or(0, |last| last.outstanding_ttl_ms), max_ttl_ms, skew_ms, now);
        if !is_master {
            outstanding.follow(last.filter(|last| last.master == Master::Told).map(|last| last.outstanding_ttl_ms));
        }
        Self {
            has_file,
            id: same_node.map_or(new_id, |last| last.id),
            incarnation: same_node.map_or(0, |last| last.incarnation) + 1,
            boot,
            outstanding,
            lifted: last.filter(|last| last.boot == boot).map_or(BootTime::default(), |last| last.lifted),
            ceiling: last.map_or(0, |last| last.ceiling),
            handed: Handed::default(),
            on_disk: 0,
            needed: 0,
            is_judged: false,
            is_stamped: false,
            is_taken: false,
        }
    }

    /// Returns the id of this incarnation.
    pub fn incarnation(&self) -> IncarnationId {
        IncarnationId { node: self.id, number: self.incarnation }
    }

    /// Returns the longest lease that may still run.
    pub fn outstanding_ttl(&self) -> &OutstandingTtl {
        &self.outstanding
    }

    /// Returns the time at which an operator last lifted a guard; zero if never on this boot.
    pub fn lifted(&self) -> BootTime {
        self.lifted
    }

    /// Returns the highest ceiling that was handed out to be written, or received.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Notes that tokens up to `ceiling` were issued, or may have been. A later incarnation starts above it.
    pub fn hear_of_ceiling(&mut self, ceiling: u64) {
        self.ceiling = self.ceiling.max(ceiling);
    }

    /// Returns whether the state with this number is on the disk.
    pub fn has_on_disk(&self, number: u64) -> bool {
        self.on_disk >= number
    }

    /// Returns whether the last incarnation's state has been judged.
    pub fn is_judged(&self) -> bool {
        self.is_judged
    }

    /// Returns whether the data is marked as used by this incarnation.
    pub fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Notes that the stamp beside the data names this incarnation.
    pub fn stamped(&mut self) {
        self.is_stamped = true;
    }

    /// Sets whether another server has the state file. Nothing may be promised under this node's name then.
    pub fn taken(&mut self, is_taken: bool) {
        self.is_taken = is_taken;
    }

    /// Notes that the last incarnation's state has been judged: states are written from now on. Returns the longest
    /// lease of the node's own grants that may still run, in milliseconds. Grants of its master count once it is
    /// promoted.
    pub fn judged(&mut self, now: BootTime) -> u32 {
        self.is_judged = true;
        self.outstanding.own_ms(now)
    }

    /// Notes that a lease of `ms` was loaded or replicated.
    pub fn saw_lease(&mut self, ms: u32, skew_ms: u32, now: BootTime) {
        if ms > self.outstanding.present_ms() {
            self.outstanding.raise(ms, skew_ms, now);
        }
    }

    /// Returns whether everything is on the disk that a later incarnation must know before a promise.
    pub fn is_ready(&self) -> bool {
        self.is_judged && self.is_stamped && !self.is_taken && self.on_disk >= self.needed
    }

    /// Returns whether states may be written: the node has a file, and the last incarnation's state in it has been
    /// judged.
    pub fn writes(&self) -> bool {
        self.is_judged && self.has_file
    }

    /// Returns the number of the next state to write. If it is `needed`, nothing is promised before it is on the disk.
    pub fn number(&mut self, needed: bool) -> u64 {
        self.handed.number += 1;
        if needed {
            self.needed = self.handed.number;
        }
        self.handed.number
    }

    /// Returns whether the disk has this guard, or one that ends later and makes as many locks doubtful.
    pub fn has_guard(&self, guard: Option<SavedGuard>) -> bool {
        let Handed { guard: handed, guard_number, .. } = self.handed;
        let covers =
            |wanted: Armed, has: Armed| has.until >= wanted.until && has.doubts_locks() == wanted.doubts_locks();
        self.on_disk >= guard_number && guard.zip(handed).is_some_and(|(guard, handed)| covers(guard.armed, handed))
    }

    /// Returns the state to write at `now` for a later incarnation, with this guard.
    pub fn state(&mut self, guard: Option<SavedGuard>, tokens: &mut Tokens, skew_ms: u32, now: Now) -> NodeState {
        tokens.sweep_stripes(now.boot);
        let (stripes, stripe_change) = tokens.stripe_ceilings();
        let ceiling = self.ceiling.max(tokens.wanted_ceiling(now.wall_us, skew_ms));
        let outstanding_ttl_ms = self.outstanding.ms(now.boot);
        self.ceiling = ceiling;
        let says = |armed: Armed| (armed.until, armed.doubts_locks());
        if guard.map(|guard| says(guard.armed)) != self.handed.guard.map(says) {
            self.handed.guard_number = self.handed.number;
        }
        let armed = guard.map(|guard| guard.armed);
        self.handed = Handed { ceiling, stripe_change, outstanding_ttl_ms, guard: armed, ..self.handed };
        NodeState {
            incarnation: self.incarnation,
            ceiling,
            stripes,
            outstanding_ttl_ms,
            master: self.outstanding.master(),
            guard,
            lifted: self.lifted,
            ..NodeState::new(self.id, self.boot)
        }
    }

    /// Notes that the state with this number is on the disk, with this ceiling.
    pub fn written(&mut self, number: u64, ceiling: u64, tokens: &mut Tokens) {
        self.on_disk = self.on_disk.max(number);
        tokens.set_ceiling(ceiling);
        if number >= self.handed.number {
            tokens.stripes_saved(self.handed.stripe_change);
        }
    }

    /// Returns whether a token was refused for lack of a ceiling that has not been handed out yet.
    pub fn wants_write(&self, tokens: &Tokens, skew_ms: u32, now: Now) -> bool {
        tokens.wanted_ceiling(now.wall_us, skew_ms) > self.ceiling
            || tokens.stripe_changes() > self.handed.stripe_change
    }

    /// Returns whether a state should be written now, before a request has to wait for it: half of the ceiling's lead
    /// is used up, or the disk lacks something that was received.
    pub fn is_write_due(&self, tokens: &Tokens, skew_ms: u32, now: Now) -> bool {
        let Handed { ceiling, stripe_change, outstanding_ttl_ms, .. } = self.handed;
        tokens.uses_up(ceiling, now.wall_us, skew_ms)
            || tokens.stripe_changes() > stripe_change
            || self.ceiling > ceiling
            || self.outstanding.ms(now.boot) > outstanding_ttl_ms
    }

    /// Notes what a replica receives from its master: the ceiling up to which tokens may be issued, and the longest
    /// lease that may run.
    pub fn heard(&mut self, ceiling: u64, outstanding_ttl_ms: u32) {
        self.hear_of_ceiling(ceiling);
        self.outstanding.follow(Some(outstanding_ttl_ms));
    }

    /// Notes that the node follows a master, or another one. What the earlier one said no longer counts.
    pub fn follows(&mut self) {
        self.outstanding.follow(None);
    }

    /// Notes that a replica becomes a master: grants that its own master may have given still count.
    pub fn leads(&mut self, skew_ms: u32, now: BootTime) {
        self.outstanding.lead(skew_ms, now);
    }

    /// Notes that an operator lifts the guard.
    pub fn lift(&mut self, skew_ms: u32, now: BootTime) {
        self.lifted = now;
        self.outstanding.lift(skew_ms, now);
    }
}
