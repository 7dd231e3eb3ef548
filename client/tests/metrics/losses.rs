//! Each way to lose a lock has a reason of its own.

use std::time::Duration;

use palisade_client::{Loss, Options};

use crate::fixture::{Nodes, ms, until};
use crate::recorder::sum;

fn losses(reason: &str) -> f64 {
    sum("palisade_client_losses_total", &[("class", "losses"), ("reason", reason)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_loss_is_counted_by_its_reason() {
    let (mut nodes, locks) = Nodes::with_client(3).await;
    let of = |ttl| Options::new().ttl(ms(ttl)).class("losses");

    let guard = locks.with(&of(60_000)).lock("a").await.unwrap();
    until("every node has it", async || nodes.holding("a") == 3).await;
    nodes.say("LOCK.BREAK a");
    guard.extend().await.unwrap_err();
    assert!(matches!(guard.lost().await, Loss::TakenAway(_)));

    let guard = locks.with(&of(300).auto_extend(false)).lock("b").await.unwrap();
    assert_eq!(guard.lost().await, Loss::NotExtended);

    let guard = locks.with(&of(300).max_hold(ms(400))).lock("c").await.unwrap();
    assert_eq!(guard.lost().await, Loss::MaxHold);

    // A task blocks the client's own thread for longer than the lease.
    let guard = locks.with(&of(300)).lock("d").await.unwrap();
    locks.spawn(async { std::thread::sleep(Duration::from_secs(1)) }).unwrap();
    assert_eq!(guard.lost().await, Loss::Asleep);

    // The last case: two of three nodes are gone.
    let guard = locks.with(&of(2_000)).lock("e").await.unwrap();
    nodes.0[1..].iter_mut().for_each(|server| server.kill());
    assert!(matches!(guard.lost().await, Loss::TooFewNodes(_)));

    let reasons = ["taken_away", "not_extended", "max_hold", "asleep", "too_few_nodes"];
    until("each is counted", async || reasons.iter().map(|reason| losses(reason)).sum::<f64>() == 5.0).await;
    for reason in reasons {
        assert_eq!(losses(reason), 1.0, "{reason}");
    }
    // No lock is held any longer, and each loss was counted once, whatever followed.
    drop(guard);
    assert_eq!(sum("palisade_client_held", &[("class", "losses")]), 0.0);
    assert_eq!(sum("palisade_client_hold_seconds_count", &[("class", "losses")]), 5.0);
}
