//! The ledger: what a node's disk has, and what must be there before the node promises anything.
//!
//! A restart must not lose three facts: the ceiling above which no token was issued, the guard, and whether the AOF is
//! complete. The node relies on such a fact only once it is on the disk. Until then promises are refused with NOTYET; a
//! write takes a few milliseconds. Some events make the stored facts wrong: a change of the AOF's settings or the role,
//! a flush of live locks, an armed guard. After such an event nothing is promised before the new state is on the disk.
//!
//! The file's writer takes a state from [`crate::Node::state_to_write`], and reports with [`crate::Node::on_written`]
//! that it is on the disk.

use crate::durability::node_state::NodeState;
use crate::durability::ties::{Found, IncarnationId};
use crate::guard::outstanding::{Master, OutstandingTtl};
use crate::guard::{Armed, SavedGuard};
use crate::tokens::Tokens;
use crate::values::time::{BootId, BootTime, Now};

/// The facts that an incarnation (one run of a node) knows of its own state and of its disk. By these it decides what
/// has to be written before a promise.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// True if the node has a state file.
    has_file: bool,
    id: u128,
    incarnation: u64,
    boot: BootId,
    /// The longest lease that may still run: granted by this node, or by its master.
    outstanding: OutstandingTtl,
    /// The time at which an operator last lifted a guard.
    lifted: BootTime,
    /// The highest ceiling (the highest token that may be issued) that a state file's writer was given, in this
    /// incarnation or the last, or that the master has sent.
    ceiling: u64,
    handed: Handed,
    /// The number of the latest state on the disk. `needed` is the number of the state that must be there before
    /// anything is promised.
    on_disk: u64,
    needed: u64,
    /// True once the node has judged, from the last incarnation's state, whether it remembers every grant.
    is_judged: bool,
    /// True if the stamp, a file beside the data, names this incarnation as the one that uses the data.
    is_stamped: bool,
    /// True if another server has taken the state file.
    is_taken: bool,
}

/// The parts of the state last handed to the file's writer, for later checks.
#[derive(Clone, Copy, Debug, Default)]
struct Handed {
    number: u64,
    ceiling: u64,
    stripe_change: u64,
    outstanding_ttl_ms: u32,
    /// The guard in that state, and the number of the first state that had this guard.
    guard: Option<Armed>,
    guard_number: u64,
}

/// The facts that are known when an incarnation begins.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// The last incarnation's state from the state file, if it is readable.
    pub last: Option<&'a NodeState>,
    /// Everything found at the start except the content of the state file.
    pub found: &'a Found,
    /// True if there is a state file at all.
    pub has_file: bool,
    /// The id that the node gets if no state file has one.
    pub new_id: u128,
    /// The id of the machine's present boot.
    pub boot: BootId,
    /// The longest lease that the node grants: `lock.max-ttl`, in milliseconds.
    pub max_ttl_ms: u32,
    /// By how much wall clocks may differ: `lock.max-clock-skew`, in milliseconds.
    pub skew_ms: u32,
    /// True if the node follows no master.
    pub is_master: bool,
}

impl Ledger {
    /// Creates the ledger of a node without a state file: its promises need no write.
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

