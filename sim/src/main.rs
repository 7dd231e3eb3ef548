//! `palisade-sim`
use palisade_sim::model;
use std::time::Instant;

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let max: usize = std::env::args().nth(2).and_then(|max| max.parse().ok()).unwrap_or(500_000);
    let show = |name: String, config: model::Config| {
        if !name.contains(&only) {
            return;
        }
        let start = Instant::now();
        let outcome = model::check(config, max, 2);
        println!("{name}: {} states, depth {}, complete {} {:?}", outcome.states, outcome.depth, outcome.complete, start.elapsed());
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
