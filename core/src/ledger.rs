//! What must be on the disk before what is promised.
//!
//! Whatever a later life must know is on the disk before this one relies on it: the ceiling above which it issues no token, the
//! guard, and whether the AOF has everything. Where that is not so yet, promises are refused with NOTYET for the milliseconds that a
//! write takes. Where something ends that a later life would believe (the AOF's settings, the role, a flush of live locks, an armed
//! guard), nothing is promised before the new state is on the disk.
//!
//! Whoever writes the file takes a state from [`Node::state_to_write`], and tells with [`Node::written`] when it is there.

use crate::record::BootId;
use crate::start::{Found, LifeId, Start};
use crate::{
    BootTime, Cause, GuardPolicy, Master, Node, NodeState, Now, Owed, Refusal, StripeCeiling, Tokens, promote,
};

/// What a life knows of itself and of its disk.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Whether there is a state file.
    has_file: bool,
    id: u128,
    incarnation: u64,
    boot: BootId,
    /// How long leases can be that may still run.
    owed: Owed,
    /// When an operator lifted a guard last.
    lifted: BootTime,
    /// The highest ceiling handed out to be written, or heard of.
    ceiling: u64,
    handed: Handed,
    /// The state with this number is on the disk, and the one that must be before anything is promised.
    on_disk: u64,
    needed: u64,
    /// What the last life left is judged, and the data is marked as used by this one.
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
    owed_ms: u32,
}

