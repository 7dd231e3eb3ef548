//! Earlier versions of the module beside this one, in one quorum.
//!
//! These tests need earlier versions, so they are ignored by default: `make test-upgrade` builds them and runs all.

use std::process::Command;

use palisade_client::{Client, ErrorKind, Options, Released};

use crate::fixture::{Nodes, connected, locking, ms, until};
use crate::harness::{Earlier, Setup, earlier, int, text};

/// The longest lease of the nodes that are upgraded, in milliseconds: short, and so are the guards.
const MAX_TTL_MS: u64 = 3_000;

/// Starts five nodes, the first `count` of them with an earlier version.
fn mixed(version: &Earlier, count: usize) -> Nodes {
    crate::told::listen();
    let setup = |place| if place < count { Setup::new().earlier(version) } else { Setup::new() };
    Nodes((0..5).map(|place| setup(place).start()).collect())
}

/// Returns true once all five nodes have `k` with this token.
fn all_have(nodes: &Nodes, token: u64) -> bool {
    nodes.holding("k") == 5 && nodes.say("LOCK.INFO k").iter().all(|info| info.field("token") == int(token as i64))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
async fn locks_of_nodes_of_several_versions() {
    for version in earlier() {
        for count in [3, 5] {
            let nodes = mixed(&version, count);
            let (locks, other) = (nodes.client().await, nodes.client().await);
            let guard = locks.with(&Options::new().note("me")).try_lock("k").await.unwrap();
            // The tokens of five new nodes differ, so the client has raised the smaller ones (LOCK.FENCE).
            until("each node has the lock with one token", async || all_have(&nodes, guard.token())).await;
            let refused = other.try_lock("k").await.unwrap_err();
            assert_eq!((refused.kind(), refused.holder().unwrap().note.as_str()), (ErrorKind::Contended, "me"));
            guard.extend().await.unwrap();
            let inner = guard.reenter().await.unwrap();
            assert_eq!(inner.release().await, Released::StillHeld(1));
            // In turn, from queue to queue.
            let next = locking(&other, &Options::new(), "k");
            nodes.queued(1).await;
            let token = guard.token();
            assert_eq!(guard.release().await, Released::Released);
            let next = next.await.unwrap();
            assert!(next.token() > token, "{} is not above {token}", next.token());
            assert_eq!(next.release().await, Released::Released);
            until("it is free", async || nodes.holding("k") == 0).await;
        }
    }
}

/// A majority of nodes that do not know SHARED refuses it: no reader takes it for an exclusive lock, or the reverse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
async fn what_a_majority_does_not_know_is_refused() {
    for version in earlier().into_iter().filter(Earlier::is_the_first) {
        let nodes = mixed(&version, 3);
        let locks = nodes.client().await;
        let refused = locks.rw_lock("k").try_read().await.unwrap_err();
        println!("{refused}");
        assert_eq!(refused.kind(), ErrorKind::BadArgument);
        until("nothing is left of it", async || nodes.holding("k") == 0).await;
    }
}

/// All nodes are upgraded, one after the other; each serves before the next one stops, as docs/operations.md says. The
/// holder keeps its lock, and the queue its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
async fn a_lock_is_held_while_all_nodes_are_upgraded() {
    for version in earlier() {
        let arguments = ["max-ttl", &MAX_TTL_MS.to_string(), "max-clock-skew", "0"];
        let setup = || Setup::new().aof().module_arguments(&arguments).earlier(&version);
        let mut nodes = Nodes::start_with(5, setup);
        let options = Options::new().ttl(ms(MAX_TTL_MS));
        let (locks, other) = (upgrading(&nodes, &options).await, upgrading(&nodes, &options).await);
        let guard = locks.lock("k").await.unwrap();
        let next = locking(&other, &options, "k");
        nodes.queued(1).await;
        for place in 0..5 {
            nodes.0[place].kill();
            nodes.0[place].start_again_with(Setup::present);
            let upgraded = &nodes.0[place];
            until("it serves", async || upgraded.client().say("LOCK.NODE").field("state") == text("serving")).await;
            until("each node has the lock again", async || nodes.holding("k") == 5).await;
            assert!(guard.is_valid() && !next.is_finished(), "{} at node {place}", version.name);
        }
        let token = guard.token();
        assert_eq!(guard.release().await, Released::Released);
        assert!(next.await.unwrap().token() > token);
    }
}

/// Returns a client of nodes with short leases.
async fn upgrading(nodes: &Nodes, options: &Options) -> Client {
    let client = Client::builder().nodes(nodes.addresses()).defaults(options.clone()).build().unwrap();
    connected(&client).await;
    client
}

/// An upgrade begins with the nodes, so clients of the earlier version use newer nodes for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs modules of earlier versions: make test-upgrade"]
async fn a_program_of_an_earlier_version_locks_newer_nodes() {
    for version in earlier() {
        for count in [0, 2] {
            let nodes = mixed(&version, count);
            let locks = nodes.client().await;
            let run = |arguments: &[&str]| {
                let mut program = Command::new(version.program());
                program.env("PALISADE_NODES", nodes.addresses().join(",")).env("PALISADE_NODE_TIMEOUT", "5s");
                program.args(arguments).output().unwrap()
            };
            let ran = run(&["exec", "k", "--", "sh", "-c", "echo $PALISADE_TOKEN"]);
            assert!(ran.status.success(), "{}: {ran:?}", version.name);
            let token: u64 = String::from_utf8(ran.stdout).unwrap().trim().parse().unwrap();
            let guard = locks.lock("k").await.unwrap();
            assert!(guard.token() > token);
            let refused = run(&["exec", "--no-wait", "k", "--", "true"]);
            assert_eq!(refused.status.code(), Some(194), "{}: {refused:?}", version.name);
            let seen = run(&["info", "k"]);
            assert!(String::from_utf8_lossy(&seen.stdout).contains(&guard.token().to_string()), "{seen:?}");
            guard.release().await;
        }
    }
}
