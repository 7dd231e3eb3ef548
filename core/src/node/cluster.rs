//! A node in a cluster: what changes in its memory when the server's list of served slots changes.

use std::ops::RangeInclusive;

use crate::durability::start::token_floor;
use crate::durability::ties::Found;
use crate::guard::guard_ms;
use crate::guard::slot_set::{CLUSTER_SLOTS, SlotSet};
use crate::guard::slots::{Gained, Moves};
use crate::guard::sources::{Answer, FRESH_MS, MigrationId, ServerId, SourceAnswer, SourceQuestion};
use crate::node::Node;
use crate::tokens::told::TokenBounds;
use crate::values::limits::{FENCE_SPAN_US, FLOOR_MAX};
use crate::values::time::{BootTime, Now};
use crate::values::token::Token;

/// The largest bound of tokens that is believed: what operators and clients can raise tokens to, and as much again. A
/// larger one could only come from a faulty node, and would use up the tokens.
const BELIEVED_MAX: u64 = FLOOR_MAX + 2 * FENCE_SPAN_US;

impl Node {
    /// Notes that the node is part of a cluster. The locks of the slots that it serves already were loaded at its
    /// start, or it is guarded because they may be missing.
    pub fn begin_in_cluster(&mut self) {
        self.slots.begin();
    }

    /// Notes that at `now` the node serves the slots `owned`, and that `moves` are under way. Slots that came without
    /// their locks are guarded for the longest lease that this node may grant, because nobody knows what their former
    /// owner granted; so are slots that were not exported to the end. Later tokens are larger than any that the other
    /// node can have issued.
    pub fn update_slots(&mut self, owned: &SlotSet, moves: Moves, now: Now) -> Gained {
        let until = now.boot.plus_ms(self.guard_ms(now.boot));
        if !self.slots.are_exactly(owned, &moves) {
            // A lock that is free here may now be held on another node, so every watched lock is checked.
            self.watching.wake_all();
        }
        let gained = self.slots.update(owned, moves, now.boot, until);
        if gained.unknown > 0 {
            self.pass_tokens_of_others(now);
        }
        self.pass_issued_in_vain();
        gained
    }

    /// Raises tokens above those that other nodes issued in moves that were given up.
    fn pass_issued_in_vain(&mut self) {
        self.slots.issued_in_vain().iter().for_each(|issued| self.tokens.pass(issued));
    }

    /// Raises the floor above every token that the former owner of a slot can have issued.
    fn pass_tokens_of_others(&mut self, now: Now) {
        self.tokens.raise_floor(token_floor(None, &Found::default(), now.wall_us, self.skew_ms));
    }

    /// Notes that the whole node is about to be guarded, so the slots that it gains next need no guard of their own.
    pub fn cover_slots(&mut self) {
        self.slots.cover();
    }

    /// Notes that these slots are coming from the node `from` in one step with their locks, by the migration `by`.
    pub fn on_slots_arriving(&mut self, slots: RangeInclusive<u16>, from: ServerId, by: MigrationId) {
        self.slots.on_arriving(slots, from, by);
    }

    /// Notes that the migration `by` of these slots to this node has failed.
    pub fn on_slots_not_arriving(&mut self, slots: RangeInclusive<u16>, by: MigrationId) {
        self.slots.on_not_arriving(slots, by);
    }

    /// Notes that the migration `id` of slots to another node, in one step, has ended well.
    pub fn on_slots_left(&mut self, id: MigrationId, now: BootTime) {
        self.slots.on_left(id, now);
    }

    /// Notes that these slots have come to this node with their locks, by the migration `by`. It grants nothing in them
    /// until their source has said that this migration ended well, and what it has forgotten.
    pub fn on_slots_arrived(&mut self, slots: RangeInclusive<u16>, by: MigrationId, now: Now) -> Gained {
        let gained = self.slots.on_arrived(slots, by, now.boot, now.boot.plus_ms(self.guard_ms(now.boot)));
        self.pass_tokens_of_others(now);
        gained
    }

    /// Returns the nodes that have to be asked now which grants they have forgotten: those from which slots come. Each with
    /// the question.
    pub fn ask_sources(&mut self, now: BootTime) -> Vec<(ServerId, SourceQuestion)> {
        let asked = self.slots.ask_sources(now).into_iter();
        let issued = |imports: bool| if imports { self.tokens.bounds() } else { TokenBounds::default() };
        let question =
            |node: &_, imports| SourceQuestion { taken: self.slots.taken_from(node, now), issued: issued(imports) };
        asked.map(|(node, imports)| (node, question(&node, imports))).collect()
    }

