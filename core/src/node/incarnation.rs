//! The life of an incarnation: how a node begins one, which state must be on the disk, and how it becomes a replica or
//! a master.
//!
//! The state file's writer takes a state from [`Node::state_to_write`], and reports with [`Node::on_written`] that it
//! is on the disk.

use crate::durability::ledger::{Beginning, Ledger};
use crate::durability::node_state::NodeState;
use crate::durability::start::{GuardPolicy, Start};
use crate::guard::evicted::Evicted;
use crate::guard::guard_ms;
use crate::keepalive::KeepAlives;
use crate::members::Membership;
use crate::node::Node;
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::tokens::Tokens;
use crate::tokens::stripe_ceilings::StripeCeiling;
use crate::values::cause::Cause;
use crate::values::time::{BootTime, Now, ahead_us};

impl Node {
    /// Begins an incarnation at `now`. Its `tokens` start at the floor that [`crate::token_floor`] returns. The node
    /// grants nothing before its start is judged ([`Node::judge`]) and its first state is on the disk.
    pub fn begin(beginning: &Beginning<'_>, mut tokens: Tokens, now: BootTime) -> Self {
        if let Some(last) = beginning.last {
            // The last ceiling counts until a new one is on the disk. Until then no token is issued, since no stripe is
            // below the last ceiling.
            tokens.set_ceiling(last.ceiling);
            tokens.restore_stripes(&last.stripes);
        } else if beginning.has_file {
            tokens.set_ceiling(0);
        }
        let mut node =
            Self { ledger: Ledger::new(beginning, now), skew_ms: beginning.skew_ms, ..Self::with_tokens(tokens) };
        if let Some(last) = beginning.last {
            let longest_ms = node.ledger.outstanding_ttl().own_ms(now);
            node.membership = Membership::restore(last.members.clone(), longest_ms, now);
        }
        if let Some(armed) = beginning.last.and_then(|last| last.guard_now(beginning.boot, now)) {
            node.guard.restore(armed);
        }
        node
    }

    /// Refuses while the disk lacks something that a later incarnation must know. If the node is also guarded then, the
    /// refusal is the guard's, because the client has to wait for the guard's end anyway. A guard alone is no reason to
    /// refuse here.
    pub fn ready(&self, now: BootTime) -> Result<(), Refusal> {
        if self.ledger.is_ready() { Ok(()) } else { self.guard.ensure_open(now).and(Err(Refusal::NotYet)) }
    }

    /// Judges, once the data is loaded, whether the node remembers every grant of the last incarnation; if not, arms
    /// the guard. Returns that judgement. From now on states are written, and the first must be on the disk before the
    /// node grants anything.
    pub fn judge(&mut self, start: &Start<'_>, policy: GuardPolicy, now: BootTime) -> bool {
        let outstanding_ttl_ms = self.ledger.on_judged(now);
        let verdict = start.judge(policy, now);
        if verdict.is_guarded {
            self.arm_guard(Cause::Restart, now, now.plus_ms(guard_ms(outstanding_ttl_ms, self.skew_ms)));
        }
        // The guard was armed on another boot, so its times mean nothing here. Every loaded lock counts as granted
        // before its cause.
        if !verdict.is_same_boot {
            self.guard.since_now(now);
        }
        self.trusted_since = verdict.trusted_since;
        verdict.is_proved
    }

    /// Returns the state to write, with its number; only the newest one counts. If a write is `needed`, the node grants
    /// nothing before this state is on the disk. `None` if there is no state file, or if the file must keep what the
    /// last incarnation proves.
    pub fn state_to_write(&mut self, needed: bool, now: Now) -> Option<(u64, NodeState)> {
        self.ledger.writes().then(|| (self.ledger.number(needed), self.state(now)))
    }

    /// Returns the node's state at `now`, as the state file keeps it for a later incarnation.
    pub fn state(&mut self, now: Now) -> NodeState {
        let state = self.ledger.state(self.saved_guard(now.boot), &mut self.tokens, self.skew_ms, now);
        let unproved_before = self.unproved_before(state.outstanding_ttl_ms, now.boot);
        NodeState { unproved_before, members: self.membership.saved().clone(), ..state }
    }

