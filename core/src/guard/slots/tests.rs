use super::leaving::ENDED_TOLD_MAX;
use super::*;
use crate::guard::sources::SourceAnswer;

const NOW: BootTime = BootTime::from_us(1_000_000);
const END: BootTime = BootTime::from_us(63_600_000);

fn set(slots: RangeInclusive<u16>) -> SlotSet {
    let mut set = SlotSet::default();
    set.insert(slots);
    set
}

fn none() -> SlotSet {
    SlotSet::default()
}

const FROM: ServerId = [b'f'; 40];

/// The migrations in one step: the one that ended well, and another.
const BY: MigrationId = [b'1'; 40];
const OTHER: MigrationId = [b'2'; 40];

/// A node to which slots move on.
const BACK: ServerId = [b'n'; 40];

fn imports(slots: RangeInclusive<u16>) -> Moves {
    Moves { imported: slots.map(|slot| (slot, Some(FROM))).collect(), ..Moves::default() }
}

fn exports(slot: u16, to: ServerId) -> Moves {
    Moves { exported: BTreeMap::from([(slot, to)]), ..Moves::default() }
}

fn no_moves() -> Moves {
    Moves::default()
}

/// Returns the slots of a cluster's node that has read them, and serves none.
fn empty() -> Slots {
    let mut slots = Slots::default();
    slots.begin();
    assert_eq!(slots.update(&none(), no_moves(), NOW, END), Gained::default());
    slots
}

#[test]
fn outside_a_cluster_nothing_is_refused() {
    let mut slots = Slots::default();
    slots.drop_lock(b"k", END);
    assert!(slots.is_known(b"k") && !slots.has_deleted());
    assert_eq!(slots.update(&set(0..=9), no_moves(), NOW, END), Gained::default());
    assert_eq!((slots.ensure_open(b"k", NOW), slots.guarded(NOW)), (Ok(()), 0));
}

#[test]
fn slots_of_the_start_and_of_a_promotion_are_covered() {
    let mut slots = Slots::default();
    slots.begin();
    assert_eq!(slots.update(&set(0..=9_999), no_moves(), NOW, END), Gained { unknown: 10_000, guarded: 0 });
    assert!(slots.is_known(b"k"));
    slots.update(&none(), no_moves(), NOW, END);
    assert!(!slots.is_known(b"k"), "what is lost is not known any more");
    slots.cover();
    assert_eq!(slots.update(&set(0..=9_999), no_moves(), NOW, END).guarded, 0);
}

#[test]
fn a_slot_without_its_locks_is_guarded_alone() {
    let mut slots = empty();
    let foo = 12_182..=12_182;
    slots.update(&set(foo.clone()), no_moves(), NOW, END);
    slots.lift();
    let mut more = set(7_629..=7_630);
    more.insert(foo);
    assert_eq!(slots.update(&more, no_moves(), NOW, END), Gained { unknown: 2, guarded: 2 });
    assert_eq!(slots.ensure_open(b"k", NOW), Err(Refusal::SlotGuarded { left_ms: 62_600 }));
    assert_eq!(slots.ensure_open(b"foo", NOW), Ok(()));
    assert_eq!((slots.guarded(NOW), slots.guarded_until(NOW)), (2, Some(END)));
    // The slot was lost and comes again. Its guard counts again: it was not forgotten meanwhile.
    slots.update(&none(), no_moves(), NOW, END);
    assert_eq!(slots.guarded(NOW), 2);
    slots.update(&set(7_629..=7_629), no_moves(), NOW, END.plus_ms(5));
    assert_eq!(slots.guarded_until(NOW), Some(END.plus_ms(5)));
    let after = END.plus_ms(6);
    assert_eq!((slots.ensure_open(b"k", after), slots.guarded(after)), (Ok(()), 0));
    slots.lift();
    assert_eq!(slots.ensure_open(b"k", NOW), Ok(()));
}

const ASKED: BootTime = BootTime::from_us(1_000_001);

