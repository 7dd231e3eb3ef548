//! The simulation: every law holds in all runs, a seed determines its run, and plans that once failed are kept.

use palisade_sim::rules::{Rule, Without};
use palisade_sim::simulation::{Failure, Fault, Keeps, Kind, Plan, Totals, run, smallest, tell};

const ALL: Without = Without(None);

/// The number of plans among which one has to fail without a rule.
const SEEDS: u64 = 2_000;

#[test]
fn every_law_is_kept() {
    let mut all = Totals::default();
    for seed in 0..150 {
        let (totals, failure) = run(&Plan::draw(seed), ALL);
        if let Some(failure) = failure {
            let again = "cargo run --profile sim --package palisade-sim --bin palisade-sim -- replay";
            panic!("seed {seed}: {failure}\nagain: {again} {seed}");
        }
        all.add(&totals);
    }
    assert!(all.moments > 1_000_000, "{} steps are not a test", all.moments);
    let singles = [all.single_held, all.single_waited, all.repeated, all.reentered, all.left];
    assert!(singles.into_iter().all(|count| count > 500), "{singles:?} are not a test");
    let modes = [all.shared, all.permits, all.converted];
    assert!(modes.into_iter().all(|count| count > 500), "{modes:?} are not a test");
    let sets = [all.versions, all.learnt, all.moved];
    assert!(sets.into_iter().all(|count| count > 50), "{sets:?} are not a test");
    for fault in [
        "change of the set",
        "change of the set that dies",
        "slot given away",
        "slot of a dead node given away",
        "flush of a slot",
        "stalls of majorities",
        "break",
        "break on one node after the other",
        "deletion",
        "eviction",
        "armed guard",
        "late answers",
    ] {
        assert!(all.faults.get(fault).is_some_and(|count| *count > 5), "{fault}: {:?}", all.faults);
    }
    assert!(all.had_in_time > 50 && all.kept > 500, "{} and {} are not a test", all.had_in_time, all.kept);
}

/// Returns the plans among which a failure is sought, from the one with the seed `first` on. Where the first ones do
/// not fail, the search takes longer, and a new `first` makes it short again.
fn plans(first: u64) -> impl Iterator<Item = Plan> {
    (first..SEEDS).chain(0..first).map(Plan::draw)
}

/// Returns the first failure without `rule` among the [`plans`], of which only the faults that satisfy `is_meant` stay.
/// Checks that the plan does not fail with the rule.
fn found(rule: Rule, first: u64, is_meant: impl Fn(&Kind) -> bool) -> Failure {
    let alone = |mut plan: Plan| {
        plan.faults.retain(|fault| is_meant(&fault.kind));
        plan
    };
    let mut plans = plans(first).map(alone);
    let fails = |plan| Some((run(&plan, Without(Some(rule))).1?, plan));
    let (failure, plan) = plans.find_map(fails).unwrap_or_else(|| panic!("{rule:?}: nothing"));
    assert_eq!(run(&plan, ALL).1, None, "{rule:?}: with the rule it holds");
    failure
}

/// Checks that one of the [`plans`] breaks `law` without `rule`, and that the same plan breaks no law with the rule.
/// Plans that break another law without the rule are skipped.
fn breaks(rule: Rule, law: &str, first: u64) {
    let is_it = |plan: &Plan| run(plan, Without(Some(rule))).1.is_some_and(|failure| failure.law() == law);
    let plan = plans(first).find(is_it).unwrap_or_else(|| panic!("{rule:?}: {law} holds"));
    assert_eq!(run(&plan, ALL).1, None, "{rule:?}: with the rule it holds");
}

#[test]
fn every_way_in_which_a_slot_loses_its_locks_needs_its_guard() {
    let ways: [fn(&Kind) -> bool; 3] = [
        |kind| matches!(kind, Kind::SlotGivenAway { dies: false, .. }),
        |kind| matches!(kind, Kind::SlotGivenAway { dies: true, .. }),
        |kind| matches!(kind, Kind::FlushSlot { .. }),
    ];
    for is_meant in ways {
        assert_eq!(found(Rule::SlotsGuarded, 0, is_meant).law(), "exclusion");
    }
}

