use super::GaveUp::{Behind, TimedOut};
use super::*;
use crate::fixture::ms;

const SHARED: Wanted = Wanted::Shared;
const ANY_OF_THREE: Wanted = Wanted::Permit { limit: 3, number: None };

fn permit(number: u16) -> Wanted {
    Wanted::Permit { limit: 3, number: Some(number) }
}

fn ask(wanted: Wanted, by: Option<u64>, keeps_name: bool) -> Task {
    Task::Ask { wanted, by: by.map(ms), keeps_name }
}

/// Returns a taker with a limit of 10 s whose first attempt failed, and which is now the first in its process's line.
fn at_its_turn(wanted: Wanted, nodes: usize) -> Taker {
    let (mut taker, _) = Taker::begin(wanted, nodes, Some(ms(10_000)), ms(0), 0);
    if wanted != Wanted::Exclusive {
        assert_eq!(taker.on_refused(Refused::Lasting, ms(0), 0), Task::LineUp { until: Some(ms(10_000)) });
    }
    taker.on_turn(false, ms(0), 0);
    taker
}

fn pause(until: BootTime) -> Task {
    Task::Pause { until, for_nodes: None }
}

#[test]
fn a_refused_caller_queues_and_asks_under_its_name_when_it_is_told() {
    let (mut taker, task) = Taker::begin(Wanted::Exclusive, 5, Some(ms(10_000)), ms(0), 0);
    assert_eq!(task, Task::LineUp { until: Some(ms(10_000)) });
    assert_eq!(taker.on_turn(true, ms(0), 0), ask(Wanted::Exclusive, Some(10_000), false));
    assert_eq!(taker.on_refused(Refused::Contended, ms(5), 0), pause(ms(5)), "the queues say when to go on");
    assert_eq!(taker.on_paused(false, ms(5), 0), Task::Queue { patience_ms: 9_995 });
    assert_eq!(taker.on_queue(Some(1), ms(700), 0), ask(Wanted::Exclusive, Some(10_000), true));
    // The caller asked when the lock was free, and another client was faster: it pauses.
    assert_eq!(taker.on_refused(Refused::Contended, ms(705), 0), pause(ms(707)));
    assert_eq!(taker.on_paused(false, ms(707), 0), Task::Queue { patience_ms: 9_293 });
}

#[test]
fn pauses_grow_to_a_second_are_jittered_and_never_reach_beyond_the_limit() {
    for random in [0, JITTER_PERMILLE] {
        let mut taker = at_its_turn(Wanted::Exclusive, 5);
        let mut longest_us = vec![];
        for _ in 0..12 {
            let Task::Pause { until, for_nodes } =
                taker.on_refused(Refused::TooFewNodes { is_lasting: false }, ms(5_000), random)
            else {
                panic!()
            };
            longest_us.push(until.us_since(ms(5_000)));
            assert!(for_nodes > Some(until) && for_nodes <= Some(ms(10_000)), "{for_nodes:?}");
            taker.on_paused(false, ms(5_000), random);
        }
        let part = if random == 0 { 1 } else { 5 };
        assert_eq!(longest_us[..3], [2_000 / part, 4_000 / part, 8_000 / part]);
        assert_eq!(longest_us[11], 1_000_000 / part);
        assert_eq!(taker.on_refused(Refused::Guarded { left_ms: 700 }, ms(9_990), 0), pause(ms(10_000)));
    }
}

#[test]
fn on_one_node_the_request_itself_waits_unless_many_do() {
    let mut taker = at_its_turn(Wanted::Exclusive, 1);
    taker.on_refused(Refused::Contended, ms(5), 0);
    let by = Some(ms(10_000 + u64::from(LAST_TRY_MS)));
    assert_eq!(taker.on_paused(false, ms(5), 0), Task::AskAndWait { patience_ms: 9_995, by });
    taker.on_refused(Refused::Contended, ms(6), 0);
    assert_eq!(taker.on_paused(true, ms(6), 0), Task::Queue { patience_ms: 9_994 });
    // A guarded node grants nothing to waiting requests either, so the caller pauses.
    taker.on_queue(None, ms(7), 0);
    let Task::Pause { until, .. } = taker.on_refused(Refused::Guarded { left_ms: 50 }, ms(7), 0) else { panic!() };
    assert_eq!(until, ms(57));
    // At its limit the caller asks once more, without waiting.
    assert_eq!(taker.on_paused(false, ms(10_000), 0), ask(Wanted::Exclusive, Some(10_100), false));
}

#[test]
fn those_who_can_hold_it_together_ask_before_they_line_up() {
    let begin = || Taker::begin(SHARED, 5, None, ms(0), 0);
    let (mut taker, task) = begin();
    assert_eq!(task, ask(SHARED, None, false));
    assert_eq!(taker.on_refused(Refused::Contended, ms(1), 0), Task::LineUp { until: None });
    assert_eq!(taker.on_turn(true, ms(1), 0), pause(ms(1)), "it was refused a moment ago");
    let (mut taker, _) = begin();
    taker.on_refused(Refused::Contended, ms(1), 0);
    assert_eq!(taker.on_turn(false, ms(900), 0), ask(SHARED, None, false), "that was before others had their turn");
}