/// Returns an answer of a source that exports slots 7629 and 7630, and may have forgotten grants that last until `until`.
fn answer(asked: BootTime, until: BootTime) -> Answer {
    let slots = set(7_629..=7_630);
    let said = SourceAnswer { exported: slots.clone(), forgotten: slots, ended: vec![BY], ..SourceAnswer::default() };
    Answer { asked, until, said }
}

/// Returns the milliseconds for which the lock `k` (slot 7629) is refused at `now`.
fn refused(slots: &Slots, now: BootTime) -> u64 {
    match slots.ensure_open(b"k", now) {
        Err(Refusal::SlotGuarded { left_ms }) => left_ms,
        other => {
            assert_eq!(other, Ok(()));
            0
        }
    }
}

#[test]
fn a_slot_is_open_while_it_is_imported_if_its_source_forgot_nothing() {
    let mut slots = empty();
    slots.update(&none(), imports(7_629..=7_629), NOW, END);
    assert_eq!(refused(&slots, NOW), 10, "the source is asked first");
    assert_eq!(slots.ask_sources(NOW), [(FROM, true)]);
    assert!(slots.ask_sources(NOW).is_empty(), "it has been asked");
    slots.on_source_answer(FROM, answer(NOW, BootTime::default()), NOW);
    assert_eq!(refused(&slots, NOW.plus_ms(200)), 0);
    assert_eq!(refused(&slots, NOW.plus_ms(201)), 10, "the answer is old");
    let later = NOW.plus_ms(2_000);
    assert_eq!(slots.ask_sources(later), [(FROM, true)]);
    slots.on_source_answer(FROM, answer(later, later.plus_ms(700)), later);
    assert_eq!(refused(&slots, later), 700);
    let after = later.plus_ms(701);
    assert_eq!(refused(&slots, after), 10, "an older answer says nothing of now");
    // Another slot is imported from the same node, whose answer is from before.
    assert_eq!(slots.ask_sources(after), [(FROM, true)]);
    slots.on_source_answer(FROM, answer(after, BootTime::default()), after);
    assert_eq!(refused(&slots, after), 0);
    slots.update(&none(), no_moves(), after, END);
    slots.update(&none(), imports(7_629..=7_629), after.plus_us(1), END);
    assert_eq!(refused(&slots, after.plus_us(1)), 10);
}

/// The source of an import cannot be reached, or serves the slot no more. Its keys may never come.
#[test]
fn a_slot_without_a_source_is_refused_while_it_is_imported_and_guarded_afterwards() {
    let mut slots = empty();
    slots.update(&none(), imports(7_629..=7_629), NOW, END);
    slots.ask_sources(NOW);
    slots.on_source_answer(FROM, answer(NOW, BootTime::default()), NOW);
    assert_eq!(refused(&slots, NOW), 0);
    slots.update(&none(), Moves { imported: BTreeMap::from([(7_629, None)]), ..Moves::default() }, NOW, END);
    assert_eq!(slots.ask_sources(END), [(FROM, true)], "it hears which tokens were issued here");
    assert!(slots.ask_sources(END.plus_ms(10)).is_empty());
    assert_eq!((refused(&slots, NOW), refused(&slots, END)), (10, 10));
    assert_eq!(slots.update(&set(7_629..=7_629), no_moves(), NOW, END).guarded, 1);
    assert_eq!(refused(&slots, NOW), 62_600);
}

