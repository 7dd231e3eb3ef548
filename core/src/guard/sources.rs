//! The nodes from which slots of the cluster come, and what these nodes say of the grants that they have forgotten.
//!
//! A slot brings only the locks that its former owner still knows. If that node is guarded, it may have forgotten
//! others, whose holders still rely on them. So the new owner asks it how long such grants may last, and grants nothing
//! in the slot before it has the answer.

use std::collections::BTreeMap;

use crate::guard::slot_set::SlotSet;
use crate::tokens::told::TokenBounds;
use crate::values::time::BootTime;

/// The name that the cluster gives to a server.
pub type ServerId = [u8; 40];

/// The time for which an answer counts for a slot that is still being imported, in milliseconds: two rounds of
/// questions. A node that restarts redirects nobody during its first two seconds. After them an answer from before the
/// restart no longer counts.
pub const FRESH_MS: u32 = 200;

/// The longest time, in milliseconds, for which a node waits for the answer about a slot that has come from another
/// node. Later the other node has perhaps ended, and the answer might be that of a node that never handed its keys
/// over.
pub const ANSWERS_WITHIN_MS: u32 = 1_000;

/// The pause between two questions to the same node, in milliseconds, unless another slot has come from it.
pub const ASK_AGAIN_MS: u32 = 10;

/// The cluster's name for a migration of slots in one step: the same at the node that they leave and at the one to which
/// they come.
pub type MigrationId = [u8; 40];

/// A question to a node from which slots come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceQuestion {
    /// The slots that the node that asks has taken over from there, key by key.
    pub taken: SlotSet,
    /// The bounds of the tokens that it may have issued in the slots that it imports from there.
    pub issued: TokenBounds,
}

/// The answer of a node from which slots come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceAnswer {
    /// The longest time for which a grant that the node has forgotten may still last, in milliseconds; 0 if it has
    /// forgotten none. This does not count the slots that are `unsettled`.
    pub forgotten_ms: u32,
    /// The slots in which it may have forgotten a grant.
    pub forgotten: SlotSet,
    /// The slots among these in which it may also have forgotten that grants ended which it still knows.
    pub doubted: SlotSet,
    /// The slots that the other node has taken over although this one still has keys there, or never exported them. Their
    /// locks are not known to the other node, and are deleted here.
    pub kept: SlotSet,
    /// The slots that came to the node a moment ago, so that it waits for an answer about them itself.
    pub unsettled: SlotSet,
    /// The slots that the node exports key by key to the one that asked.
    pub exported: SlotSet,
    /// The migrations in one step, from the node, that ended well a moment ago: it granted nothing in their slots after
    /// the last change that it sent.
    pub ended: Vec<MigrationId>,
    /// The bounds of the tokens with which the node grants locks in these slots while its answer counts.
    pub tokens: TokenBounds,
}

/// An answer, as the node that asked keeps it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The time at which the question was asked.
    pub asked: BootTime,
    /// The end of the last grant that the source may have forgotten, in one of the slots that it names; the past if there
    /// is none.
    pub until: BootTime,
    /// The source's own words.
    pub said: SourceAnswer,
}

/// The way in which a slot comes with its locks.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub from: ServerId,
    /// The migration by which it comes in one step; `None` if it comes key by key.
    pub by: Option<MigrationId>,
}

/// A slot that has come with its locks, but whose source (the node from which it came) has not yet said which grants it
/// forgot, and that it granted nothing there since.
#[derive(Clone, Copy, Debug)]
pub struct Unsettled {
    pub way: Way,
    /// The time at which the slot came. Only the answer to a later question counts.
    pub since: BootTime,
    /// The end of the slot's guard if no answer comes.
    pub until: BootTime,
}

impl Unsettled {
    /// Returns whether the source's answer still counts at `now`.
    pub fn awaits_answer(&self, now: BootTime) -> bool {
        now <= self.since.plus_ms(ANSWERS_WITHIN_MS)
    }

    /// Returns the time until which a request is refused at `now`: the source's answer may come at any moment, or comes
    /// no more.
    pub fn refuses_until(&self, now: BootTime) -> BootTime {
        if self.awaits_answer(now) { now.plus_ms(ASK_AGAIN_MS).min(self.until) } else { self.until }
    }
}