    /// Notes that the state with this number, which has this ceiling, is on the disk.
    pub fn on_written(&mut self, number: u64, ceiling: u64) {
        self.ledger.on_written(number, ceiling, &mut self.tokens);
    }

    /// Notes that the stamp beside the data names this incarnation now.
    pub fn on_stamped(&mut self) {
        self.ledger.on_stamped();
    }

    /// Sets whether another server has taken the state file. Then this node may grant nothing under its name.
    pub fn set_file_taken(&mut self, is_taken: bool) {
        self.ledger.set_file_taken(is_taken);
    }

    /// Raises the floor of tokens to `token`: an operator asked for it (LOCK.FLOOR), or another node may have issued
    /// tokens up to there. Returns the floors before and after.
    pub fn raise_floor(&mut self, token: u64) -> (u64, u64) {
        let before = self.tokens.floor();
        if token > before {
            self.tokens.raise_floor(token);
        }
        (before, self.tokens.floor())
    }

    /// Forgets evicted locks whose leases have ended. The driver calls this ten times a second.
    pub fn sweep(&mut self, now: BootTime) {
        self.evicted.sweep(now);
    }

    /// Returns whether a request was refused because its token is above the ceiling of every state handed to the file's
    /// writer. Then a state with a larger ceiling has to be written.
    pub fn is_write_needed(&self, now: Now) -> bool {
        self.ledger.is_write_needed(&self.tokens, self.skew_ms, now)
    }

    /// Returns whether a state should be written now, before a request has to wait for that. The driver calls it ten
    /// times a second.
    pub fn is_write_due(&self, now: Now) -> bool {
        self.ledger.is_write_due(&self.tokens, self.skew_ms, now)
    }

    /// Returns the values that a master sends to its replicas: the ceiling up to which tokens may be issued, the
    /// longest lease that may run, and the ceilings of stripes.
    pub fn replica_news(&self, now: Now) -> (u64, u32, Vec<StripeCeiling>) {
        let (far, stripes) = self.tokens.to_tell(now.wall_us, self.skew_ms);
        (self.ledger.ceiling().max(far), self.ledger.outstanding_ttl().ms(now.boot), stripes)
    }

    /// Notes, on a replica, the values that its master sent, those of [`Node::replica_news`].
    pub fn on_master_values(&mut self, ceiling: u64, outstanding_ttl_ms: u32, stripes: &[StripeCeiling]) {
        self.tokens.observe_stripes(stripes);
        self.ledger.on_master_values(ceiling, outstanding_ttl_ms);
    }

    /// Notes that the node follows a master now, or another one. A BREAK in progress is refused: the client can ask the
    /// master for the rest. Returns the leases that the node renewed, because to drop many takes long.
    pub fn become_replica(&mut self) -> KeepAlives {
        // From now on the master renews the leases of its own clients; this node renews none.
        let renewed = self.keepalives.clear();
        for breaking in std::mem::take(&mut self.breaking) {
            self.tell_of_break(&breaking, Answer::Refused(Refusal::MasterOnly));
        }
        self.ledger.become_replica();
        renewed
    }

    /// Makes a replica a master. The former master issued tokens up to the ceiling that this node learned of, and may
    /// have granted leases that never reached it.
    pub fn become_master(&mut self, policy: GuardPolicy, now: Now) {
        self.ledger.become_master(self.skew_ms, now.boot);
        self.tokens.raise_floor(self.ledger.ceiling().max(ahead_us(now.wall_us, self.skew_ms)));
        if policy != GuardPolicy::Never {
            self.arm_guard(Cause::Promotion, now.boot, now.boot.plus_ms(self.guard_ms(now.boot)));
        }
    }