/// The slot is imported, and its source answered before the node owned the slot. It is asked again, because it may
/// have restarted in between.
#[test]
fn an_imported_slot_is_refused_until_its_source_has_answered_or_for_a_whole_guard() {
    let mut slots = empty();
    assert_eq!(slots.update(&none(), imports(7_629..=7_630), NOW, END), Gained { unknown: 2, guarded: 0 });
    assert_eq!(slots.update(&none(), imports(7_629..=7_630), NOW, END), Gained::default(), "known by now");
    slots.ask_sources(NOW);
    slots.on_source_answer(FROM, answer(NOW, BootTime::default()), NOW);
    let gained = slots.update(&set(7_629..=7_629), imports(7_630..=7_630), ASKED, END);
    assert_eq!(gained, Gained { unknown: 1, guarded: 0 });
    assert_eq!((refused(&slots, ASKED), slots.guarded(ASKED)), (10, 1));
    assert_eq!(slots.guarded_until(ASKED), Some(END), "without an answer");
    assert_eq!(slots.ask_sources(ASKED), [(FROM, true)], "at once");
    assert_eq!(
        slots.on_source_answer(FROM, answer(NOW, BootTime::default()), ASKED),
        (0, 0),
        "to the earlier question"
    );
    assert_eq!(refused(&slots, ASKED), 10);
    let mut silent = slots.clone();
    let late = ASKED.plus_ms(1_001);
    assert!(!silent.has_silent_source(ASKED.plus_ms(1_000)) && silent.has_silent_source(late));
    assert_eq!(silent.on_source_answer(FROM, answer(ASKED, BootTime::default()), late), (0, 0), "too late");
    assert_eq!((refused(&silent, late), refused(&silent, END), refused(&silent, END.plus_us(1))), (61_599, 1, 0));
    let mut forgetful = slots.clone();
    assert_eq!(forgetful.on_source_answer(FROM, answer(ASKED, ASKED.plus_ms(700)), ASKED), (1, 0));
    assert_eq!((refused(&forgetful, ASKED), refused(&forgetful, ASKED.plus_ms(701))), (700, 0));
    assert_eq!(slots.on_source_answer(FROM, answer(ASKED, BootTime::default()), ASKED), (0, 1));
    assert_eq!((refused(&slots, ASKED), slots.guarded(ASKED), slots.guarded_until(ASKED)), (0, 0, None));
    slots.update(&set(7_629..=7_629), no_moves(), ASKED, END);
    assert_eq!(slots.ask_sources(END), [(FROM, true)], "it hears which tokens were issued here");
    assert!(slots.ask_sources(END.plus_ms(10)).is_empty(), "nothing comes from it any more");
    // The import of slot 7630 was given up before that slot is assigned to the node.
    let gained = slots.update(&set(7_629..=7_630), no_moves(), ASKED, END);
    assert_eq!(gained, Gained { unknown: 1, guarded: 1 });
}

#[test]
fn a_slot_that_came_in_one_step_is_open_once_its_source_has_answered() {
    for (until, left_ms) in [(BootTime::default(), 0), (NOW.plus_ms(700), 700)] {
        for is_read_first in [true, false] {
            let mut slots = empty();
            slots.on_arriving(7_629..=7_630, FROM, BY);
            if is_read_first {
                let gained = slots.update(&set(7_629..=7_629), no_moves(), NOW, END);
                assert_eq!(gained, Gained { unknown: 1, guarded: 0 });
            }
            slots.on_arrived(7_629..=7_629, BY, NOW, END);
            assert_eq!(refused(&slots, NOW), 10);
            assert_eq!(slots.ask_sources(NOW), [(FROM, false)]);
            slots.on_source_answer(FROM, answer(NOW, until), NOW);
            assert_eq!(refused(&slots, NOW), left_ms);
            slots.on_not_arriving(7_630..=7_630, BY);
            let gained = slots.update(&set(7_629..=7_630), no_moves(), NOW, END);
            assert_eq!(gained, Gained { unknown: 1, guarded: 1 }, "the other slot's migration failed");
            slots.lift();
            assert_eq!((refused(&slots, NOW), slots.guarded(NOW)), (0, 0));
        }
    }
    let mut slots = empty();
    assert_eq!(slots.on_arrived(7_629..=7_629, BY, NOW, END).guarded, 1);
    assert_eq!(refused(&slots, NOW), 62_600, "nobody knows where it came from");
    // The slot left and came back before the node read that it had left.
    let mut slots = empty();
    slots.update(&set(7_629..=7_629), no_moves(), NOW, END);
    slots.lift();
    slots.on_arriving(7_629..=7_629, FROM, BY);
    slots.on_arrived(7_629..=7_629, BY, NOW, END);
    assert_eq!(refused(&slots, NOW), 10);
}

