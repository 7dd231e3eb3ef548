//! Runs a fault campaign on real servers: see docs/chaos.md.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use palisade_sim::campaign::settings::Settings;
use palisade_sim::campaign::{self, agent, contender, report};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    what: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run a campaign, and write a report.
    Run(Settings),
    /// Run as a client process of a campaign.
    #[command(hide = true)]
    Client { settings: String },
    /// Run as an agent of a campaign.
    #[command(hide = true)]
    Agent { settings: String },
}

fn main() -> ExitCode {
    match Cli::parse().what {
        Task::Client { settings } => contender::run(serde_json::from_str(&settings).expect("a campaign wrote them")),
        Task::Agent { settings } => agent::run(serde_json::from_str(&settings).expect("a campaign wrote them")),
        Task::Run(settings) => return run(settings),
    }
    ExitCode::SUCCESS
}

fn run(settings: Settings) -> ExitCode {
    println!("seed {0}: PALISADE_SEED={0} makes the same choices again, though not at the same moments", settings.seed);
    let _ = std::fs::remove_dir_all(&settings.out);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let outcome = match runtime.block_on(campaign::run(settings, |line| println!("{line}"))) {
        Ok(outcome) => outcome,
        Err(why) => {
            eprintln!("no campaign: {why}");
            return ExitCode::from(2);
        }
    };
    if let Err(why) = report::write(&outcome) {
        eprintln!("the report cannot be written to {}: {why}", outcome.out.display());
        return ExitCode::from(2);
    }
    println!("\n{}", report::progress(outcome.from, &outcome.history, &outcome.faults, outcome.wrong.len()));
    println!("report: {}/report.md, timeline: {0}/timeline.svg", outcome.out.display());
    for wrong in outcome.wrong.iter().take(10) {
        println!("VIOLATION at {:.3} s: {}", (wrong.at.saturating_sub(outcome.from)) as f64 / 1e6, wrong.what);
    }
    if let Some(noticed) = outcome.noticed {
        println!("noticed {:.1} s after the beginning", (noticed - outcome.from) as f64 / 1e6);
    }
    if outcome.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