    /// Arms the guard for an operator, for `ms` milliseconds, or lifts it (`None`). Returns whether that must be on the
    /// disk before anything else happens: otherwise a crash could bring back a lifted guard, which would cover newer
    /// grants, or lose an armed one.
    pub fn guard_by_operator(&mut self, ms: Option<u32>, now: BootTime) -> bool {
        match ms {
            Some(ms) => {
                // Nothing was granted since the cause of the present guard. So a guard for a later cause has to doubt
                // the same locks.
                let doubts_locks = self.guard.armed(now).is_some_and(|armed| armed.doubts_locks());
                self.arm_guard(Cause::Operator, now, now.plus_ms(ms));
                if doubts_locks && self.ledger.has_guard(self.saved_guard(now)) {
                    return false;
                }
            }
            None if self.evicted.is_empty()
                && self.saved_guard(now).is_none()
                && !self.ledger.outstanding_ttl().has_unseen(now) =>
            {
                return false;
            }
            None => {
                self.guard.lift();
                // If the last flush turns out to be a reload, that must not restore the guard from before the flush.
                if let Some(flush) = &mut self.flush {
                    flush.guard.lift();
                }
                self.slots.lift();
                self.evicted = Evicted::default();
                self.ledger.lift(self.skew_ms, now);
            }
        }
        self.waiting.wake_all();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::ties::Found;
    use crate::fixture::at;
    use crate::values::time::BootId;

    fn node_with_a_file() -> Node {
        let beginning = Beginning {
            last: None,
            found: &Found::default(),
            has_file: true,
            new_id: 1,
            boot: BootId([0; 16]),
            max_ttl_ms: 1_000,
            skew_ms: 0,
            is_master: true,
        };
        let mut node = Node::begin(&beginning, Tokens::new(10), at(0).boot);
        node.ledger.on_judged(at(0).boot);
        node
    }

    /// Takes a state to write, and returns the function that reports it as written.
    fn hand_out(node: &mut Node, ms: u64) -> impl FnOnce(&mut Node) + use<> {
        let (number, state) = node.state_to_write(true, at(ms)).unwrap();
        move |node| node.on_written(number, state.ceiling)
    }

    fn arm(node: &mut Node, ms: u32, now: u64) -> bool {
        node.guard_by_operator(Some(ms), at(now).boot)
    }

    #[test]
    fn a_guard_that_the_disk_has_is_not_written_again() {
        let mut node = node_with_a_file();
        assert!(arm(&mut node, 5_000, 100));
        let write = hand_out(&mut node, 100);
        assert!(arm(&mut node, 5_000, 101), "the disk has not got it yet");
        write(&mut node);
        assert!(!arm(&mut node, 5_000, 102) && !arm(&mut node, 1, 103) && !arm(&mut node, 5_000, 1_000));
        assert_eq!(node.guard.left_ms(at(1_000).boot), 5_000, "the guard itself is exact");
        // This later state has the same guard, so nothing waits for its write.
        let _not_written = hand_out(&mut node, 1_000);
        assert!(!arm(&mut node, 5_000, 1_000));
        assert!(arm(&mut node, 5_000, 1_001), "it ends in the next second");
    }

    /// After a second guard the node is also unsure of locks that were granted after the first one. So the second guard
    /// is written even if the disk has a guard with the same end.
    #[test]
    fn a_guard_is_written_if_it_doubts_more_locks() {
        let mut node = node_with_a_file();
        assert!(arm(&mut node, 500, 0));
        hand_out(&mut node, 0)(&mut node);
        assert!(arm(&mut node, 300, 600), "the last one had ended");
        hand_out(&mut node, 600)(&mut node);
        assert!(node.guard_by_operator(None, at(610).boot));
        hand_out(&mut node, 610)(&mut node);
        assert!(arm(&mut node, 300, 620));

        let mut node = node_with_a_file();
        node.arm_guard(Cause::Flush, at(0).boot, at(9_000).boot);
        hand_out(&mut node, 0)(&mut node);
        assert!(arm(&mut node, 1, 10), "a flush makes no lock doubtful");
        hand_out(&mut node, 10)(&mut node);
        assert!(!arm(&mut node, 1, 20));
    }
}
