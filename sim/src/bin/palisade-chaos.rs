//! Runs a fault campaign on real servers: see docs/chaos.md.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use palisade_sim::campaign::kinds::Kind;
use palisade_sim::campaign::world::Settings;
use palisade_sim::campaign::{self, agent, contender, report};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run a campaign, and write a report.
    Run(Run),
    /// Be one of its client processes.
    #[command(hide = true)]
    Client(contender::Settings),
    /// Be one of its agents.
    #[command(hide = true)]
    Agent(agent::Settings),
}

#[derive(Args)]
struct Run {
    /// The server program.
    #[arg(long, default_value = "redis-server", env = "PALISADE_SERVER")]
    server: PathBuf,
    /// The module.
    #[arg(long, env = "PALISADE_MODULE")]
    module: PathBuf,
    /// The `palisade` program, for outages under `palisade elect`; without it, they are left out.
    #[arg(long, env = "PALISADE_PROGRAM")]
    palisade: Option<PathBuf>,
    /// For how long faults are done, in seconds.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Of all choices; random unless given.
    #[arg(long, env = "PALISADE_SEED")]
    seed: Option<u64>,
    /// `lock.max-ttl` in milliseconds, and the longest lease that is asked for.
    #[arg(long, default_value_t = 2_000)]
    max_ttl: u64,
    /// `lock.max-clock-skew` in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    max_clock_skew: u64,
    /// The folder for the report; what is there is replaced.
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
    /// Lose disks and state files whatever tokens there are: excepted by the contract, see docs/chaos.md.
    #[arg(long)]
    lose_disks_at_any_time: bool,
    /// Break a cluster of six instead of five independent nodes; `--faults` do not apply to it.
    #[arg(long, conflicts_with = "faults")]
    cluster: bool,
    /// Of a cluster: a master that dies and slots that move, under the faults of clients and links; no other fault.
    #[arg(long, requires = "cluster")]
    brief: bool,
    /// Of the faults that can be left out, do these alone; all unless given, none of them if nothing follows.
    #[arg(long, value_delimiter = ',', num_args = 0..)]
    faults: Option<Vec<Kind>>,
}

fn main() -> ExitCode {
    match Cli::parse().what {
        What::Client(settings) => {
            contender::run(settings);
            ExitCode::SUCCESS
        }
        What::Agent(settings) => {
            agent::run(settings);
            ExitCode::SUCCESS
        }
        What::Run(run) => run.campaign(),
    }
}

impl Run {
    fn campaign(self) -> ExitCode {
        // Ten digits are easy to type again.
        let seed = self.seed.unwrap_or_else(|| rand::random::<u64>() % 10_000_000_000);
        println!("seed {seed}: PALISADE_SEED={seed} makes the same choices again, though not at the same moments");
        let _ = std::fs::remove_dir_all(&self.out);
        let settings = Settings {
            server: self.server,
            module: std::path::absolute(&self.module).unwrap_or(self.module),
            palisade: self.palisade.map(|palisade| std::path::absolute(&palisade).unwrap_or(palisade)),
            seconds: self.seconds,
            seed,
            max_ttl_ms: self.max_ttl,
            skew_ms: self.max_clock_skew,
            out: std::path::absolute(&self.out).unwrap_or(self.out),
            lose_disks_at_any_time: self.lose_disks_at_any_time,
            faults: match self.cluster {
                true => BTreeSet::new(),
                false => self.faults.unwrap_or_else(|| Kind::value_variants().to_vec()).into_iter().collect(),
            },
            cluster: self.cluster,
            brief: self.brief,
        };
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
}
