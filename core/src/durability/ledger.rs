//! What must be on the disk before what is promised.
//!
//! Whatever a later incarnation must know is on the disk before this one relies on it: the ceiling above which it issues no token, the
//! guard, and whether the AOF has everything. Where that is not so yet, promises are refused with NOTYET for the milliseconds that a
//! write takes. Where something ends that a later incarnation would believe (the AOF's settings, the role, a flush of live locks, an armed
//! guard), nothing is promised before the new state is on the disk.
//!
//! Whoever writes the file takes a state from [`crate::Node::state_to_write`], and tells with [`crate::Node::written`] when it is there.

use crate::durability::node_state::NodeState;
use crate::durability::ties::{Found, IncarnationId};
use crate::guard::outstanding::{Master, OutstandingTtl};
use crate::tokens::Tokens;
use crate::values::time::{BootId, BootTime, Now};

/// What an incarnation knows of itself and of its disk.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Whether there is a state file.
    has_file: bool,
    id: u128,
    incarnation: u64,
    boot: BootId,
    /// How long leases can be that may still run.
    outstanding: OutstandingTtl,
    /// When an operator lifted a guard last.
    lifted: BootTime,
    /// The highest ceiling handed out to be written, or heard of.
    ceiling: u64,
    handed: Handed,
    /// The state with this number is on the disk, and the one that must be before anything is promised.
    on_disk: u64,
    needed: u64,
    /// What the last incarnation left is judged, and the data is marked as used by this one.
    is_judged: bool,
    is_stamped: bool,
    /// Another server has the state file.
    is_taken: bool,
}

/// What of a state is looked at again once it was handed out.
#[derive(Clone, Copy, Debug, Default)]
struct Handed {
    number: u64,
    ceiling: u64,
    stripe_change: u64,
    outstanding_ttl_ms: u32,
}

/// How an incarnation begins.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// What the last one left in the state file, if there is a readable one.
    pub last: Option<&'a NodeState>,
    /// What was found beside it.
    pub found: &'a Found,
    /// Whether there is a state file at all.
    pub has_file: bool,
    /// The node's id where no state file tells.
    pub new_id: u128,
    /// This boot of the machine.
    pub boot: BootId,
    /// `lock.max-ttl`, in milliseconds.
    pub max_ttl_ms: u32,
    /// `lock.max-clock-skew`, in milliseconds.
    pub skew_ms: u32,
    /// Whether it follows no master.
    pub is_master: bool,
}

impl Ledger {
    /// Of a node without a file: nothing has to be written for what it promises.
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

