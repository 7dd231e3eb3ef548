//! `palisade-sim`
use clap::ValueEnum;
use palisade_sim::model;
use palisade_sim::rules::{Rule, Without};
use palisade_sim::simulation::{self, plan::Plan, world::World};
use std::time::Instant;

fn main() {
    let arg = |n: usize| std::env::args().nth(n).unwrap_or_default();
    if arg(1) == "sim" {
        let from: u64 = arg(2).parse().unwrap();
        let to: u64 = arg(3).parse().unwrap();
        let without = Without(Rule::from_str(&arg(4), true).ok());
        let start = Instant::now();
        let (mut moments, mut held, mut lost, mut fenced, mut ext, mut failed) = (0, 0, 0, 0, 0, 0);
        let mut faults = std::collections::BTreeMap::new();
        for seed in from..to {
            let plan = Plan::draw(seed);
            let (totals, failure) = simulation::run(&plan, without);
            moments += totals.moments;
            held += totals.held;
            lost += totals.lost;
            fenced += totals.fenced_out;
            ext += totals.extended;
            for (name, n) in totals.faults {
                *faults.entry(name).or_insert(0) += n;
            }
            if let Some(failure) = failure {
                failed += 1;
                println!("seed {seed}: {failure}");
            }
        }
        println!(
            "{moments} moments, held {held}, ext {ext}, lost {lost}, fenced {fenced}, failed {failed}, {:?}",
            start.elapsed()
        );
        println!("{faults:?}");
        return;
    }
    if arg(1) == "tell" {
        let plan = Plan::draw(arg(2).parse().unwrap());
        let without = Without(Rule::from_str(&arg(3), true).ok());
        let mut world = World::new(&plan, without, true);
        let failure = world.run().err();
        for line in world.story.take().unwrap() {
            println!("{line}");
        }
        println!("{plan:#?}");
        println!("{failure:?}");
        return;
    }
    let only = arg(1);
    let max: usize = arg(2).parse().unwrap_or(500_000);
    let show = |name: String, config: model::Config| {
        if !name.contains(&only) {
            return;
        }
        let start = Instant::now();
        let outcome =
            if config.without.0.is_some() { model::find(&config, max) } else { model::exhaust(&config, max, 2) };
        println!(
            "{name}: {} states, depth {}, complete {} {:?}",
            outcome.states,
            outcome.depth,
            outcome.complete,
            start.elapsed()
        );
        if let Some((broken, steps)) = outcome.found {
            println!("  {broken}");
            steps.iter().for_each(|step| println!("    {step}"));
        }
    };
    for config in model::broken() {
        show(format!("{:?}", config.without.0), config);
    }
    for (name, config) in model::sound() {
        show(name.to_owned(), config);
    }
}