    /// Takes the `answer` of the node `from` to the question of the time `asked`. If slots have come from there for good,
    /// later tokens are larger than those of that node. Returns the number of slots that are guarded because of it, and
    /// of those that are now open.
    pub fn on_source_answer(
        &mut self,
        from: ServerId,
        asked: BootTime,
        answer: SourceAnswer,
        now: BootTime,
    ) -> (usize, usize) {
        if answer.tokens.largest() > BELIEVED_MAX {
            return (0, 0);
        }
        // The other node's clock may be slower than this one's.
        let until = match answer.forgotten_ms {
            0 => BootTime::default(),
            ms => now.plus_ms(guard_ms(ms, 0)),
        };
        let tokens = answer.tokens.clone();
        let (guarded, open) = self.slots.on_source_answer(from, Answer { asked, until, said: answer }, now);
        if guarded + open > 0 {
            self.tokens.pass(&tokens);
        }
        (guarded, open)
    }

    /// Returns whether the lock `name` with this `token`, which a client's payload (RESTORE) contains, can come from this
    /// node, or from the one from which its slot is being imported.
    pub fn is_plausible(&self, name: &[u8], token: Token, now: Now) -> bool {
        self.tokens.plausible(name, token, now.wall_us, self.skew_ms)
            || self
                .slots
                .source_answer(name, now.boot)
                .is_some_and(|answer| self.tokens.is_within(name, token, &answer.said.tokens))
    }

    /// Returns the answer of this node to the node `to`, to which its slots move. Tokens are larger than those that the
    /// other one has issued, should the move be given up. The server `has` keys in these slots of those that were taken.
    /// `None` if this node does not know which grants it has forgotten, because it has not judged its start.
    pub fn source_answer(
        &mut self,
        to: &ServerId,
        SourceQuestion { taken, issued }: &SourceQuestion,
        has: &SlotSet,
        now: Now,
    ) -> Option<SourceAnswer> {
        if !self.ledger.is_judged() {
            return None;
        }
        if issued.largest() <= BELIEVED_MAX {
            self.slots.on_issued(*to, issued.clone(), now.boot);
            self.pass_issued_in_vain();
        }
        // The other node's clock may be slower than this one's.
        let until = now.boot.plus_ms(guard_ms(FRESH_MS, 0));
        let tokens = self.tokens.tell(now, self.skew_ms, until);
        let (forgotten, forgotten_ms) = self.forgotten(now.boot);
        Some(SourceAnswer {
            forgotten_ms,
            forgotten,
            doubted: self.doubted(now.boot),
            kept: self.slots.kept(taken, has),
            unsettled: self.slots.unsettled(to, now.boot),
            exported: self.slots.exported_to(to),
            ended: self.slots.left(now.boot),
            tokens,
        })
    }

    /// Returns the slots in which this node may have forgotten grants, and the longest time, in milliseconds, for which
    /// such a grant may still last; 0 if it has forgotten none.
    fn forgotten(&self, now: BootTime) -> (SlotSet, u32) {
        let (mut slots, mut last) = (SlotSet::default(), None);
        for (slot, end) in self.slots.forgotten(now).chain(self.evicted.ends()).filter(|(_, end)| now <= *end) {
            slots.set(slot, true);
            last = last.max(Some(end));
        }
        if let Some(armed) = self.guard.armed(now) {
            slots.insert(0..=CLUSTER_SLOTS - 1);
            last = last.max(Some(armed.until));
        }
        let left_ms = |end: BootTime| u32::try_from(end.ms_since_rounded_up(now).max(1)).unwrap_or(u32::MAX);
        (slots, last.map_or(0, left_ms))
    }

    /// Returns the slots of whose grants the node is not sure: an owner may have lost its lock to one that the node has
    /// forgotten.
    fn doubted(&self, now: BootTime) -> SlotSet {
        let mut slots = SlotSet::default();
        self.slots.doubted(now).for_each(|slot| slots.set(slot, true));
        if self.guard.armed(now).is_some_and(|armed| armed.doubts_locks()) {
            slots.insert(0..=CLUSTER_SLOTS - 1);
        }
        slots
    }

    /// Notes that the server deleted the live lock `name`, whose lease would have ended at `end`. If it turns
    /// out that the server emptied the whole slot, the slot is guarded.
    pub fn on_dropped_in_slot(&mut self, name: &[u8], end: BootTime) {
        self.slots.drop_lock(name, end);
    }

    /// Notes what the recent deletions were: a flush of whole slots (true), or deletions of single keys. Returns the
    /// number of slots that are guarded because of it.
    pub fn confirm_slot_flush(&mut self, is_flush: bool) -> usize {
        self.slots.confirm_flush(is_flush)
    }

