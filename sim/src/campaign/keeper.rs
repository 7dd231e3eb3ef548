//! A task of a client process that locks on one node with KEEPALIVE. It does not extend its leases, and sends
//! LOCK.CHECK before each write. Sometimes the task waits for the lock, is silent for seconds, or closes its connection
//! without a release.

use std::time::Duration;

use rand::RngExt;
use redis::RedisResult;
use tokio::time::sleep;

use super::connection::{Connection, Reply};
use super::journal::{Ended, KeptLease, Line, now_us};
use super::process::Task;
use super::register::Access;
use crate::history::{HeldAs, Holder, TimeUs};

/// The register's key of the lock on node 0; the keys of the others follow.
pub const FIRST_KEY: u32 = 100;

/// The lengths of leases, in milliseconds.
const TTL_MS: std::ops::RangeInclusive<u64> = 1_000..=2_000;

/// The longest time for a reachable node to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The allowance for a slow machine: when a connection has closed, its lease must be over this long after the ttl.
const OVER: Duration = Duration::from_millis(500);

impl Task {
    /// Takes and keeps one lock after another.
    pub(super) async fn keep(mut self) {
        while !self.is_to_finish() {
            // After an error, the task goes on with the next lock.
            let _ = self.keep_one().await;
            sleep(self.ms(50, 500)).await;
        }
    }

    async fn keep_one(&mut self) -> RedisResult<()> {
        let node = self.dice.random_range(0..self.shared.settings.nodes.len());
        let address = self.shared.settings.nodes[node].clone();
        let who = self.set_out();
        let (name, owner) = (format!("chaos:kept:{node}"), format!("keeper {}.{}", who.client, who.acquisition));
        let (ttl_ms, ms) = (self.dice.random_range(TTL_MS), self.dice.random_range(3_000..9_000));
        let (ttl, keep) = (ttl_ms.to_string(), ms.to_string());
        let wait = if self.once_in(2) { "3000" } else { "0" };
        let mut node_says = Connection::open(&address).await?;
        let since = now_us();
        let asked = ["LOCK.ACQUIRE", &name, &owner, &ttl, "KEEPALIVE", &keep, "WAIT", wait];
        // The answer has the token, and the time for which the request waited.
        let token = match node_says.ask(&asked, PATIENCE + Duration::from_secs(3)).await? {
            Reply::List(list) => list[0],
            Reply::Number(_) | Reply::Null => return Ok(()),
        };
        let kept = KeptLease { since, at: now_us(), node, who, ttl_ms, until: since + ms * 1_000 };
        self.write(Line::Kept(kept));
        let end = now_us() + self.dice.random_range(500..ms + 2_500) * 1_000;
        let how = self.holds(&mut node_says, &name, (who, token), end).await.unwrap_or(Some(Ended::Unknown));
        let how = match how {
            Some(how) => how,
            None if self.once_in(2) => {
                let token = token.to_string();
                match node_says.ask(&["LOCK.RELEASE", &name, &owner, "TOKEN", &token], PATIENCE).await {
                    Ok(Reply::Number(0)) => Ended::Released,
                    Ok(Reply::Null) => Ended::Lost,
                    _ => Ended::Unknown,
                }
            }
            None => {
                drop(node_says);
                sleep(Duration::from_millis(ttl_ms) + OVER).await;
                let asked = async {
                    let mut node_says = Connection::open(&address).await?;
                    node_says.ask(&["LOCK.CHECK", &name, &token.to_string()], PATIENCE).await
                };
                match asked.await {
                    Ok(Reply::Null) => Ended::LeftAndOver,
                    Ok(Reply::Number(_) | Reply::List(_)) => Ended::LeftAndHeld,
                    Err(_) => Ended::Unknown,
                }
            }
        };
        self.write(Line::KeptEnded { at: now_us(), who, how });
        Ok(())
    }

    /// Works under the lock until `end`. Returns how the lock ended, if it ended earlier.
    async fn holds(
        &mut self,
        node_says: &mut Connection,
        name: &str,
        (who, token): (Holder, u64),
        end: TimeUs,
    ) -> RedisResult<Option<Ended>> {
        let key = FIRST_KEY + name.rsplit(':').next().and_then(|node| node.parse().ok()).unwrap_or(0);
        let access = |write| Access { key, who, token, mode: HeldAs::Exclusive, write };
        while now_us() < end && !self.is_to_finish() {
            let asked = now_us();
            let Reply::Number(left_ms) = node_says.ask(&["LOCK.CHECK", name, &token.to_string()], PATIENCE).await?
            else {
                return Ok(Some(Ended::Lost));
            };
            let until = asked + left_ms * 1_000;
            let number = if now_us() < until { self.access(access(None)).await } else { None };
            if self.once_in(3) {
                sleep(self.ms(0, 60)).await;
            }
            if let Some(number) = number.filter(|_| now_us() < until) {
                self.access(access(Some(number + 1))).await;
            }
            // Some holders are silent for longer than their lease.
            let pause = if self.once_in(20) { self.ms(1_000, 4_000) } else { self.ms(20, 300) };
            sleep(pause).await;
        }
        Ok(None)
    }
}
