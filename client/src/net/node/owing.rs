//! Pending releases on a node, made as soon as it answers.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use rand::RngExt;
use redis::Value;
use tokio::time::sleep;

use super::{Node, State};
use crate::Why;
use crate::net::debt::{Debt, is_final};
use crate::values::clock;

/// Maximum number of pending releases on a node. Further locks stay locked until their leases end.
const OWED_MAX: usize = 16_384;

/// Number of releases made at a time, and the longest pause before the next ones if some failed.
const PAID_AT_A_TIME: usize = 32;
const PAID_AGAIN: Duration = Duration::from_millis(100);

impl Node {
    /// Registers a pending release, to be made as soon as the node answers.
    pub fn owe(&self, debt: &Arc<Debt>) {
        let mut owed = self.debts();
        if owed.len() < OWED_MAX {
            owed.push_back(Arc::clone(debt));
        }
        self.owes.send_replace(owed.len());
    }

    /// Returns the pending releases.
    pub fn debts(&self) -> MutexGuard<'_, VecDeque<Arc<Debt>>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns all pending releases.
    pub fn take_debts(&self) -> VecDeque<Arc<Debt>> {
        let owed = std::mem::take(&mut *self.debts());
        self.owes.send_replace(0);
        owed
    }

    /// Waits until no release is pending, or until the node is down, because a release may take long then.
    pub async fn is_paid(&self) {
        let (mut owes, mut states) = (self.owes.subscribe(), self.state.subscribe());
        tokio::select! {
            _ = owes.wait_for(|count| *count == 0) => {}
            _ = states.wait_for(|state| matches!(state, State::Down(_))) => {}
        }
    }

    /// Sends the pending releases, by calling `release`, whenever the node answers. Never returns.
    pub async fn pay(
        self: Arc<Self>,
        release: impl Fn(Arc<Debt>) -> BoxFuture<'static, Result<Value, Why>> + Send + Sync,
    ) {
        let mut owes = self.owes.subscribe();
        loop {
            let _ = owes.wait_for(|count| *count > 0).await;
            let mut states = self.state.subscribe();
            let mut silent = self.silent_since.subscribe();
            let ends = self.debts().front().map_or(clock::boot_now(), |debt| debt.ends());
            tokio::select! {
                // The first release is no longer tried then.
                () = sleep(clock::until(ends)) => {}
                () = async {
                    let _ = states.wait_for(|state| matches!(state, State::Up(_))).await;
                    let _ = silent.wait_for(Option::is_none).await;
                } => {}
            }
            let now = clock::boot_now();
            let batch: Vec<_> = self.debts().iter().take(PAID_AT_A_TIME).cloned().collect();
            let pay_one = async |debt: &Arc<Debt>| {
                if now >= debt.ends() {
                    return true;
                }
                let reply = release(Arc::clone(debt)).await;
                if reply.is_ok() {
                    debt.is_freed();
                }
                is_final(&reply)
            };
            let paid = join_all(batch.iter().map(pay_one)).await;
            let all_paid = paid.iter().all(|paid| *paid);
            {
                let mut owed = self.debts();
                // Some of these releases may have moved to another version of the set meanwhile.
                let known = batch.len().min(owed.len());
                owed.drain(..known);
                batch.into_iter().zip(paid).filter(|(_, paid)| !paid).for_each(|(debt, _)| owed.push_back(debt));
                self.owes.send_replace(owed.len());
            }
            if !all_paid {
                let jittered = PAID_AGAIN.mul_f64(rand::rng().random_range(0.5..1.0));
                sleep(jittered).await;
            }
        }
    }
}
