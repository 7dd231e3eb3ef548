//! An exam of a single node: the node grants a lock that no client wants, a fault happens to the node, and the exam
//! asks for the lock again.
//!
//! A node alone must keep two promises. While the lease of the first grant runs, no other owner gets the lock; and the
//! token of the second grant is larger. Both checks are exact except for the duration of a request. The lease counts
//! from before the first request was sent, and the second grant from the moment of its answer. So a finding is a broken
//! promise of that node, even if other faults happen to it as well. (The promises do not cover locks that a person
//! takes away. An exam never takes one away, and a flush arms the guard.)

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;

use super::journal::{now_us, wall_us};
use super::machine::ask_as;
use super::patience::until;
use super::world::World;
use crate::history::TimeUs;

/// A time longer than any guard in a campaign.
pub const GUARD: Duration = Duration::from_secs(8);

/// The longest time that one question may take.
const ANSWER: Duration = Duration::from_secs(1);

/// A node without a state file starts its tokens at least this far, in microseconds, above its clock plus twice the
/// greatest skew.
const START_AHEAD_US: u64 = 5_000_000;

/// The allowance, in microseconds, for recent tokens that are not in the campaign's record yet.
const UNSEEN_US: u64 = 1_000_000;

/// The lock of an exam, as the node granted it.
#[derive(Clone, Debug)]
pub struct Exam {
    /// The parameters of the connection: the user and the database.
    as_whom: &'static str,
    /// The key of the lock.
    key: String,
    /// The token of the grant, or the token to which it was raised.
    pub token: u64,
    /// The earliest end of the lease; 0 if the lock was released.
    until: TimeUs,
    owner: String,
}

/// The result of asking the node for the lock again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// The node granted the lock again only after the lease, and with a larger token (if tokens are checked).
    Right,
    /// No grant: the node is guarded, stopped or paused.
    None,
    /// The node broke a promise: it granted too early, or the token is not larger.
    Wrong,
}

impl Exam {
    /// Takes `key` on the node at `socket` for `ttl_ms`. Returns `None` if the node does not grant it now.
    pub async fn take(as_whom: &'static str, socket: &Path, key: &str, ttl_ms: u64) -> Option<Self> {
        let sent = now_us();
        let token = acquire(as_whom, socket, key, sent, ttl_ms).await.ok()??;
        Some(Self { as_whom, key: key.to_owned(), token, until: sent + ttl_ms * 1_000, owner: owner(sent) })
    }

    /// Raises the token.
    ///
    /// # Errors
    /// The node refuses.
    pub async fn raise(&mut self, socket: &Path, token: u64) -> Result<(), String> {
        let words = ["LOCK.FENCE", &self.key, &self.owner, &token.to_string()];
        if let Some(raised) = ask_as::<Option<u64>>(self.as_whom, socket, &words, ANSWER).await? {
            self.token = raised;
        }
        Ok(())
    }

    /// Releases the lock: from now on, only its token counts.
    pub async fn release(&mut self, socket: &Path) {
        say_as(self.as_whom, socket, &["LOCK.RELEASE", &self.key, &self.owner]).await;
        self.until = 0;
    }

    /// Asks the node for the lock again until it grants it, for at most `patience`. With `tokens`, also checks that the
    /// new token is larger.
    pub async fn examine(&self, world: &World, socket: &Path, patience: Duration, tokens: bool, after: &str) -> Second {
        // The second grant is short, and has another owner name than the first.
        let again = until!(patience, acquire(self.as_whom, socket, &self.key, now_us(), 1).await.ok().flatten());
        again.map_or(Second::None, |token| self.judge(world, token, tokens, after))
    }

    fn judge(&self, world: &World, token: u64, tokens: bool, after: &str) -> Second {
        let now = now_us();
        if now < self.until {
            let left_ms = (self.until - now) / 1_000;
            world.log.found(format!("exclusion: {after}: it grants {} {left_ms} ms before the lease ends", self.key));
            return Second::Wrong;
        }
        if tokens && token <= self.token {
            let (key, first) = (&self.key, self.token);
            world.log.found(format!("token order: {after}: it grants {key} with token {token}, and did with {first}"));
            return Second::Wrong;
        }
        Second::Right
    }
}

async fn acquire(
    as_whom: &'static str,
    socket: &Path,
    key: &str,
    sent: TimeUs,
    ttl_ms: u64,
) -> Result<Option<u64>, String> {
    ask_as(as_whom, socket, &["LOCK.ACQUIRE", key, &owner(sent), &ttl_ms.to_string()], ANSWER).await
}

/// Returns an owner name that is unique to the request.
fn owner(sent: TimeUs) -> String {
    format!("exam {sent}")
}

/// Returns true if a node that starts now, with a correct clock and no memory, starts above every existing token. Only
/// then must tokens still grow after the loss of a state file.
pub fn starts_above_all(world: &World) -> bool {
    !world.is_wild() && starts_above(world, world.highest_token.load(Ordering::Relaxed) + UNSEEN_US)
}

/// Returns true if a node that starts now, with a correct clock and no memory, starts above `token`.
pub fn starts_above(world: &World, token: u64) -> bool {
    token <= wall_us() + 2 * world.settings.skew_ms * 1_000 + START_AHEAD_US
}

/// Sends a command as `who`. Ignores the answer.
pub async fn say_as(who: &'static str, socket: &Path, words: &[&str]) {
    let _ = ask_as::<Value>(who, socket, words, ANSWER).await;
}
