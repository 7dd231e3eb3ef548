//! One lock on five nodes (or any other number), step by step, with the output of each step.
//!
//! Try it with all nodes running, with two of them stopped, and with three.

mod addresses;

use std::process::ExitCode;
use std::time::Duration;

use palisade_client::{Client, Error, Guard, Options, Released};

const KEY: &str = "orders:42";

#[tokio::main]
async fn main() -> ExitCode {
    let nodes = addresses::of_nodes();
    match run(&nodes).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            explain(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(nodes: &[String]) -> Result<(), Error> {
    let locks = Client::new(nodes)?;
    let options = Options::new()
        .ttl(Duration::from_secs(5))
        .note(format!("five_nodes, process {}", std::process::id()))
        // A node that takes longer does not count. By default the timeout adapts to each node's recent answers.
        .node_timeout(Duration::from_millis(500));
    println!("{} nodes, so {} of them decide.", nodes.len(), nodes.len() / 2 + 1);

    // A majority granted the lock; nodes that are down do not matter.
    let guard = locks.with(&options).try_lock(KEY).await?;
    show("taken", &guard);

    // Others are refused, and learn who holds the lock.
    match locks.with(&options).try_lock(KEY).await {
        Ok(_) => println!("the lock was lost meanwhile, and taken again"),
        Err(error) => explain(&error),
    }

    tokio::time::sleep(Duration::from_secs(1)).await;
    show("a second later", &guard);
    guard.extend().await?;
    show("extended", &guard);

    // Code that runs under the lock may acquire it too: the lock is free once both guards are released.
    let inner = guard.reenter().await?;
    show("re-entered", &inner);
    told("inner released", &inner.release().await);
    told("outer released", &guard.release().await);
    // The release did not wait for all nodes; when this returns, the others have released the lock too.
    locks.close().await
}

fn show(what: &str, guard: &Guard) {
    println!("{what:<16} token {}, valid for {} ms", guard.token(), guard.valid_for().as_millis());
}

fn told(what: &str, released: &Released) {
    match released {
        Released::Released => println!("{what:<16} free for others: a majority has released it"),
        Released::StillHeld(left) => println!("{what:<16} still held, guards left: {left}"),
        Released::AlreadyExpired => println!("{what:<16} it had ended before"),
        Released::PartlyUnreachable(nodes) => {
            println!("{what:<16} these nodes did not answer, too many to know:");
            nodes.iter().for_each(|node| println!("  {}: {}", node.node, node.why));
        }
        other => println!("{what:<16} {other:?}"),
    }
}

/// Explains why there is no lock, node by node.
fn explain(error: &Error) {
    println!("{:<16} {:?}", "refused", error.kind());
    if let Some(holder) = error.holder() {
        println!("  held by {:?} with token {}, since {:?}", holder.note, holder.token, holder.held_for);
    }
    if let Some(after) = error.retry_after() {
        println!("  worth another try after {after:?}");
    }
    error.nodes().iter().for_each(|node| println!("  {}: {}", node.node, node.why));
}
