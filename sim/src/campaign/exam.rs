//! A node is examined by itself: it grants a lock that nobody else wants, something happens to it, and it is asked again.
//!
//! A lock on one node is a lock: while the lease of the first grant runs nobody else may be granted it, and the token of
//! the second grant is larger. Both ends err on the sharp side only by what a request takes: the lease is counted from
//! before the first request was sent, and the second grant from when its answer came. So what is found is a broken
//! promise of that node, whatever else happens to it meanwhile. (The hands that do the exception of the contract, taking a
//! lock away by hand, do not exist; a flush is guarded.)

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;

use super::journal::{now_us, wall_us};
use super::machine::ask_as;
use super::patience::until;
use super::world::World;
use crate::history::TimeUs;

/// Longer than any guard that is armed here.
pub const GUARD: Duration = Duration::from_secs(8);

/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(1);

/// A node without a state file starts at least so far above its clock and twice the greatest skew, in microseconds.
const START_AHEAD_US: u64 = 5_000_000;

/// Tokens that were granted a moment ago may be missing in what is known of them: as far ahead as that they are taken for,
/// in microseconds.
const UNSEEN_US: u64 = 1_000_000;

/// A lock that a node granted.
#[derive(Clone, Debug)]
pub struct Exam {
    /// Parameters of the connection: the user, the database.
    as_whom: &'static str,
    /// Its name.
    key: String,
    /// With this token.
    pub token: u64,
    /// Its lease does not end before; 0: it was given back.
    until: TimeUs,
    owner: String,
}

/// What came of the second question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// It was granted with a larger token, after the lease.
    Right,
    /// It was not granted: guarded, stopped, paused.
    None,
    /// A promise was broken.
    Wrong,
}

impl Exam {
    /// Takes `key` on the node at `socket`, for `ttl_ms`. None: it does not grant it now.
    pub async fn take(as_whom: &'static str, socket: &Path, key: &str, ttl_ms: u64) -> Option<Self> {
        let sent = now_us();
        let token = acquire(as_whom, socket, key, sent, ttl_ms).await.ok()??;
        Some(Self { as_whom, key: key.to_owned(), token, until: sent + ttl_ms * 1_000, owner: owner(sent) })
    }

    /// Raises its token.
    ///
    /// # Errors
    /// It is refused.
    pub async fn raise(&mut self, socket: &Path, token: u64) -> Result<(), String> {
        let words = ["LOCK.FENCE", &self.key, &self.owner, &token.to_string()];
        if let Some(raised) = ask_as::<Option<u64>>(self.as_whom, socket, &words, ANSWER).await? {
            self.token = raised;
        }
        Ok(())
    }

    /// Gives it back: from now on its token alone counts.
    pub async fn release(&mut self, socket: &Path) {
        say_as(self.as_whom, socket, &["LOCK.RELEASE", &self.key, &self.owner]).await;
        self.until = 0;
    }

    /// Asks the node again until it grants the lock, for so long. `tokens`: also the order of tokens is judged.
    pub async fn examine(&self, world: &World, socket: &Path, patience: Duration, tokens: bool, after: &str) -> Second {
        // For a moment only, and as one whom nobody mistakes for the first.
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

/// One for each request.
fn owner(sent: TimeUs) -> String {
    format!("exam {sent}")
}

/// Whether a node that starts now, without any memory and with a clock that is right, starts above every token there is:
/// what the contract asks for before a state file may be lost.
pub fn starts_above_all(world: &World) -> bool {
    !world.is_wild() && starts_above(world, world.highest_token.load(Ordering::Relaxed) + UNSEEN_US)
}

/// The same for one token.
pub fn starts_above(world: &World, token: u64) -> bool {
    token <= wall_us() + 2 * world.settings.skew_ms * 1_000 + START_AHEAD_US
}

/// Asks as `who`, and forgets the answer.
pub async fn say_as(who: &'static str, socket: &Path, words: &[&str]) {
    let _ = ask_as::<Value>(who, socket, words, ANSWER).await;
}
