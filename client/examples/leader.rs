//! A leader election: one of several processes leads, and when it dies or is cut off, another one does.
//!
//! Start it twice, and stop the leader with Ctrl-C or kill -9.

mod addresses;

use std::convert::Infallible;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use palisade_client::{Client, Error, ErrorKind, Guard, Options};
use tokio::time::sleep;

const KEY: &str = "scheduler:leader";

#[tokio::main]
async fn main() -> ExitCode {
    let nodes = addresses::of_nodes();
    match run(&nodes).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(nodes: &[String]) -> Result<(), Error> {
    let options = Options::new()
        // The longest time without a leader after one has died.
        .ttl(Duration::from_secs(3))
        // A leader may lead for a day; then it stops, and competes with the other candidates again.
        .max_hold(Duration::from_secs(24 * 3_600))
        .note(format!("process {}", std::process::id()));
    let locks = Client::builder().nodes(nodes).defaults(options).build()?;
    let mut stop = pin!(tokio::signal::ctrl_c());
    loop {
        println!("campaigning");
        let guard = tokio::select! {
            // A candidate that stops waiting leaves the queues.
            _ = &mut stop => return Ok(()),
            elected = campaign(&locks) => elected?,
        };
        println!("leading, with token {}", guard.token());
        tokio::select! {
            biased;
            // If the lead is lost, `lead` is cancelled at its await.
            _ = guard.lost() => println!("the lead is lost: stopped"),
            _ = &mut stop => {
                // The next leader need not wait for the lease to end.
                println!("stopped; the lock: {:?}", guard.release().await);
                return Ok(());
            }
            never = lead(&guard) => match never {},
        }
    }
}

/// Waits in the queue until this process leads. `lock` keeps trying while nodes are down. A lasting error, such as a
/// wrong password, ends the program: somebody has to act.
async fn campaign(locks: &Client) -> Result<Guard, Error> {
    loop {
        match locks.lock(KEY).await {
            Err(error) if matches!(error.kind(), ErrorKind::NoQuorum | ErrorKind::Expired) => {
                eprintln!("{error}");
                sleep(Duration::from_secs(1)).await;
            }
            outcome => return outcome,
        }
    }
}

/// Does the leader's work, step by step. Each step sends the token to the resource that it changes.
async fn lead(guard: &Guard) -> Infallible {
    for step in 1_u64.. {
        sleep(Duration::from_secs(1)).await;
        println!("step {step} with token {}, valid for {} ms", guard.token(), guard.valid_for().as_millis());
    }
    unreachable!("there are more steps than seconds")
}
