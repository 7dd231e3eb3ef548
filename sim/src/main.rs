//! `palisade-sim`: checks the lock rules in every order of events within bounds, and in long runs in which everything
//! goes wrong.

// The program prints elapsed time.
#![allow(clippy::disallowed_methods)]

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use palisade_sim::rules::{Rule, Without};
use palisade_sim::simulation::{self, Failure, Plan, Totals};
use palisade_sim::{Bounded, family, members, model, queue};

/// The interval between progress lines.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// The number of lines printed from the end of a run's record.
const STORY_LINES: usize = 60;

#[derive(Parser)]
#[command(version, about)]
struct Options {
    #[command(subcommand)]
    what: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Explores all states of the models, with every rule in place.
    Model {
        /// The largest number of states of a model
        #[arg(long, default_value_t = 10_000_000)]
        states: usize,
        /// Only models whose description contains this text
        #[arg(default_value = "")]
        only: String,
    },
    /// Switches off one rule after the other, and shows what the model checker and the simulation find.
    Rules {
        /// Only this rule
        rule: Option<Rule>,
        /// The largest number of states
        #[arg(long, default_value_t = 20_000_000)]
        states: usize,
        /// The largest number of seeds
        #[arg(long, default_value_t = 5_000)]
        seeds: u64,
    },
    /// Simulates one run for each seed.
    Run {
        /// The number of seeds
        #[arg(long, env = "SEEDS", default_value_t = 300)]
        seeds: u64,
        /// The first seed
        #[arg(long, env = "FROM", default_value_t = 0)]
        from: u64,
        /// Switches off this rule
        #[arg(long)]
        without: Option<Rule>,
    },
    /// Runs one seed, or a saved plan, again, and prints what happened.
    Replay {
        /// A seed, or a file with a plan
        seed: String,
        /// Switches off this rule
        #[arg(long)]
        without: Option<Rule>,
        /// Keeps the run as it was drawn, not made smaller
        #[arg(long)]
        whole: bool,
        /// Writes the plan that was run to this file
        #[arg(long)]
        keep: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let right = match Options::parse().what {
        Task::Model { states, only } => check_models(states, &only),
        Task::Rules { rule, states, seeds } => rules(rule, states, seeds),
        Task::Run { seeds, from, without } => run(from, seeds, Without(without)),
        Task::Replay { seed, without, whole, keep } => replay(&seed, Without(without), whole, keep),
    };
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn check_models(states: usize, only: &str) -> bool {
    let mut right = true;
    println!("| model | states | longest path | all seen | seconds |\n|---|---|---|---|---|");
    let all = [model::sound(), queue::sound(), family::sound(), members::sound(2)];
    for model in all.into_iter().flatten().filter(|model| model.about.contains(only)) {
        let (start, name) = (Instant::now(), model.about);
        let outcome = model.exhaust(states, threads());
        let seen = if outcome.complete { "yes" } else { "no" };
        let seconds = start.elapsed().as_secs_f64();
        println!("| {name} | {} | {} | {seen} | {seconds:.1} |", outcome.states, outcome.depth);
        if let Some((broken, steps)) = outcome.found {
            right = false;
            println!("\n{broken}");
            steps.iter().enumerate().for_each(|(n, step)| println!("{:>4}. {step}", n + 1));
        }
    }
    right
}

fn rules(only: Option<Rule>, states: usize, seeds: u64) -> bool {
    let is_meant = |rule: Rule| only.is_none_or(|only| only == rule);
    let all = [model::broken(), queue::broken(), members::broken()];
    let all = all.into_iter().flatten().filter(|model| is_meant(model.about));
    let mut table: Vec<_> = all.map(|model| (model.about, in_model(&model, states))).collect();
    let out_of_sight = model::OUT_OF_SIGHT.into_iter().filter(|(rule, _)| is_meant(*rule));
    table.extend(out_of_sight.map(|(rule, why)| (rule, Err(format!("{why} | |")))));
    println!(
        "\n| without the rule | the model checker finds | in steps | of so many states | the simulation finds | in so many seeds |"
    );
    println!("|---|---|---|---|---|---|");
    let mut all_found = true;
    for (rule, in_model) in table {
        let found = (0..seeds).find_map(|seed| {
            let failure = simulation::run(&Plan::draw(seed), Without(Some(rule))).1?;
            Some(format!("{} | {}", failure.law(), seed + 1))
        });
        // Detection by one layer is enough: some orders of events are so rare that only the model checker finds them.
        all_found &= found.is_some() || in_model.is_ok();
        let (Ok(in_model) | Err(in_model)) = in_model;
        println!("| {} | {in_model} | {} |", rule.sentence(), found.unwrap_or_else(|| "nothing |".to_owned()));
    }
    all_found
}

/// Checks a model in which one rule is switched off, and prints the result. Returns the cells of a table: `Ok` if the
/// model checker noticed that the rule is missing.
fn in_model(model: &Bounded<Rule>, states: usize) -> Result<String, String> {
    println!("Without: {}", model.about.sentence());
    let outcome = model.find(states);
    let Some((broken, steps)) = outcome.found else { return Err("not found | |".to_owned()) };
    println!("  {broken}");
    steps.iter().enumerate().for_each(|(n, step)| println!("  {:>4}. {step}", n + 1));
    let property = broken.split(':').next().unwrap_or_default();
    Ok(format!("{property} | {} | {}", steps.len(), outcome.states))
}

fn run(from: u64, seeds: u64, without: Without) -> bool {
    let start = Instant::now();
    let mut all = Totals::default();
    let mut failed: Vec<(u64, Failure)> = vec![];
    let mut told = start;
    for seed in from..from + seeds {
        let (totals, failure) = simulation::run(&Plan::draw(seed), without);
        all.add(&totals);
        if let Some(failure) = failure {
            println!("seed {seed}: {failure}");
            failed.push((seed, failure));
        }
        if told.elapsed() >= PROGRESS_EVERY && std::io::stdout().is_terminal() {
            told = Instant::now();
            print!("\r{} of {seeds} seeds, {} steps, {} locks taken ", seed + 1 - from, all.moments, all.held);
            let _ = std::io::stdout().flush();
        }
    }
    println!("\r{seeds} seeds from {from} on, {} steps, in {:.1} s", all.moments, start.elapsed().as_secs_f64());
    println!(
        "{} locks taken, {} extensions, {} lost, {} refusals, {} writes taken and {} fenced out",
        all.held, all.extended, all.lost, all.refused, all.taken, all.fenced_out
    );
    println!(
        "on one node: {} locks taken, {} of them waited for, {} requests repeated, {} re-entries, {} who waited and went",
        all.single_held, all.single_waited, all.repeated, all.reentered, all.left
    );
    println!("of all: {} locks taken to read, {} permits, {} conversions", all.shared, all.permits, all.converted);
    println!(
        "while nothing went wrong but bursts and stalls: {} locks asked for until a limit and had, {} kept until they were given back; {} holders noticed that their lock was broken",
        all.had_in_time, all.kept, all.noticed
    );
    println!(
        "{} versions of sets that changed; clients took one up {} times, {} of them with a lock",
        all.versions, all.learnt, all.moved
    );
    let faults: Vec<_> = all.faults.iter().map(|(name, count)| format!("{count} {name}")).collect();
    println!("faults: {}", faults.join(", "));
    if let Some((seed, _)) = failed.first() {
        println!("{} runs broke a law. The first, told: {}", failed.len(), replay_command(*seed, without));
    }
    failed.is_empty()
}

/// Returns the command that replays a run, to be run in the source folder.
fn replay_command(seed: u64, without: Without) -> String {
    let rule = without.0.and_then(|rule| rule.to_possible_value());
    let without = rule.map(|rule| format!(" --without {}", rule.get_name())).unwrap_or_default();
    format!("cargo run --profile sim --package palisade-sim --bin palisade-sim -- replay {seed}{without}")
}

fn replay(seed: &str, without: Without, whole: bool, keep: Option<PathBuf>) -> bool {
    let plan = match seed.parse() {
        Ok(seed) => Plan::draw(seed),
        Err(_) => {
            match std::fs::read_to_string(seed).map_err(|why| why.to_string()).and_then(|text| Plan::from_text(&text)) {
                Ok(plan) => plan,
                Err(why) => {
                    eprintln!("{seed} is neither a seed (a number) nor a file with a plan: {why}");
                    return false;
                }
            }
        }
    };
    let plan = if whole { plan } else { simulation::smallest(&plan, without) };
    let (story, failure) = simulation::tell(&plan, without);
    for line in &story[story.len().saturating_sub(if whole { usize::MAX } else { STORY_LINES })..] {
        println!("{line}");
    }
    println!("\n{}", plan.to_text());
    if let Some(path) = keep
        && let Err(why) = std::fs::write(&path, plan.to_text())
    {
        eprintln!("the plan is not kept in {}: {why}", path.display());
    }
    match failure {
        Some(failure) => println!("\n{failure}"),
        None => println!("\nevery law was kept"),
    }
    failure.is_none()
}
