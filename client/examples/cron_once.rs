//! A job that runs once a minute, although cron starts it on many hosts in that minute.
//!
//! Exit code 0: the job ran, here or on another host. 1: it may not have run. 2: no nodes were given.

// The minute is that of the wall clock, as for cron.
#![allow(clippy::disallowed_methods)]

mod addresses;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use palisade_client::{Client, Error, ErrorKind, Guard, Options};
use tokio::time::sleep;

const PERIOD: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    let nodes = addresses::of_nodes();
    match run(&nodes).await {
        Ok(done) => done,
        // If the error names no holder, the wait ended for another reason, such as guarded nodes.
        Err(error) if error.kind() == ErrorKind::TimedOut && error.holder().is_some() => {
            println!("skipped, another host has it: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(nodes: &[String]) -> Result<ExitCode, Error> {
    // The minute is part of the key, so a host that keeps the lock too long does not delay the next run.
    let minute = since_1970().as_secs() / PERIOD.as_secs();
    let key = format!("cron:report:{minute}");
    let end = PERIOD * u32::try_from(minute + 1).expect("a minute of this millennium");

    let options = Options::new()
        // Not `try_lock`: of hosts that ask at the same moment, each may get some nodes and none a majority. After a
        // short wait, one of them is sure to hold the lock.
        .wait(Duration::from_secs(2))
        .note(format!("process {}", std::process::id()));
    let locks = Client::new(nodes)?;
    let guard = locks.with(&options).lock(key).await?;
    println!("it runs here, with token {}", guard.token());

    // If the lock is lost, another host of this minute may run the job: stop at the next await. The job writes with the
    // token, so that the resource can refuse the older run.
    let done = tokio::select! {
        biased;
        _ = guard.lost() => false,
        () = job(&guard) => true,
    };
    if !done {
        eprintln!("the lock was lost before the job was done");
        return Ok(ExitCode::FAILURE);
    }

    // The lock is kept until the minute is over: hosts that are late skip the job too.
    let rest = end.saturating_sub(since_1970());
    println!("done; the lock is kept for {} s more", rest.as_secs());
    sleep(rest).await;
    println!("the lock: {:?}", guard.release().await);
    Ok(ExitCode::SUCCESS)
}

async fn job(guard: &Guard) {
    println!("the report, written with token {}", guard.token());
    sleep(Duration::from_secs(1)).await;
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