/// The source guards one slot only. The others that come from it are open, while they are imported, and at their end.
#[test]
fn a_guard_of_one_slot_goes_along_with_no_other() {
    let mut slots = empty();
    slots.update(&none(), imports(7_629..=7_630), NOW, END);
    let said = SourceAnswer { forgotten: set(7_630..=7_630), ..answer(NOW, NOW).said };
    let answer = |asked| Answer { asked, until: END, said: said.clone() };
    slots.ask_sources(NOW);
    slots.on_source_answer(FROM, answer(NOW), NOW);
    assert_eq!(refused(&slots, NOW), 0);
    slots.update(&set(7_629..=7_630), no_moves(), ASKED, END);
    slots.ask_sources(ASKED);
    assert_eq!(slots.on_source_answer(FROM, answer(ASKED), ASKED), (1, 1));
    assert_eq!((refused(&slots, ASKED), slots.guarded(ASKED), slots.guarded_until(ASKED)), (0, 1, Some(END)));
}

/// Slots came in one step. Nothing is vouched for in them until their source has said whether it is sure of the grants
/// there, nor while it is not. Of those that came key by key the node knows more: what RESTORE brought is suspect.
#[test]
fn grants_that_their_source_doubts_are_not_vouched_for() {
    let vouched = |slots: &Slots, now| [b"k", &b"foo"[..]].map(|name| slots.ensure_vouched(name, now).is_ok());
    for doubted in [none(), set(7_629..=7_629)] {
        let doubts = doubted.contains(7_629);
        let mut slots = empty();
        slots.on_arriving(7_629..=7_629, FROM, BY);
        slots.on_arrived(7_629..=7_629, BY, NOW, END);
        slots.update(&set(7_629..=7_629), imports(12_182..=12_182), NOW, END);
        let mut both = set(7_629..=7_629);
        both.insert(12_182..=12_182);
        slots.update(&both, no_moves(), NOW, END);
        assert_eq!(vouched(&slots, NOW), [false, true]);
        assert_eq!(slots.doubted(NOW).count(), 0, "its source may still answer");
        let silent = slots.clone();
        let late = NOW.plus_ms(1_001);
        assert_eq!((vouched(&silent, late), silent.doubted(late).collect()), ([false, true], vec![7_629]));
        let said = SourceAnswer { forgotten: both, doubted, ended: vec![BY], ..SourceAnswer::default() };
        slots.ask_sources(NOW);
        assert_eq!(slots.on_source_answer(FROM, Answer { asked: NOW, until: END, said }, NOW), (2, 0));
        assert_eq!((vouched(&slots, END), slots.doubted(END).count()), ([!doubts, true], usize::from(doubts)));
        assert_eq!(vouched(&slots, END.plus_us(1)), [true, true]);
        assert!(!slots.may_be_elsewhere(b"k", NOW));
        slots.lift();
        assert_eq!(vouched(&slots, NOW), [true, true]);
    }
}

