//! Replicas that take over, while locks are held and while many requests wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use palisade_client::{ErrorKind, Loss};

use crate::cluster::{MAX_TTL_MS, Six, key_of, options};
use crate::cluster_changes::{Judge, take_turns};
use crate::fixture::{locking, ms, until};
use crate::harness::{Member, text, wait_until};

/// Makes the replica take over. The server gives up a fail-over after 5 s, which may be too short on a busy machine, so
/// it is repeated.
pub fn fail_over(replica: &Member) {
    let mut asked: Option<Instant> = None;
    let mut client = replica.client();
    tokio::task::block_in_place(|| {
        wait_until("it took over", || {
            let is_asked = asked.is_some_and(|asked| asked.elapsed() < Duration::from_secs(6));
            if !is_asked && client.say("CLUSTER FAILOVER") == text("OK") {
                asked = Some(Instant::now());
            }
            client.say("ROLE").as_list()[0] == text("master")
        });
    });
}

/// Locks of the other masters are unaffected. Locks of the dead master end with their validity, and can be acquired
/// again after its replica's guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced() {
    let mut six = Six::start(3_000);
    let locks = six.client().await;
    let keys: Vec<_> = (0..3).map(key_of).collect();
    let mut guards = vec![];
    for key in &keys {
        guards.push(locks.with(&options()).lock(key).await.unwrap());
    }
    let waiting = locking(&six.client().await, &options(), &keys[1]);
    until("it waits", async || six.0[1].server.info("waiters") == 1).await;
    six.0[1].server.kill();
    let loss = guards[1].lost().await;
    assert!(matches!(loss, Loss::TooFewNodes(_)), "{loss}");
    assert!(loss.to_string().contains(&six.0[1].server.port().to_string()), "which master it was: {loss}");
    let next = waiting.await.unwrap();
    assert!(next.token() > guards[1].token() && next.is_valid());
    assert!(guards[0].is_valid() && guards[2].is_valid(), "they were extended all the while");
    assert_eq!(six.0[4].server.info("held"), 1);
    // The old master comes back as a replica, which no lock notices.
    six.0[1].server.start_again();
    let comes_back = || six.0[1].client().say("ROLE").as_list()[0] == text("slave");
    until("the old master follows", async || comes_back()).await;
    tokio::time::sleep(ms(MAX_TTL_MS)).await;
    assert!(next.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_steps_down_is_guarded_and_waited_out() {
    let six = Six::start(60_000);
    let locks = six.client().await;
    let key = key_of(1);
    let guard = locks.with(&options()).lock(&key).await.unwrap();
    let waiting = locking(&six.client().await, &options(), &key);
    until("it waits", async || six.0[1].server.info("waiters") == 1).await;
    let other = six.client().await;
    let start = Instant::now();
    fail_over(&six.0[4]);
    // The refusal names the guard once the other client knows the new master; or the guard has ended by then.
    until("it is told", async || match other.with(&options()).try_lock(format!("{{{key}}}free")).await {
        Err(error) => error.kind() == ErrorKind::Guarded && error.retry_after().is_some(),
        Ok(guard) => {
            assert!(
                start.elapsed() > ms(MAX_TTL_MS),
                "granted without a guard, or by the old master: {}",
                guard.token()
            );
            true
        }
    })
    .await;
    // The replica has the lock, but does not know whether that is its latest state.
    guard.lost().await;
    let next = waiting.await.unwrap();
    assert!(next.token() > guard.token() && six.0[4].server.info("held") == 1);
}

/// Many tasks want a few locks of one master while it is replaced. No lock is held twice, tokens rise, and each task
/// gets each lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wait_while_their_master_is_replaced() {
    let mut six = Six::start(3_000);
    let clients = [six.client().await, six.client().await];
    let judged: Vec<_> = (0..2).map(|n| (format!("{{{}}}{n}", key_of(1)), Arc::new(Judge::default()))).collect();
    let take_turns = |n: usize| {
        let (key, judge) = judged[n % 2].clone();
        tokio::spawn(take_turns(clients[n / 2 % 2].clone(), key, judge))
    };
    let workers: Vec<_> = (0..12).map(take_turns).collect();
    until("some had it", async || judged[0].1.judge() > 20).await;
    fail_over(&six.0[4]);
    let before = judged[0].1.judge();
    until("some had it again", async || judged[0].1.judge() > before + 20).await;
    // The previous master takes over again, because its successor dies.
    until("it is told what it must know", async || six.0[1].server.info("outstanding_ttl_ms") <= 2 * MAX_TTL_MS).await;
    six.0[4].server.kill();
    judged.iter().for_each(|(_, judge)| judge.is_over());
    for worker in workers {
        worker.await.unwrap();
    }
    println!("{:?} turns", judged.iter().map(|(_, judge)| judge.judge()).collect::<Vec<_>>());
}