/// A node gains a slot without its locks, and is killed before their leases have ended. Its disk then proves that the
/// node remembers its own grants, but not those of the slot's former owner. So the slot must stay guarded after the
/// restart.
#[test]
fn the_guard_of_a_slot_outlasts_a_crash() {
    for seed in 0..20 {
        let mut plan = Plan::draw(seed);
        plan.nodes.truncate(1);
        plan.first_set = 0;
        plan.single_clients.retain(|client| client.node == 0);
        plan.nodes[0].keeps = Keeps::Everything;
        (plan.alias, plan.keys, plan.ttl_ms, plan.max_ttl_ms, plan.skew_ms) = (None, 1, 500, 500, 100);
        (plan.until, plan.hold_us, plan.rest_us) = (30_000_000, 500_000, 1_000);
        let turn = |n: u64| {
            let (at, away_us) = (n * 2_000_000, 1_500_000);
            let given_away = Kind::SlotGivenAway { node: 0, key: 0, dies: false };
            let crash = Kind::Crash { node: 0, reboot: false };
            [
                Fault { at, for_us: away_us, kind: given_away },
                Fault { at: at + away_us + 20_000, for_us: 10_000, kind: crash },
            ]
        };
        plan.faults = (1..15).flat_map(turn).collect();
        let (totals, failure) = run(&plan, ALL);
        assert_eq!((failure, totals.faults["slot given away"]), (None, 14), "seed {seed}");
        assert!(totals.held > 10, "seed {seed}: {} locks taken are not a test", totals.held);
    }
}

#[test]
fn a_gained_slot_needs_tokens_above_those_of_its_owner_before() {
    let is_meant = |kind: &Kind| matches!(kind, Kind::SlotGivenAway { .. });
    assert_eq!(found(Rule::SlotsFloor, 0, is_meant).law(), "token order");
}

#[test]
fn through_stalls_a_lock_is_kept_by_rounds_in_time_that_are_repeated() {
    let is_meant = |kind: &Kind| matches!(kind, Kind::Stalls { .. } | Kind::Bursts { .. });
    assert!(matches!(found(Rule::RoundsRepeated, 133, is_meant), Failure::Lost { .. }));
    assert!(matches!(found(Rule::RoundsInTime, 0, is_meant), Failure::Lost { .. }));
}

/// If the only faults are bursts, stalls and broken locks, only the broken locks are lost, and every caller gets a free
/// lock.
#[test]
fn through_moments_alone_locks_are_kept_and_had() {
    let is_meant = |kind: &Kind| {
        matches!(kind, Kind::Stalls { .. } | Kind::Bursts { .. } | Kind::BreakAll { .. } | Kind::BreakInTurn { .. })
    };
    let plans = (0..1_000).map(Plan::draw).filter(|plan| plan.is_calm());
    let mut all = Totals::default();
    for plan in plans.filter(|plan| plan.faults.iter().all(|fault| is_meant(&fault.kind))) {
        let (totals, failure) = run(&plan, ALL);
        assert_eq!(failure, None, "seed {}", plan.seed);
        all.add(&totals);
    }
    assert!(all.kept > 1_000 && all.had_in_time > 100, "{} and {} are not a test", all.kept, all.had_in_time);
    for fault in ["break on all nodes", "break on one node after the other"] {
        assert!(all.faults[fault] > 20, "{:?}", all.faults);
    }
    assert!(all.noticed > 20, "{} holders whose lock was broken are not a test", all.noticed);
}

/// The rules of the machines that take and keep locks. Each is listed with the law that is broken without it.
#[test]
fn every_rule_of_callers_and_holders_is_needed() {
    let rules = [
        Rule::AsksOn,
        Rule::LastingEnds,
        Rule::BacksOff,
        Rule::TicketIsKept,
        Rule::ShownIsAskedFor,
        Rule::OneOfAProcessAsks,
        Rule::TakenAwayIsLost,
    ];
    for rule in rules {
        breaks(rule, "conduct", 0);
    }
}

/// The rules of locks on one node, their queues, and the actions of operators and the server. Each is listed with the
/// law that is broken without it.
#[test]
fn every_rule_of_locks_on_one_node_is_needed() {
    let rules = [
        (Rule::FirstInFirstOut, "order of the queue"),
        (Rule::NoBarging, "order of the queue"),
        (Rule::DeadHeadPasses, "order of the queue"),
        (Rule::OwnersShareAPlace, "order of the queue"),
        (Rule::GuardEndServes, "progress"),
        (Rule::RepetitionIsAnswered, "answers to those who wait"),
        (Rule::WaitLessDrift, "exclusion"),
        (Rule::HolderReenters, "holds"),
        (Rule::BrokenEnds, "end of a lock that was taken away"),
        (Rule::EvictedBars, "exclusion"),
    ];
    for (rule, law) in rules {
        assert_eq!(found(rule, 0, |_| true).law(), law, "{rule:?}");
    }
    let is_meant = |kind: &Kind| matches!(kind, Kind::Evict { .. } | Kind::Crash { .. } | Kind::Restart { .. });
    assert_eq!(found(Rule::EvictedUnproved, 831, is_meant).law(), "exclusion");
}