    /// Creates the ledger of an incarnation that begins at `now`. The node promises nothing before its start is judged
    /// ([`Ledger::on_judged`]) and its first state is on the disk.
    pub fn new(beginning: &Beginning<'_>, now: BootTime) -> Self {
        let Beginning { last, found, has_file, new_id, boot, max_ttl_ms, skew_ms, is_master } = *beginning;
        // If the state file is a copy, this is a new node: it must not pass for the original one.
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

    /// Returns the longest lease that may still run: granted by this node, or by its master.
    pub fn outstanding_ttl(&self) -> &OutstandingTtl {
        &self.outstanding
    }

    /// Returns the time at which an operator last lifted a guard; zero if never on this boot.
    pub fn lifted(&self) -> BootTime {
        self.lifted
    }

    /// Returns the highest ceiling in any state that was handed to the file's writer, or that the master has sent.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Notes that tokens up to `ceiling` were issued, or may have been. A later incarnation starts above it.
    pub fn raise_ceiling(&mut self, ceiling: u64) {
        self.ceiling = self.ceiling.max(ceiling);
    }

    /// Returns whether the state with this number is on the disk.
    pub fn has_on_disk(&self, number: u64) -> bool {
        self.on_disk >= number
    }

    /// Returns whether the node has judged if it remembers every grant of the last incarnation.
    pub fn is_judged(&self) -> bool {
        self.is_judged
    }

    /// Returns whether the stamp beside the data names this incarnation.
    pub fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Notes that the stamp beside the data names this incarnation now.
    pub fn on_stamped(&mut self) {
        self.is_stamped = true;
    }

    /// Sets whether another server has taken the state file. Then this node may promise nothing under its name.
    pub fn set_file_taken(&mut self, is_taken: bool) {
        self.is_taken = is_taken;
    }

    /// Notes that the node has judged its start, so states are written from now on. Returns the longest lease of its
    /// own grants that may still run, in milliseconds. If it is a replica, grants of its master only count once it is
    /// promoted.
    pub fn on_judged(&mut self, now: BootTime) -> u32 {
        self.is_judged = true;
        self.outstanding.own_ms(now)
    }

    /// Notes that a lock with a lease of `ms` milliseconds was loaded or replicated.
    pub fn on_lease(&mut self, ms: u32, skew_ms: u32, now: BootTime) {
        if ms > self.outstanding.present_ms() {
            self.outstanding.raise(ms, skew_ms, now);
        }
    }

    /// Returns whether the disk has everything that a later incarnation must know, so that the node may promise
    /// something.
    pub fn is_ready(&self) -> bool {
        self.is_judged && self.is_stamped && !self.is_taken && self.on_disk >= self.needed
    }

    /// Returns whether states may be written: the node has a state file, and has judged the last incarnation's state in
    /// it.
    pub fn writes(&self) -> bool {
        self.is_judged && self.has_file
    }

    /// Returns the number of the next state to write. If the write is `needed`, nothing is promised before that state
    /// is on the disk.
    pub fn number(&mut self, needed: bool) -> u64 {
        self.handed.number += 1;
        if needed {
            self.needed = self.handed.number;
        }
        self.handed.number
    }

    /// Returns whether the disk has this guard, or one that ends later. Both must forbid extending the locks in memory,
    /// or neither.
    pub fn has_guard(&self, guard: Option<SavedGuard>) -> bool {
        let Handed { guard: handed, guard_number, .. } = self.handed;
        let covers =
            |wanted: Armed, has: Armed| has.until >= wanted.until && has.doubts_locks() == wanted.doubts_locks();
        self.on_disk >= guard_number && guard.zip(handed).is_some_and(|(guard, handed)| covers(guard.armed, handed))
    }

    /// Returns the state to write at `now` for a later incarnation, with `guard` as the node's guard.
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

    /// Notes that the state with this number, which has this ceiling, is on the disk.
    pub fn on_written(&mut self, number: u64, ceiling: u64, tokens: &mut Tokens) {
        self.on_disk = self.on_disk.max(number);
        tokens.set_ceiling(ceiling);
        if number >= self.handed.number {
            tokens.stripes_saved(self.handed.stripe_change);
        }
    }

    /// Returns whether a request was refused because its token is above the ceiling of every state handed to the file's
    /// writer. Then a state with a larger ceiling has to be written.
    pub fn is_write_needed(&self, tokens: &Tokens, skew_ms: u32, now: Now) -> bool {
        tokens.wanted_ceiling(now.wall_us, skew_ms) > self.ceiling
            || tokens.stripe_changes() > self.handed.stripe_change
    }

    /// Returns whether a state should be written now, before a request has to wait for it. That is so when half of the
    /// tokens up to the ceiling are used up, or when the last state handed to the file's writer lacks a stripe's
    /// ceiling, the master's ceiling or a longer lease.
    pub fn is_write_due(&self, tokens: &Tokens, skew_ms: u32, now: Now) -> bool {
        let Handed { ceiling, stripe_change, outstanding_ttl_ms, .. } = self.handed;
        tokens.uses_up(ceiling, now.wall_us, skew_ms)
            || tokens.stripe_changes() > stripe_change
            || self.ceiling > ceiling
            || self.outstanding.ms(now.boot) > outstanding_ttl_ms
    }

    /// Notes the values that a replica received from its master: the ceiling up to which tokens may be issued, and the
    /// longest lease that may run.
    pub fn on_master_values(&mut self, ceiling: u64, outstanding_ttl_ms: u32) {
        self.raise_ceiling(ceiling);
        self.outstanding.follow(Some(outstanding_ttl_ms));
    }

    /// Notes that the node follows a master now, or another master than before. The values that an earlier master sent
    /// no longer count.
    pub fn become_replica(&mut self) {
        self.outstanding.follow(None);
    }

    /// Notes that a replica becomes a master. Leases that its own master may have granted count as its own from now on.
    pub fn become_master(&mut self, skew_ms: u32, now: BootTime) {
        self.outstanding.lead(skew_ms, now);
    }

    /// Notes that an operator lifts the guard. The outstanding ttl then covers only leases that the node itself granted
    /// or saw, not those that it may have forgotten.
    pub fn lift(&mut self, skew_ms: u32, now: BootTime) {
        self.lifted = now;
        self.outstanding.lift(skew_ms, now);
    }
}