/// How a life begins.
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

    fn new(beginning: &Beginning<'_>, now: BootTime) -> Self {
        let Beginning { last, found, has_file, new_id, boot, max_ttl_ms, skew_ms, is_master } = *beginning;
        // A copy must not pass for the node that it was copied from.
        let same_node = last.filter(|last| !last.is_copy(found.file));
        let mut owed = Owed::new(last.map_or(0, |last| last.owed_ms), max_ttl_ms, skew_ms, now);
        if !is_master {
            owed.follow(last.filter(|last| last.master == Master::Told).map(|last| last.owed_ms));
        }
        Self {
            has_file,
            id: same_node.map_or(new_id, |last| last.id),
            incarnation: same_node.map_or(0, |last| last.incarnation) + 1,
            boot,
            owed,
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

    /// Which life of which node it is.
    pub fn life(&self) -> LifeId {
        LifeId { node: self.id, incarnation: self.incarnation }
    }

    /// How long leases can be that may still run.
    pub fn owed(&self) -> &Owed {
        &self.owed
    }

    /// When an operator lifted a guard last; zero: never on this boot.
    pub fn lifted(&self) -> BootTime {
        self.lifted
    }

    /// The highest ceiling handed out to be written, or heard of.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Somebody issued tokens up to `ceiling`, or may have: a later life starts above it.
    pub fn hear_of_ceiling(&mut self, ceiling: u64) {
        self.ceiling = self.ceiling.max(ceiling);
    }

    /// Whether the state with this number is on the disk.
    pub fn has_on_disk(&self, number: u64) -> bool {
        self.on_disk >= number
    }

    /// What the last life left is judged.
    pub fn is_judged(&self) -> bool {
        self.is_judged
    }

    /// The data is marked as used by this life.
    pub fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Says beside the data that this life uses it: done.
    pub fn stamped(&mut self) {
        self.is_stamped = true;
    }

    /// Whether another server has the state file: nothing may be promised under this node's name.
    pub fn taken(&mut self, is_taken: bool) {
        self.is_taken = is_taken;
    }

    /// A lease of `ms` was seen (loaded or replicated).
    pub(crate) fn saw_lease(&mut self, ms: u32, skew_ms: u32, now: BootTime) {
        if ms > self.owed.present_ms() {
            self.owed.raise(ms, skew_ms, now);
        }
    }

    /// Everything that a later life must know before something is promised is on the disk.
    pub fn is_ready(&self) -> bool {
        self.is_judged && self.is_stamped && !self.is_taken && self.on_disk >= self.needed
    }
}

impl Node {
    /// A life begins at `now`, with tokens from [`crate::token_floor`] on. Nothing is promised before its start is judged and its
    /// first state is on the disk.
    pub fn begin(beginning: &Beginning<'_>, mut tokens: Tokens, now: BootTime) -> Self {
        if let Some(last) = beginning.last {
            // Nothing is issued before the new ceiling is on the disk: no stripe is below the last one.
            tokens.set_ceiling(last.ceiling);
            tokens.restore_stripes(&last.stripes);
        } else if beginning.has_file {
            tokens.set_ceiling(0);
        }
        let mut node =
            Self { ledger: Ledger::new(beginning, now), skew_ms: beginning.skew_ms, ..Self::with_tokens(tokens) };
        if let Some(armed) = beginning.last.and_then(|last| last.guard_now(beginning.boot, now)) {
            node.guard.restore(armed);
        }
        node
    }

    /// Refuses while something that a later life must know is not on the disk. While the node is guarded, that is what a client
    /// has to wait for.
    pub fn ready(&self, now: BootTime) -> Result<(), Refusal> {
        if self.ledger.is_ready() { Ok(()) } else { self.guard.serve(now).and(Err(Refusal::NotYet)) }
    }

    /// Judges, once the data is loaded, what the last life left, and whether the node is guarded for it. From now on states are
    /// written, and the first has to be on the disk before anything is promised. Whether the node remembers every grant.
    pub fn judge(&mut self, start: &Start<'_>, policy: GuardPolicy, now: BootTime) -> bool {
        self.ledger.is_judged = true;
        // What its master may have granted counts when it is promoted.
        let owed_ms = self.ledger.owed.own_ms(now);
        start.judge(policy, owed_ms, self, now)
    }

    /// The state that is to be on the disk, with its number; the newest alone counts. If it is `needed`, nothing is promised before.
    /// `None`: there is no file, or it still has what the last life proves.
    pub fn state_to_write(&mut self, needed: bool, now: Now) -> Option<(u64, NodeState)> {
        if !self.ledger.is_judged || !self.ledger.has_file {
            return None;
        }
        let state = self.state(now);
        let ledger = &mut self.ledger;
        ledger.handed.number += 1;
        if needed {
            ledger.needed = ledger.handed.number;
        }
        Some((ledger.handed.number, state))
    }

    /// What a later life must know, at `now`.
    pub fn state(&mut self, now: Now) -> NodeState {
        self.tokens.sweep_stripes(now.boot);
        let (stripes, stripe_change) = self.tokens.stripe_ceilings();
        let ceiling = self.ledger.ceiling.max(self.tokens.wanted_ceiling(now.wall_us, self.skew_ms));
        let owed_ms = self.ledger.owed.ms(now.boot);
        self.ledger.ceiling = ceiling;
        self.ledger.handed = Handed { ceiling, stripe_change, owed_ms, ..self.ledger.handed };
        NodeState {
            incarnation: self.ledger.incarnation,
            ceiling,
            stripes,
            owed_ms,
            master: self.ledger.owed.master(),
            guard: self.saved_guard(now.boot),
            lifted: self.ledger.lifted,
            unproved_before: self.unproved_before(owed_ms, now.boot),
            ..NodeState::new(self.ledger.id, self.ledger.boot)
        }
    }

    /// The state with this number is on the disk, and the node's ceiling there is this.
    pub fn written(&mut self, number: u64, ceiling: u64) {
        self.ledger.on_disk = self.ledger.on_disk.max(number);
        self.tokens.set_ceiling(ceiling);
        if number >= self.ledger.handed.number {
            self.tokens.stripes_saved(self.ledger.handed.stripe_change);
        }
    }

    /// Whether a token was refused for want of a ceiling that nobody has handed out yet.
    pub fn wants_write(&self, now: Now) -> bool {
        self.tokens.wanted_ceiling(now.wall_us, self.skew_ms) > self.ledger.ceiling
            || self.tokens.stripe_changes() > self.ledger.handed.stripe_change
    }

    /// Whether a state should be written now, before anybody has to wait for it: half of the ceiling's lead is used up, or more was
    /// heard of than the disk knows. To be asked ten times a second.
    pub fn is_write_due(&self, now: Now) -> bool {
        let Handed { ceiling, stripe_change, owed_ms, .. } = self.ledger.handed;
        self.tokens.uses_up(ceiling, now.wall_us, self.skew_ms)
            || self.tokens.stripe_changes() > stripe_change
            || self.ledger.ceiling > ceiling
            || self.ledger.owed.ms(now.boot) > owed_ms
    }

    /// What a master tells its replicas: up to where they should take tokens for issued, the longest lease that may run, and the
    /// ceilings of stripes.
    pub fn tells_replicas(&self, now: Now) -> (u64, u32, Vec<StripeCeiling>) {
        let (far, stripes) = self.tokens.to_tell(now.wall_us, self.skew_ms);
        (self.ledger.ceiling.max(far), self.ledger.owed.ms(now.boot), stripes)
    }

    /// A replica hears that from its master.
    pub fn heard(&mut self, ceiling: u64, owed_ms: u32, stripes: &[StripeCeiling]) {
        self.tokens.learn_stripes(stripes);
        self.ledger.hear_of_ceiling(ceiling);
        self.ledger.owed.follow(Some(owed_ms));
    }

    /// The node follows a master, or another one: what was heard before is nothing to go by.
    pub fn follows(&mut self) {
        self.ledger.owed.follow(None);
    }

    /// A replica becomes a master. It may not know what its own master granted last.
    pub fn leads(&mut self, policy: GuardPolicy, now: Now) {
        self.ledger.owed.lead(self.skew_ms, now.boot);
        promote(policy, self.ledger.ceiling, self.ledger.owed.ms(now.boot), self, now);
    }

    /// An operator arms the guard for `ms` milliseconds, or lifts it (`None`). The disk has to know before anything else: a crash
    /// right after could bring a lifted guard back over what was granted since, or forget an armed one.
    pub fn guard_by_operator(&mut self, ms: Option<u32>, now: BootTime) {
        match ms {
            Some(ms) => self.guard.arm(Cause::Operator, now, now.plus_ms(ms)),
            None => {
                self.guard.lift();
                self.slots.lift();
                self.ledger.lifted = now;
                self.ledger.owed.lift(self.skew_ms, now);
            }
        }
        self.waiting.look_at_all();
    }
}