/// The rules of readers, writers and permits, on one node or on several. Each is listed with the law that is broken
/// without it.
#[test]
fn every_rule_of_locks_that_are_held_together_is_needed() {
    let rules = [
        (Rule::ReadersKeepWritersOut, "exclusion"),
        (Rule::NumbersNotCounts, "exclusion"),
        (Rule::BothLimits, "exclusion"),
        (Rule::ReadersAboveWriters, "token order"),
        (Rule::ReadersWaitForWriters, "order of the queue"),
        (Rule::GrantsAreTold, "what replicas know"),
        (Rule::ConvertsAlone, "conversion"),
    ];
    for (rule, law) in rules {
        breaks(rule, law, 0);
    }
}

/// The rules of a set of nodes that changes while locks are held. Each is listed with the law that is broken without
/// it, and the first seed of the search.
#[test]
fn every_rule_of_a_set_that_changes_is_needed() {
    let rules = [
        (Rule::OneNodeAtATime, "exclusion", 0),
        (Rule::LeasesEndFirst, "exclusion", 100),
        (Rule::OlderClientsAreRefused, "exclusion", 40),
        (Rule::MajorityAccepts, "agreement", 0),
        (Rule::TokensGoOn, "token order", 90),
        (Rule::VersionIsKept, "exclusion", 1180),
        (Rule::MembersHaveIds, "exclusion", 1200),
        (Rule::HeldByTheNewMajority, "exclusion", 260),
        (Rule::AcquisitionsBeginAnew, "exclusion", 100),
        (Rule::PromisesAreKept, "agreement", 0),
        (Rule::EarlierIsCompleted, "agreement", 300),
    ];
    for (rule, law, first) in rules {
        let mut plans = plans(first).filter(Plan::changes_set);
        let broken = plans.find_map(|plan| Some((run(&plan, Without(Some(rule))).1?.law(), plan)));
        let (found, plan) = broken.unwrap_or_else(|| panic!("{rule:?}: nothing"));
        assert_eq!(found, law, "{rule:?}");
        assert_eq!(run(&plan, ALL).1, None, "{rule:?}: with the rule it holds");
    }
}

/// An answer to one round of extension arrives during the next, whose requests no node received. It must not count for
/// the next round.
#[test]
fn an_answer_counts_for_its_own_round() {
    let is_meant = |kind: &Kind| matches!(kind, Kind::LateAnswers { .. } | Kind::Cut { .. });
    assert_eq!(found(Rule::AnswersOfTheirRound, 1_405, is_meant).law(), "exclusion");
}

#[test]
fn a_run_is_its_plan() {
    for seed in [1, 11, 42] {
        let plan = Plan::draw(seed);
        assert_eq!(Plan::from_text(&plan.to_text()), Ok(plan.clone()));
        assert_eq!(tell(&plan, ALL), tell(&Plan::draw(seed), ALL));
    }
}

#[test]
fn a_plan_that_fails_is_made_smaller_and_fails_the_same() {
    for rule in [Rule::ProposalAboveLast, Rule::EvictedBars, Rule::DeadHeadPasses] {
        let without = Without(Some(rule));
        let plan = (0..50).map(Plan::draw).find(|plan| run(plan, without).1.is_some()).expect("it is found soon");
        let small = smallest(&plan, without);
        let law = |plan| run(plan, without).1.map(|failure| failure.law());
        assert_eq!(law(&small), law(&plan));
        assert!(small.faults.len() <= plan.faults.len() && small.until <= plan.until);
        assert!(small.single_clients.len() <= plan.single_clients.len());
        assert_eq!(run(&small, ALL).1, None, "with the rule it holds");
    }
}

/// Plans that once broke a law. Their stories are in `regressions/README.md`.
#[test]
fn what_was_found_once_is_not_found_again() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let plan = Plan::from_text(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let failure = run(&plan, ALL).1;
            assert!(failure.is_none(), "{}: {}", path.display(), failure.unwrap());
            count += 1;
        }
    }
    assert!(count > 0);
}