/// The source gave a migration up, but the target took the slots all the same. The source may have granted locks until
/// it heard of that, also if it counts a later migration of these slots as the one that moved them.
#[test]
fn a_slot_that_its_source_kept_for_a_moment_is_guarded() {
    let mut source = empty();
    for took_by in [BY, OTHER] {
        let mut slots = empty();
        slots.on_arriving(7_629..=7_630, FROM, OTHER);
        slots.on_arriving(7_629..=7_630, FROM, BY);
        slots.on_not_arriving(7_629..=7_630, OTHER);
        slots.on_arrived(7_629..=7_630, took_by, NOW, END);
        let mut answers = |source: &mut Slots, now| {
            slots.ask_sources(now);
            let said = SourceAnswer { ended: source.left(now), ..SourceAnswer::default() };
            (
                slots.on_source_answer(FROM, Answer { asked: now, until: BootTime::default(), said }, now),
                refused(&slots, now),
            )
        };
        assert_eq!(answers(&mut source, NOW), ((0, 0), 10), "it may have failed, or not have heard of its end");
        source.on_left(BY, NOW);
        let later = NOW.plus_ms(500);
        let settled = if took_by == BY { ((0, 2), 0) } else { ((0, 0), 10) };
        assert_eq!(answers(&mut source, later), settled);
        source.left(NOW.plus_ms(2_001));
        assert_eq!(refused(&slots, NOW.plus_ms(1_001)), if took_by == BY { 0 } else { 61_599 });
    }
    assert!(source.left(NOW).is_empty(), "it is told for a moment only");
    (0..=ENDED_TOLD_MAX).for_each(|_| source.on_left(BY, NOW));
    assert_eq!(source.left(NOW).len(), ENDED_TOLD_MAX);
}

#[test]
fn a_source_names_the_slots_that_it_guards_and_those_of_the_locks_that_it_dropped() {
    let mut slots = empty();
    let forgotten = |slots: &Slots, now| slots.forgotten(now).collect::<Vec<_>>();
    assert_eq!(forgotten(&slots, NOW), []);
    slots.drop_lock(b"foo", NOW.plus_ms(5));
    assert_eq!(forgotten(&slots, NOW), [(12_182, NOW.plus_ms(5))]);
    slots.on_arriving(1..=1, FROM, BY);
    slots.on_arrived(1..=1, BY, NOW, END);
    assert_eq!(forgotten(&slots, NOW), [(12_182, NOW.plus_ms(5))]);
    let late = NOW.plus_ms(1_001);
    assert_eq!(slots.unsettled(&BACK, late), none(), "its source is silent");
    assert_eq!(forgotten(&slots, late), [(1, END), (12_182, NOW.plus_ms(5))]);
}

/// A slot comes key by key and goes back before its source has answered. Neither node waits for the other.
#[test]
fn a_slot_that_goes_back_at_once_waits_for_nobody() {
    let mut slots = empty();
    slots.update(&none(), imports(7_629..=7_629), NOW, END);
    slots.update(&set(7_629..=7_629), no_moves(), NOW, END);
    assert!(slots.unsettled(&BACK, NOW).contains(7_629));
    assert_eq!(slots.unsettled(&FROM, NOW), none());
    // If it came in one step, the locks that its source granted last may be lost.
    slots.on_arriving(7_630..=7_630, FROM, BY);
    slots.on_arrived(7_630..=7_630, BY, NOW, END);
    assert_eq!(slots.unsettled(&FROM, NOW), set(7_630..=7_630));
}

/// A slot moves on before the node from which it came first has said what it forgot. Other slots of the node in between
/// are open.
#[test]
fn a_slot_that_moves_on_at_once_waits_for_its_first_source() {
    const BETWEEN: ServerId = [b'b'; 40];
    let mut between = empty();
    between.on_arriving(7_629..=7_629, FROM, BY);
    between.on_arrived(7_629..=7_629, BY, NOW, END);
    between.ask_sources(NOW);
    between.on_left(OTHER, NOW);
    let mut slots = empty();
    for slot in 7_629..=7_630 {
        slots.on_arriving(slot..=slot, BETWEEN, OTHER);
        slots.on_arrived(slot..=slot, OTHER, NOW, END);
    }
    let mut asks = |between: &mut Slots, now| {
        slots.ask_sources(now);
        assert_eq!(between.forgotten(now).count(), 0);
        let said = SourceAnswer {
            unsettled: between.unsettled(&BACK, now),
            ended: between.left(now),
            ..SourceAnswer::default()
        };
        slots.on_source_answer(BETWEEN, Answer { asked: now, until: BootTime::default(), said }, now);
        (refused(&slots, now), slots.guarded(now))
    };
    assert_eq!(asks(&mut between, NOW), (10, 1));
    between.on_source_answer(FROM, answer(NOW, BootTime::default()), NOW);
    assert_eq!(asks(&mut between, NOW.plus_ms(10)), (0, 0));
    // The same while a slot is imported key by key.
    let mut slots = empty();
    slots.update(&none(), imports(7_629..=7_629), NOW, END);
    slots.ask_sources(NOW);
    let mut unsettled = answer(NOW, BootTime::default());
    unsettled.said.unsettled = set(7_629..=7_629);
    slots.on_source_answer(FROM, unsettled, NOW);
    assert_eq!(refused(&slots, NOW), 10);
}