    /// Returns the length of a guard that is armed at `now` if nobody knows which leases run, in milliseconds.
    pub fn guard_ms(&self, now: BootTime) -> u32 {
        // Another node may rely on an answer of this slot's former master, and extend a lease until that answer is old.
        let relied_on_ms = if self.slots.is_in_cluster() { FRESH_MS } else { 0 };
        guard_ms(self.ledger.outstanding_ttl().ms(now), self.skew_ms).saturating_add(relied_on_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::token;
    use crate::guard::slot_set::slot_of;
    use crate::refusal::Refusal;
    use crate::tokens::Tokens;
    use crate::values::key::Key;

    /// The lead of the second node's clock, in microseconds.
    const AHEAD_US: u64 = 2_000_000;

    const NAME: ServerId = [b'o'; 40];

    /// A key in a slot of each node. The other node imports that slot.
    const KEYS: [&[u8]; 2] = [b"k", b"foo"];

    /// Two nodes of a cluster. Each imports a slot from the other.
    struct Two([Node; 2]);

    impl Two {
        fn new() -> Self {
            let mut nodes = Self([Node::new(10), Node::new(10)]);
            for which in 0..2 {
                nodes.0[which].begin_in_cluster();
                nodes.looks(which, 0);
            }
            nodes
        }

        fn now(which: usize, us: u64) -> Now {
            Now::new(BootTime::from_us(us), us + which as u64 * AHEAD_US)
        }

        /// The node reads its slots: half of the cluster's.
        fn looks(&mut self, which: usize, us: u64) {
            let mut owned = SlotSet::default();
            let half = CLUSTER_SLOTS / 2;
            owned.insert(if which == 0 { 0..=half - 1 } else { half..=CLUSTER_SLOTS - 1 });
            let imported = [(slot_of(KEYS[1 - which]), Some(NAME))].into();
            let exported = [(slot_of(KEYS[which]), NAME)].into();
            self.0[which].update_slots(&owned, Moves { imported, exported }, Self::now(which, us));
        }

        /// The node asks the other one, and hears its answer.
        fn asks(&mut self, which: usize, us: u64) {
            let boot = BootTime::from_us(us);
            let [(NAME, issued)] = &self.0[which].ask_sources(boot)[..] else { panic!() };
            let answer =
                self.0[1 - which].source_answer(&NAME, issued, &SlotSet::default(), Self::now(1 - which, us)).unwrap();
            self.0[which].on_source_answer(NAME, boot, answer, boot);
        }

        /// The node issues a token for a key of node `of`.
        fn issues(&mut self, which: usize, of: usize, us: u64) -> Result<u64, Refusal> {
            let (node, now) = (&mut self.0[which], Self::now(which, us));
            node.prepare_token(Key { db: 0, name: KEYS[of] }, None, now)?;
            node.tokens.issue(KEYS[of], None, now, 0).map(Token::get)
        }
    }

    #[test]
    fn a_long_import_issues_larger_tokens_than_the_source() {
        let mut nodes = Two::new();
        let long_after_us = 60_000_000;
        nodes.issues(1, 1, long_after_us).unwrap();
        nodes.asks(0, long_after_us);
        // The source may issue tokens after its answer, and give the lock back before the answer is old.
        let last_us = long_after_us + u64::from(FRESH_MS) * 1_000;
        let there = nodes.issues(1, 1, last_us).unwrap();
        assert!(nodes.issues(0, 1, last_us).unwrap() > there);
        // Its tokens may be ahead of its clock, so that each adds one, until it has issued as many as it told.
        nodes.0[1].raise_floor(long_after_us + 10 * AHEAD_US);
        nodes.asks(0, last_us + 10_001);
        let issued: Vec<_> = (0..2_000).map_while(|_| nodes.issues(1, 1, last_us + 10_001).ok()).collect();
        assert!((1_000..2_000).contains(&issued.len()), "{} until it is refused", issued.len());
        assert!(nodes.issues(0, 1, last_us + 10_001).unwrap() > issued[issued.len() - 1]);
    }

    #[test]
    fn a_clock_that_is_set_forward_issues_nothing_above_the_answer() {
        let mut nodes = Two::new();
        nodes.asks(0, 60_000_000);
        let later = Now::new(BootTime::from_us(60_000_001), 70_000_000);
        let key = Key { db: 0, name: KEYS[1] };
        assert!(matches!(nodes.0[1].prepare_token(key, None, later), Err(Refusal::SlotGuarded { left_ms: 202 })));
        assert_eq!(nodes.0[1].prepare_token(Key { db: 0, name: b"bar" }, None, later), Ok(()), "its slot stays");
    }

    /// The move of a slot is given up, at one node or the other first. The other one had issued tokens far ahead.
    #[test]
    fn a_move_that_is_given_up_leaves_larger_tokens() {
        let no_moves = |nodes: &mut Two, which: usize| {
            let owned = if which == 0 { 0..=CLUSTER_SLOTS / 2 - 1 } else { CLUSTER_SLOTS / 2..=CLUSTER_SLOTS - 1 };
            let mut slots = SlotSet::default();
            slots.insert(owned);
            nodes.0[which].update_slots(&slots, Moves::default(), Two::now(which, 60_000_002));
        };
        for target_first in [false, true] {
            let (mut nodes, us) = (Two::new(), 60_000_000);
            nodes.asks(0, us);
            nodes.0[0].raise_floor(us + 100 * AHEAD_US);
            let there = nodes.issues(0, 1, us).unwrap();
            if target_first {
                no_moves(&mut nodes, 0);
                nodes.asks(0, us + 10_001);
                no_moves(&mut nodes, 1);
            } else {
                nodes.asks(0, us + 10_001);
                no_moves(&mut nodes, 1);
            }
            assert!(nodes.issues(1, 1, us + 10_003).unwrap() > there, "the target gives up first: {target_first}");
        }
    }

    #[test]
    fn tokens_far_ahead_go_along_with_their_keys_alone() {
        let mut nodes = Two::new();
        let (us, far) = (60_000_000, token(1 << 44));
        nodes.0[1].tokens.set_ceiling(us);
        nodes.0[1].tokens.observe(KEYS[1], far);
        let answer =
            nodes.0[1].source_answer(&NAME, &SourceQuestion::default(), &SlotSet::default(), Two::now(1, us)).unwrap();
        nodes.asks(0, us);
        assert!(nodes.issues(0, 1, us).unwrap() > far.get());
        // The slot has come for good.
        let node = &mut Two::new().0[0];
        node.tokens.pass(&answer.tokens);
        assert!(node.tokens.issue(KEYS[1], None, Two::now(0, us), 0).unwrap() > far);
        assert!(node.tokens.issue(b"other", None, Two::now(0, us), 0).unwrap().get() < us + 3 * AHEAD_US);
        // A bound that only a faulty node has is not believed.
        let tokens = TokenBounds { highest: u64::MAX, stripes: vec![] };
        let boot = BootTime::from_us(us + 10_001);
        nodes.0[0].ask_sources(boot);
        nodes.0[0].on_source_answer(NAME, boot, SourceAnswer { tokens, ..answer }, boot);
        assert!(nodes.issues(0, 1, us + 200_001).unwrap() < 1 << 50);
    }

    /// The node has as many stripes with a ceiling of their own as it allows clients. Bounds of another node come on top.
    #[test]
    fn tokens_far_ahead_go_along_whatever_room_there_is() {
        let (us, far) = (60_000_000, 1 << 44);
        let mut nodes = Two::new();
        for node in &mut nodes.0 {
            node.tokens = Tokens::with_stripes(10, 1 << 16, 1);
            node.tokens.set_ceiling(2 * us);
        }
        nodes.0[0].tokens.observe(b"own", token(far));
        nodes.0[1].tokens.observe(KEYS[1], token(far));
        nodes.asks(0, us);
        let issues = |nodes: &mut Two| {
            assert_eq!(nodes.issues(0, 1, us), Err(Refusal::NotYet), "the ceiling has to be written first");
            let (_, change) = nodes.0[0].tokens.stripe_ceilings();
            nodes.0[0].tokens.stripes_saved(change);
            nodes.issues(0, 1, us).unwrap()
        };
        assert!(issues(&mut nodes) > far);
        // The slot has come for good.
        let answer =
            nodes.0[1].source_answer(&NAME, &SourceQuestion::default(), &SlotSet::default(), Two::now(1, us)).unwrap();
        nodes.0[0].tokens = Tokens::with_stripes(10, 1 << 16, 1);
        nodes.0[0].tokens.set_ceiling(2 * us);
        nodes.0[0].tokens.observe(b"own", token(far));
        nodes.0[0].tokens.pass(&answer.tokens);
        assert!(issues(&mut nodes) > far);
        assert!(nodes.0[0].tokens.issue(b"other", None, Two::now(0, us), 0).unwrap().get() < far, "other keys do not");
    }

    #[test]
    fn nodes_that_import_from_each_other_grant_and_do_not_run_ahead_of_their_clocks() {
        let mut nodes = Two::new();
        let (minute_us, mut last) = (60_000_000, 0);
        for us in (20_000_000..minute_us).step_by(10_000) {
            for which in 0..2 {
                nodes.asks(which, us);
                nodes.issues(which, which, us).unwrap();
                last = nodes.issues(which, 1 - which, us).unwrap();
            }
        }
        let by_clock = u64::from(nodes.0[0].skew_ms + FRESH_MS + 10) * 1_000;
        let ahead = last - Two::now(1, minute_us).wall_us;
        assert!(ahead < by_clock, "{ahead} us ahead of the faster clock");
    }
}