    /// An incarnation that begins at `now`: nothing is promised before its start is judged and its first state is on the disk.
    pub fn new(beginning: &Beginning<'_>, now: BootTime) -> Self {
        let Beginning { last, found, has_file, new_id, boot, max_ttl_ms, skew_ms, is_master } = *beginning;
        // A copy must not pass for the node that it was copied from.
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

    /// Which incarnation of which node it is.
    pub fn incarnation(&self) -> IncarnationId {
        IncarnationId { node: self.id, number: self.incarnation }
    }

    /// How long leases can be that may still run.
    pub fn outstanding_ttl(&self) -> &OutstandingTtl {
        &self.outstanding
    }

    /// When an operator lifted a guard last; zero: never on this boot.
    pub fn lifted(&self) -> BootTime {
        self.lifted
    }

    /// The highest ceiling handed out to be written, or heard of.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Somebody issued tokens up to `ceiling`, or may have: a later incarnation starts above it.
    pub fn hear_of_ceiling(&mut self, ceiling: u64) {
        self.ceiling = self.ceiling.max(ceiling);
    }

    /// Whether the state with this number is on the disk.
    pub fn has_on_disk(&self, number: u64) -> bool {
        self.on_disk >= number
    }

    /// What the last incarnation left is judged.
    pub fn is_judged(&self) -> bool {
        self.is_judged
    }

    /// The data is marked as used by this incarnation.
    pub fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Says beside the data that this incarnation uses it: done.
    pub fn stamped(&mut self) {
        self.is_stamped = true;
    }

    /// Whether another server has the state file: nothing may be promised under this node's name.
    pub fn taken(&mut self, is_taken: bool) {
        self.is_taken = is_taken;
    }

    /// What the last incarnation left is judged: states are written from now on. The longest lease that may still run of those that the
    /// node granted, in milliseconds; what its master may have granted counts when it is promoted.
    pub fn judged(&mut self, now: BootTime) -> u32 {
        self.is_judged = true;
        self.outstanding.own_ms(now)
    }

    /// A lease of `ms` was seen (loaded or replicated).
    pub fn saw_lease(&mut self, ms: u32, skew_ms: u32, now: BootTime) {
        if ms > self.outstanding.present_ms() {
            self.outstanding.raise(ms, skew_ms, now);
        }
    }

    /// Everything that a later incarnation must know before something is promised is on the disk.
    pub fn is_ready(&self) -> bool {
        self.is_judged && self.is_stamped && !self.is_taken && self.on_disk >= self.needed
    }

    /// Whether states are written: there is a file, and it does not have to keep what the last incarnation proves.
    pub fn writes(&self) -> bool {
        self.is_judged && self.has_file
    }

    /// The number of the state that is about to be written. If it is `needed`, nothing is promised before it is on the disk.
    pub fn number(&mut self, needed: bool) -> u64 {
        self.handed.number += 1;
        if needed {
            self.needed = self.handed.number;
        }
        self.handed.number
    }

    /// What a later incarnation must know of this one at `now`, but for its guards.
    pub fn state(&mut self, tokens: &mut Tokens, skew_ms: u32, now: Now) -> NodeState {
        tokens.sweep_stripes(now.boot);
        let (stripes, stripe_change) = tokens.stripe_ceilings();
        let ceiling = self.ceiling.max(tokens.wanted_ceiling(now.wall_us, skew_ms));
        let outstanding_ttl_ms = self.outstanding.ms(now.boot);
        self.ceiling = ceiling;
        self.handed = Handed { ceiling, stripe_change, outstanding_ttl_ms, ..self.handed };
        NodeState {
            incarnation: self.incarnation,
            ceiling,
            stripes,
            outstanding_ttl_ms,
            master: self.outstanding.master(),
            lifted: self.lifted,
            ..NodeState::new(self.id, self.boot)
        }
    }

    /// The state with this number is on the disk, and the node's ceiling there is this.
    pub fn written(&mut self, number: u64, ceiling: u64, tokens: &mut Tokens) {
        self.on_disk = self.on_disk.max(number);
        tokens.set_ceiling(ceiling);
        if number >= self.handed.number {
            tokens.stripes_saved(self.handed.stripe_change);
        }
    }

    /// Whether a token was refused for want of a ceiling that nobody has handed out yet.
    pub fn wants_write(&self, tokens: &Tokens, skew_ms: u32, now: Now) -> bool {
        tokens.wanted_ceiling(now.wall_us, skew_ms) > self.ceiling
            || tokens.stripe_changes() > self.handed.stripe_change
    }

    /// Whether a state should be written now, before anybody has to wait for it: half of the ceiling's lead is used up, or more
    /// was heard of than the disk knows.
    pub fn is_write_due(&self, tokens: &Tokens, skew_ms: u32, now: Now) -> bool {
        let Handed { ceiling, stripe_change, outstanding_ttl_ms, .. } = self.handed;
        tokens.uses_up(ceiling, now.wall_us, skew_ms)
            || tokens.stripe_changes() > stripe_change
            || self.ceiling > ceiling
            || self.outstanding.ms(now.boot) > outstanding_ttl_ms
    }

    /// A replica hears from its master up to where it should take tokens for issued, and the longest lease that may run.
    pub fn heard(&mut self, ceiling: u64, outstanding_ttl_ms: u32) {
        self.hear_of_ceiling(ceiling);
        self.outstanding.follow(Some(outstanding_ttl_ms));
    }

    /// The node follows a master, or another one: what was heard before is nothing to go by.
    pub fn follows(&mut self) {
        self.outstanding.follow(None);
    }

    /// A replica becomes a master: what its own master may have granted still counts.
    pub fn leads(&mut self, skew_ms: u32, now: BootTime) {
        self.outstanding.lead(skew_ms, now);
    }

    /// An operator lifts the guard.
    pub fn lift(&mut self, skew_ms: u32, now: BootTime) {
        self.lifted = now;
        self.outstanding.lift(skew_ms, now);
    }
}