#[test]
fn locks_that_were_dropped_guard_their_slot_if_it_was_emptied() {
    let mut slots = empty();
    slots.update(&set(7_629..=7_629), no_moves(), NOW, END);
    slots.lift();
    slots.drop_lock(b"k", END);
    slots.drop_lock(b"{k}2", NOW);
    assert!(slots.has_dropped(b"k") && slots.has_deleted() && !slots.has_dropped(b"foo"));
    assert_eq!(slots.confirm_flush(false), 0);
    assert_eq!((slots.ensure_open(b"k", NOW), slots.has_dropped(b"k")), (Ok(()), false));
    slots.drop_lock(b"k", END);
    assert_eq!(slots.confirm_flush(true), 1);
    assert_eq!(slots.ensure_open(b"k", NOW), Err(Refusal::SlotGuarded { left_ms: 62_600 }));
}

#[test]
fn a_slot_that_is_not_exported_to_the_end_is_guarded() {
    let mut slots = empty();
    slots.update(&set(7_629..=7_629), no_moves(), NOW, END);
    slots.lift();
    let kept = Gained { unknown: 1, guarded: 1 };
    let all = set(7_629..=7_629);
    assert_eq!(slots.update(&all, exports(7_629, FROM), NOW, END), Gained::default());
    assert_eq!((refused(&slots, NOW), slots.must_read_slots(b"k")), (0, true), "it may be given up at any time");
    let mut moved = slots.clone();
    assert_eq!(moved.update(&none(), no_moves(), NOW, END), Gained::default());
    let mut turned = slots.clone();
    assert_eq!(
        turned.update(&all, exports(7_629, [b'g'; 40]), NOW, END),
        kept,
        "the first target may have granted locks"
    );
    let mut promoted = slots.clone();
    promoted.cover();
    assert_eq!(promoted.update(&all, no_moves(), NOW, END), Gained { unknown: 1, guarded: 0 });
    assert_eq!(slots.update(&all, no_moves(), NOW, END), kept);
    assert_eq!((refused(&slots, NOW), slots.must_read_slots(b"k")), (62_600, false));
}

#[test]
fn grants_in_a_slot_that_is_elsewhere_are_neither_made_nor_vouched_for() {
    let mut slots = empty();
    let vouched = |slots: &Slots, now| slots.ensure_vouched(b"k", now).is_ok();
    assert_eq!((refused(&slots, NOW), vouched(&slots, NOW)), (1_000, false));
    slots.update(&none(), imports(7_629..=7_629), NOW, END);
    assert!(!vouched(&slots, NOW), "the source is asked first");
    slots.ask_sources(NOW);
    slots.on_source_answer(FROM, answer(NOW, BootTime::default()), NOW);
    assert!(vouched(&slots, NOW));
    // The source has forgotten grants since, but none of those made here.
    let later = NOW.plus_ms(100);
    assert_eq!(slots.ask_sources(later), [(FROM, true)]);
    slots.on_source_answer(FROM, answer(later, END), later);
    assert_eq!((vouched(&slots, later), refused(&slots, later)), (true, 62_500));
    // It has given the move up.
    let later = NOW.plus_ms(200);
    assert_eq!(slots.ask_sources(later), [(FROM, true)]);
    let given_up = Answer { asked: later, until: BootTime::default(), said: SourceAnswer::default() };
    slots.on_source_answer(FROM, given_up, later);
    assert_eq!((vouched(&slots, later), refused(&slots, later)), (false, 10));
    slots.update(&set(7_629..=7_629), no_moves(), later, END);
    assert_eq!((refused(&slots, later), vouched(&slots, later)), (10, true), "what is here is known");
}

