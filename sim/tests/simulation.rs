//! The simulation: every law is kept in any run, a run is its seed, and what was found once is kept.

use palisade_sim::rules::{Rule, Without};
use palisade_sim::simulation::{Plan, run, smallest, tell};

const ALL: Without = Without(None);

#[test]
fn every_law_is_kept() {
    let mut steps = 0;
    for seed in 0..150 {
        let (totals, failure) = run(&Plan::draw(seed), ALL);
        assert!(failure.is_none(), "seed {seed}: {}", failure.unwrap());
        steps += totals.moments;
    }
    assert!(steps > 1_000_000, "{steps} steps are not a test");
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
    let without = Without(Some(Rule::ProposalAboveLast));
    let plan = (0..50).map(Plan::draw).find(|plan| run(plan, without).1.is_some()).expect("it is found soon");
    let small = smallest(&plan, without);
    let law = |plan| run(plan, without).1.map(|failure| failure.law());
    assert_eq!(law(&small), law(&plan));
    assert!(small.faults.len() <= plan.faults.len() && small.until <= plan.until);
    assert_eq!(run(&small, ALL).1, None, "with the rule it holds");
}

/// Plans that broke a law once. Their stories are in `regressions/README.md`.
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