#[test]
fn free_looking_permits_are_tried_a_few_times() {
    let (mut taker, task) = Taker::begin(ANY_OF_THREE, 5, None, ms(0), 4);
    assert_eq!(task, ask(permit(2), None, false));
    for _ in 0..LOOKS_MAX {
        assert_eq!(taker.on_refused(Refused::Contended, ms(1), 0), Task::Look { limit: 3, by: None });
        assert_eq!(taker.on_look(Some(3), ms(1), 0), ask(permit(3), None, false));
    }
    assert_eq!(taker.on_refused(Refused::Contended, ms(1), 0), Task::LineUp { until: None });
    taker.on_turn(true, ms(1), 0);
    taker.on_paused(false, ms(1), 0);
    assert_eq!(taker.on_queue(Some(1), ms(2), 0), ask(permit(1), None, true), "the one that nodes keep");
    // After its turn in the queues the caller may look for numbers again, because the queues have served others
    // meanwhile.
    assert_eq!(taker.on_refused(Refused::Contended, ms(3), 0), Task::Look { limit: 3, by: None });
    assert_eq!(taker.on_look(None, ms(3), 0), pause(ms(5)));
}

#[test]
fn a_look_keeps_to_the_limit_of_its_attempt() {
    let mut taker = at_its_turn(ANY_OF_THREE, 5);
    assert_eq!(taker.on_refused(Refused::Contended, ms(9_999), 0), Task::Look { limit: 3, by: Some(ms(10_000)) });
    assert_eq!(taker.on_look(Some(2), ms(10_000), 0), ask(permit(2), Some(10_000), false));
    assert_eq!(taker.on_refused(Refused::Contended, ms(10_000), 0), Task::GiveUp(TimedOut));
}

#[test]
fn one_who_does_not_wait_asks_once_and_looks_for_other_permits() {
    let (mut taker, task) = Taker::try_once(Wanted::Exclusive, 5, 0);
    assert_eq!(task, ask(Wanted::Exclusive, None, false));
    assert_eq!(taker.on_refused(Refused::Contended, ms(1), 0), Task::GiveUp(GaveUp::Refused));
    let (mut taker, _) = Taker::try_once(ANY_OF_THREE, 5, 0);
    assert_eq!(taker.on_refused(Refused::Contended, ms(1), 0), Task::Look { limit: 3, by: None });
    assert_eq!(taker.on_look(None, ms(1), 0), Task::GiveUp(GaveUp::Refused));
}

#[test]
fn only_what_does_not_pass_ends_a_wait_before_its_limit() {
    let ends = [Refused::Lasting, Refused::TooFewNodes { is_lasting: true }];
    let passes = [
        Refused::Contended,
        Refused::TooLate,
        Refused::Guarded { left_ms: 86_400_000 },
        Refused::TooFewNodes { is_lasting: false },
    ];
    for refused in ends {
        assert_eq!(at_its_turn(Wanted::Exclusive, 5).on_refused(refused, ms(1), 0), Task::GiveUp(GaveUp::Refused));
    }
    for refused in passes {
        for nodes in [1, 5] {
            let mut taker = at_its_turn(Wanted::Exclusive, nodes);
            for n in 0..200 {
                let task = taker.on_refused(refused, ms(n * 50), 0);
                assert!(matches!(task, Task::Pause { .. }), "{refused:?} {task:?}");
                if let Task::Queue { .. } = taker.on_paused(false, ms(n * 50), 0) {
                    taker.on_queue(Some(1), ms(n * 50), 0);
                }
            }
            assert_eq!(taker.on_refused(refused, ms(10_000), 0), Task::GiveUp(TimedOut));
        }
    }
    assert_eq!(at_its_turn(Wanted::Exclusive, 5).on_no_turn(), Task::GiveUp(Behind));
}

#[test]
fn a_lease_that_is_always_granted_too_late_ends_even_a_wait_without_a_limit() {
    let (mut taker, _) = Taker::begin(Wanted::Exclusive, 5, None, ms(0), 0);
    taker.on_turn(true, ms(0), 0);
    for refused in [Refused::TooLate, Refused::Contended] {
        for _ in 1..TOO_LATE_TIMES {
            assert!(matches!(taker.on_refused(refused, ms(0), 0), Task::Pause { .. }));
            taker.on_paused(false, ms(0), 0);
        }
    }
    for _ in 1..TOO_LATE_TIMES {
        assert!(matches!(taker.on_refused(Refused::TooLate, ms(0), 0), Task::Pause { .. }));
        taker.on_paused(false, ms(0), 0);
    }
    assert_eq!(taker.on_refused(Refused::TooLate, ms(0), 0), Task::GiveUp(GaveUp::Refused));
}

#[test]
fn another_version_of_the_set_is_asked_anew() {
    let mut taker = at_its_turn(ANY_OF_THREE, 1);
    taker.on_refused(Refused::Contended, ms(5), 0);
    taker.move_to(3);
    assert_eq!(taker.on_paused(false, ms(5), 0), Task::Queue { patience_ms: 9_995 });
    taker.move_to(5);
    assert_eq!(taker.on_queue(None, ms(6), 1), ask(permit(2), Some(10_000), false));
}