/// A slot comes from a node that does not answer, goes to another one and comes back at once.
#[test]
fn a_slot_that_comes_back_before_its_first_source_has_answered_is_guarded() {
    let (mut slots, until) = (empty(), END.plus_ms(1));
    slots.update(&none(), imports(0..=0), NOW, END);
    assert_eq!(slots.update(&set(0..=0), no_moves(), NOW, END), Gained { unknown: 1, guarded: 0 });
    slots.update(&set(0..=0), exports(0, BACK), NOW, END);
    slots.update(&none(), no_moves(), NOW, END);
    slots.update(&none(), Moves { imported: [(0, Some(BACK))].into(), ..no_moves() }, NOW, END);
    assert_eq!(slots.update(&set(0..=0), no_moves(), NOW, until), Gained { unknown: 1, guarded: 1 });
    assert_eq!(slots.guarded_until(NOW), Some(until));
}

/// The target of a move asks about another slot, which it has already taken.
#[test]
fn the_tokens_of_a_move_are_known_until_it_ends() {
    let (mut slots, issued) = (empty(), TokenBounds { highest: 500, stripes: vec![] });
    slots.update(&set(0..=9), exports(0, BACK), NOW, END);
    slots.on_issued(BACK, issued.clone(), NOW);
    slots.on_issued(BACK, TokenBounds::default(), NOW);
    slots.update(&set(0..=9), no_moves(), NOW, END);
    assert_eq!(slots.issued_in_vain(), [issued]);
}

/// The target takes a slot over before its source has given up the last key, or although the source did not export it.
/// The source tells which of the slots that were taken these are, and later that their locks were deleted.
#[test]
fn a_slot_that_its_source_did_not_give_up_to_the_end_is_guarded() {
    let mut source = empty();
    source.update(&set(7_629..=7_632), exports(7_629, BACK), NOW, END);
    source.lift();
    let mut slots = empty();
    slots.update(&none(), imports(7_629..=7_631), NOW, END);
    slots.update(&set(7_629..=7_630), imports(7_631..=7_631), NOW, END);
    let taken = slots.taken_from(&FROM, NOW);
    assert_eq!(taken, set(7_629..=7_630));
    assert_eq!(slots.taken_from(&FROM, NOW.plus_ms(1_001)), none(), "it answers no more");
    assert_eq!(source.kept(&taken, &none()), set(7_630..=7_630), "not exported");
    let kept = source.kept(&taken, &set(7_629..=7_629));
    assert_eq!(kept, taken);
    slots.ask_sources(NOW);
    let said = SourceAnswer { kept, ..SourceAnswer::default() };
    assert_eq!(slots.on_source_answer(FROM, Answer { asked: NOW, until: NOW, said }, NOW), (2, 0));
    assert_eq!((refused(&slots, NOW), slots.guarded(NOW)), (62_600, 2));
    // MIGRATE has moved a lock of the slot. Then the slot is taken, and the server deletes the locks that are left.
    for (owned, moves, is_kept) in [(7_629, exports(7_629, BACK), false), (7_630, no_moves(), true)] {
        source.drop_lock(b"k", END);
        source.confirm_flush(false);
        assert!(source.has_deleted());
        source.update(&set(owned..=7_632), moves, NOW, END);
        assert!(!source.has_deleted());
        assert_eq!(source.kept(&set(7_629..=7_629), &none()).contains(7_629), is_kept);
    }
    source.update(&set(7_630..=7_632), no_moves(), END.plus_us(1), END);
    assert_eq!(source.kept(&set(7_629..=7_629), &none()), none(), "they would have ended");
}
