//! Many tasks in several processes want one lock: one at a time gets it, and tokens rise in the order of the grants.

use std::process::{Command, Stdio};
use std::time::Instant;

use palisade_client::{Client, Options};

use crate::fixture::{Nodes, connected, ms};
use crate::harness::Setup;

const PROCESSES: usize = 5;
const TASKS: usize = 10;

/// Contends for the lock in a child process. It is a test only so that the parent can start it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test below"]
async fn contender_runs_in_a_child_process() {
    let Ok(addresses) = std::env::var("CONTENDER_NODES") else { return };
    let sections: usize = std::env::var("CONTENDER_SECTIONS").unwrap().parse().unwrap();
    let file = std::env::var("CONTENDER_FILE").unwrap();
    let locks = Client::new(addresses.split(',')).unwrap();
    connected(&locks).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (locks, file) = (locks.clone(), file.clone());
            tokio::spawn(async move {
                for _ in 0..sections {
                    let options = Options::new().ttl(ms(20_000)).node_timeout(ms(5_000));
                    let guard = locks.with(&options).lock("k").await.unwrap();
                    // A counter that only the lock protects: each section reads it, then writes it, together with the
                    // section's token.
                    let before = std::fs::read_to_string(&file).unwrap();
                    let (count, largest) = before.split_once(' ').unwrap();
                    let (count, largest): (u64, u64) = (count.parse().unwrap(), largest.parse().unwrap());
                    assert!(guard.token() > largest, "tokens are in the order of the sections");
                    std::fs::write(&file, format!("{} {}", count + 1, guard.token())).unwrap();
                    assert!(guard.is_valid());
                    guard.release().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Runs `PALISADE_SECTIONS` critical sections in all (default 1 000). No two overlap, and tokens rise in their order.
#[test]
fn fifty_tasks_in_five_processes_on_one_key() {
    let total: usize = std::env::var("PALISADE_SECTIONS").map_or(1_000, |count| count.parse().unwrap());
    let nodes = Nodes::start_with(5, Setup::new);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counter");
    std::fs::write(&file, "0 0").unwrap();
    let sections = total / (PROCESSES * TASKS);
    let start = Instant::now();
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "contention::contender_runs_in_a_child_process", "--ignored", "--nocapture"])
                .env("CONTENDER_NODES", nodes.addresses().join(","))
                .env("CONTENDER_SECTIONS", sections.to_string())
                .env("CONTENDER_FILE", &file)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let counted: usize = std::fs::read_to_string(&file).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(counted, sections * PROCESSES * TASKS);
    println!("{counted} critical sections in {:?}", start.elapsed());
}