/// A node from which slots come.
#[derive(Clone, Debug, Default)]
struct Source {
    asked: Option<BootTime>,
    answer: Option<Answer>,
}

/// The nodes from which slots come.
#[derive(Clone, Debug, Default)]
pub struct Sources(BTreeMap<ServerId, Source>);

impl Sources {
    /// Keeps the nodes for which `comes_from` returns true, and forgets the others.
    pub fn keep(&mut self, comes_from: impl Fn(&ServerId) -> bool) {
        self.0.retain(|node, _| comes_from(node));
    }

    /// Returns whether `node` has to be asked at `now`. `since` is the time at which the last slot came from it, or began
    /// to. If so, notes that it is asked.
    pub fn ask(&mut self, node: ServerId, since: BootTime, now: BootTime) -> bool {
        let asked = &mut self.0.entry(node).or_default().asked;
        let is_due = asked.is_none_or(|last| last.plus_ms(ASK_AGAIN_MS) <= now || last < since);
        if is_due {
            *asked = Some(now);
        }
        is_due
    }

    /// Takes the answer of `node`, and returns it. `None` if its question was not asked, or if a later one is already
    /// answered.
    pub fn on_answer(&mut self, node: &ServerId, answer: Answer) -> Option<&Answer> {
        let source = self.0.get_mut(node)?;
        let is_newer = source.answer.as_ref().is_none_or(|last| last.asked <= answer.asked);
        if source.asked.is_none_or(|last| last < answer.asked) || !is_newer {
            return None;
        }
        Some(source.answer.insert(answer))
    }

    /// Returns the answer of `node` to a question that was asked at `since` or later, and within the last [`FRESH_MS`];
    /// `None` if there is none.
    pub fn answer(&self, node: &ServerId, since: BootTime, now: BootTime) -> Option<&Answer> {
        let answer = self.0.get(node)?.answer.as_ref()?;
        (since <= answer.asked && now <= answer.asked.plus_ms(FRESH_MS)).then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ms;

    const FROM: ServerId = [b'a'; 40];

    fn answer(asked: BootTime, until: BootTime) -> Answer {
        Answer { asked, until, said: SourceAnswer::default() }
    }

    fn forgot_until(sources: &Sources, since: BootTime, now: BootTime) -> Option<BootTime> {
        sources.answer(&FROM, since, now).map(|answer| answer.until)
    }

    #[test]
    fn a_node_is_asked_again_after_a_pause_or_if_another_slot_has_come() {
        let mut sources = Sources::default();
        assert!(sources.ask(FROM, ms(0), ms(100)));
        assert!(!sources.ask(FROM, ms(0), ms(109)));
        assert!(!sources.ask(FROM, ms(100), ms(105)), "the question of that moment counts");
        assert!(sources.ask(FROM, ms(101), ms(105)));
        assert!(sources.ask(FROM, ms(0), ms(115)));
        assert!(sources.ask([b'b'; 40], ms(0), ms(115)), "another node");
    }

    #[test]
    fn an_answer_counts_for_a_while_and_for_slots_that_came_before_the_question() {
        let mut sources = Sources::default();
        assert!(sources.on_answer(&FROM, answer(ms(1), ms(0))).is_none(), "nobody asked");
        sources.ask(FROM, ms(0), ms(100));
        assert!(sources.on_answer(&FROM, answer(ms(101), ms(0))).is_none(), "that was not asked");
        assert_eq!(forgot_until(&sources, ms(0), ms(100)), None);
        assert!(sources.on_answer(&FROM, answer(ms(100), ms(5_000))).is_some());
        assert_eq!(forgot_until(&sources, ms(100), ms(300)), Some(ms(5_000)));
        assert_eq!(forgot_until(&sources, ms(100), ms(301)), None, "too old");
        assert_eq!(forgot_until(&sources, ms(101), ms(300)), None, "asked before the slot came");
        sources.ask(FROM, ms(0), ms(200));
        sources.ask(FROM, ms(0), ms(300));
        assert!(sources.on_answer(&FROM, answer(ms(300), ms(0))).is_some());
        assert!(sources.on_answer(&FROM, answer(ms(200), ms(9_000))).is_none(), "a later question has been answered");
        assert_eq!(forgot_until(&sources, ms(0), ms(300)), Some(ms(0)));
        sources.keep(|_| false);
        assert_eq!(forgot_until(&sources, ms(0), ms(300)), None);
    }
}
