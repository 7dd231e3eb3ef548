//! A limited number of workers on all hosts, each with a shard of its own, that read a table which another process
//! replaces.
//!
//! Start it in several terminals, with the seconds of work in WORK_SECONDS (default 5): three work, the others wait in
//! turn. With IMPORT=1 the program replaces the table instead: it waits until nobody reads, replaces the table, and
//! reads it back before another import can begin.

mod addresses;

use std::time::Duration;

use palisade_client::{Client, Error, Options};
use tokio::time::sleep;

/// Number of concurrent workers. Every process has to use the same number.
const WORKERS: u16 = 3;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = Client::new(addresses::of_nodes())?;
    let done = match std::env::var("IMPORT") {
        Ok(_) => import(&locks).await,
        Err(_) => work(&locks).await,
    };
    locks.close().await?;
    done
}

async fn work(locks: &Client) -> Result<(), Error> {
    let options = Options::new().note(format!("worker, process {}", std::process::id()));
    let permit = locks.with(&options).semaphore("workers", WORKERS).acquire().await?;
    // No other worker has this number at the same time. A write to the shard carries the token, and the shard remembers
    // the largest it has seen; tokens of other shards do not matter.
    println!("works on shard {} of {WORKERS}, with token {}", permit.number(), permit.token());
    let table = locks.with(&options).rw_lock("table");
    for _ in 0..seconds() {
        // Readers share the table with each other, and never read while it is replaced.
        let reading = table.read().await?;
        println!("read the table with token {}", reading.token());
        sleep(Duration::from_secs(1)).await;
        reading.release().await;
        if permit.is_lost() {
            println!("the permit is lost: somebody else may work on shard {} by now", permit.number());
            return Ok(());
        }
    }
    println!("the permit: {:?}", permit.release().await);
    Ok(())
}

async fn import(locks: &Client) -> Result<(), Error> {
    let writing = locks.rw_lock("table").write().await?;
    println!("replaces the table, with token {}", writing.token());
    sleep(Duration::from_secs(1)).await;
    // As a reader it lets other readers in, but no other import.
    let reading = writing.downgrade().await?;
    println!("reads it back beside others, with token {}", reading.token());
    println!("the lock: {:?}", reading.release().await);
    Ok(())
}

fn seconds() -> u64 {
    std::env::var("WORK_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(5)
}
