//! A witness asks every node repeatedly, over one connection each, and can tell afterwards at which times a majority
//! answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::campaign::journal::now_us;
use crate::campaign::world::{NODES, World};
use crate::history::TimeUs;

/// The pause between the answer to a PING and the next PING to that node.
const EVERY: Duration = Duration::from_millis(10);

/// The longest time from one answer to the next, in microseconds, of a node that counts as answering.
const PROMPT_US: u64 = 40_000;

/// The time after which an unanswered question is given up.
const GIVE_UP: Duration = Duration::from_secs(5);

/// The smallest part of a period, as a fraction, during which a majority must have answered for the period to count as one
/// in which the nodes answered.
const PART: (u64, u64) = (1, 2);

/// The times of a node's answers.
type Answers = Arc<Mutex<Vec<TimeUs>>>;

/// A witness. It asks until it is dropped.
#[derive(Debug)]
pub struct Witness {
    answers: Vec<Answers>,
    _asks: JoinSet<()>,
}

impl Witness {
    /// Begins to ask every node.
    pub fn of(world: &World) -> Self {
        let mut asks = JoinSet::new();
        let answers: Vec<Answers> = (0..NODES).map(|_| Answers::default()).collect();
        for (slot, answers) in world.slots.iter().zip(&answers) {
            let client = redis::Client::open(format!("unix://{}", slot.socket().display()));
            let answers = Arc::clone(answers);
            asks.spawn(async move {
                let Ok(client) = client else { return };
                let Ok(mut connection) = client.get_multiplexed_async_connection().await else { return };
                while ping(&mut connection).await {
                    answers.lock().unwrap_or_else(PoisonError::into_inner).push(now_us());
                    sleep(EVERY).await;
                }
            });
        }
        Self { answers, _asks: asks }
    }

    /// Returns true if, for at least half of the period, a majority of the nodes answered promptly at the same time and
    /// this process was not paused. A lease is extended every third of its length, and a round of extension takes a few
    /// answers, so the lease could be extended.
    pub fn answered(&self, from: TimeUs, until: TimeUs) -> bool {
        let prompt: Vec<Vec<(TimeUs, TimeUs)>> =
            self.answers.iter().map(|answers| prompt(answers, from, until)).collect();
        // The sum of the stretches in which a majority answered.
        let mut ends: Vec<(TimeUs, i32)> =
            prompt.iter().flatten().flat_map(|&(from, until)| [(from, 1), (until, -1)]).collect();
        ends.sort_unstable();
        let (mut nodes, mut since, mut sum) = (0, from, 0);
        for (at, step) in ends {
            if nodes > NODES as i32 / 2 {
                sum += at - since;
            }
            (nodes, since) = (nodes + step, at);
        }
        sum * PART.1 >= (until - from) * PART.0
    }
}

async fn ping(connection: &mut MultiplexedConnection) -> bool {
    let ping = redis::cmd("PING");
    timeout(GIVE_UP, ping.exec_async(connection)).await.is_ok_and(|answer| answer.is_ok())
}

/// Returns the periods in which a node answered each question promptly.
fn prompt(answers: &Answers, from: TimeUs, until: TimeUs) -> Vec<(TimeUs, TimeUs)> {
    let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
    let pairs = answers.windows(2).filter_map(|pair| match pair {
        &[one, next] if next - one <= PROMPT_US => Some((one.max(from), next.min(until))),
        _ => None,
    });
    pairs.filter(|(from, until)| from < until).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(answers: [&[TimeUs]; NODES]) -> Witness {
        let answers = answers.map(|answers| Arc::new(Mutex::new(answers.to_vec())));
        Witness { answers: answers.to_vec(), _asks: JoinSet::new() }
    }

    #[test]
    fn half_of_the_time_a_majority_must_have_answered() {
        let all: Vec<TimeUs> = (0..=200).map(|n| n * 10_000).collect();
        let half = &all[..110];
        let late: Vec<TimeUs> = (0..=40).map(|n| n * 50_000).collect();
        assert!(witness([&all, &all, &all, &[], &[]]).answered(0, 2_000_000));
        assert!(!witness([&all, &all, &[], &[], &[]]).answered(0, 2_000_000));
        assert!(witness([&all, &all, half, &[], &[]]).answered(0, 2_000_000));
        assert!(!witness([&all, &all, &half[..90], &[], &[]]).answered(0, 2_000_000));
        assert!(!witness([&all, &all, &late, &late, &late]).answered(0, 2_000_000));
        // Two nodes that answer in different halves of the time do not make a majority.
        assert!(!witness([&all, &all, &all[..100], &all[..90], &[]]).answered(0, 2_010_000));
    }
}
