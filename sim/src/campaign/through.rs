//! A task of a client process that takes locks through agents, as a program in any language does. It knows its owner
//! name and the clock, but no nodes. When its agent is killed, the task uses another agent, which continues with the
//! locks that the first one took.

use std::time::Duration;

use rand::RngExt;
use redis::RedisResult;
use tokio::time::sleep;

use super::connection::{Connection, Reply};
use super::journal::{Line, now_us};
use super::process::{Task, key_name};
use super::register::Access;
use crate::history::{Event, HeldAs, Holder, Occurrence, TimeUs};

/// The number of tasks of a client process that take locks through agents.
pub const TASKS: u64 = 3;

/// The shortest lease that is requested, in milliseconds.
const TTL_MIN_MS: u64 = 300;

/// The longest time for an agent to answer, on top of the time to wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// The most permits of a lock. The clients do not agree on the limit.
const PERMITS_MAX: u16 = 4;

/// Returns the end of the holder's validity for a lease that was requested at `sent`, as docs/agent.md says.
pub(super) fn valid_until(sent: TimeUs, waited_ms: u64, ttl_ms: u64) -> TimeUs {
    (sent + waited_ms * 1_000 + ttl_ms * 990).saturating_sub(2_000)
}

pub(super) struct Through {
    task: Task,
    /// The connection to the last agent that was asked.
    agent: Option<Connection>,
}

/// A lock that is held.
#[derive(Clone, Copy)]
struct Held {
    key: u32,
    who: Holder,
    mode: HeldAs,
    token: u64,
    until: TimeUs,
    ttl_ms: u64,
}

impl Through {
    pub fn new(task: Task) -> Self {
        Self { task, agent: None }
    }

    pub async fn run(mut self) {
        while !self.task.is_to_finish() {
            let _ = self.take_one().await;
            sleep(self.task.ms(0, 60)).await;
        }
    }

    /// Asks the agent to which the task is connected, or another one if that fails.
    async fn ask(&mut self, words: &[&str]) -> RedisResult<Reply> {
        let mut agent = match self.agent.take().filter(|_| !self.task.once_in(20)) {
            Some(agent) => agent,
            None => {
                let agents = &self.task.shared.settings.agents;
                Connection::open(&agents[self.task.dice.random_range(0..agents.len())]).await?
            }
        };
        let reply = agent.ask(words, PATIENCE).await;
        self.agent = reply.is_ok().then_some(agent);
        reply
    }

    async fn take_one(&mut self) -> RedisResult<()> {
        let settings = &self.task.shared.settings;
        let (max_ttl_ms, keys) = (settings.max_ttl_ms, settings.contended_keys);
        let key = self.task.dice.random_range(0..keys);
        let ttl_ms = self.task.dice.random_range(TTL_MIN_MS..=max_ttl_ms);
        let who = self.task.set_out();
        let (name, owner, ttl) =
            (key_name(key), format!("through {}.{}", who.client, who.acquisition), ttl_ms.to_string());
        let wait = self.task.dice.random_range(0..2_000_u64).to_string();
        let limit = self.task.dice.random_range(2..=PERMITS_MAX);
        let limited = limit.to_string();
        let mut words = vec!["LOCK.ACQUIRE", &name, &owner, &ttl, "RETRY", "NOTE", "chaos"];
        if self.task.dice.random_ratio(2, 3) {
            words.extend(["WAIT", &wait]);
        }
        let mode = match key % 4 {
            2 => HeldAs::Shared,
            3 => HeldAs::Permit { number: 1, limit },
            _ => HeldAs::Exclusive,
        };
        match mode {
            HeldAs::Shared => words.push("SHARED"),
            HeldAs::Permit { .. } => words.extend(["LIMIT", &limited]),
            HeldAs::Exclusive => {}
        }
        let since = now_us();
        let mut sent = since;
        // If its agent fails, the task asks another one, which may know the lock.
        let mut reply = self.ask(&words).await;
        for _ in 0..2 {
            if reply.is_ok() {
                break;
            }
            sleep(self.task.ms(1, 100)).await;
            sent = now_us();
            reply = self.ask(&words).await;
        }
        let at = now_us();
        let granted = match reply {
            Ok(Reply::Number(token)) => Some((token, 0, 1)),
            Ok(Reply::List(list)) => match list[..] {
                [token, waited] => Some((token, waited, 1)),
                [token, waited, number] => Some((token, waited, number)),
                _ => None,
            },
            Ok(Reply::Null) | Err(_) => None,
        };
        let answer = match &granted {
            Some(_) => "held through an agent",
            None => "not held through an agent",
        };
        self.task.write(Line::Asked {
            at,
            key,
            waits: words.contains(&"WAIT"),
            took_us: at - since,
            answer: answer.to_owned(),
        });
        let Some((token, waited_ms, number)) = granted else {
            // A lock that the failed agent may have taken ends with its lease, or with this release.
            if self.task.once_in(2) {
                let _ = self.ask(&["LOCK.RELEASE", &name, &owner, "LEVEL", "1"]).await;
            }
            sleep(self.task.ms(5, 200)).await;
            return Ok(());
        };
        let mode = match mode {
            HeldAs::Permit { limit, .. } => HeldAs::Permit { number: u16::try_from(number).unwrap_or(0), limit },
            mode => mode,
        };
        let until = valid_until(sent, waited_ms, ttl_ms);
        if at >= until {
            return Ok(());
        }
        let held = Held { key, who, mode, token, until, ttl_ms };
        self.task.write(Line::Event(Event { at, key, who, what: Occurrence::Held { since, until, token, mode } }));
        let held = self.hold(held, &name, &owner).await;
        let is_lost = now_us() >= held.until;
        self.task.write(Line::Event(Event { at: now_us().min(held.until), key, who, what: Occurrence::Ended }));
        // This holder has lost the lock and does not check. Another owner may have the lock by now, while an extension
        // of the first still runs on some nodes.
        if is_lost && self.task.once_in(2) {
            let late = self.task.ms(0, held.ttl_ms);
            sleep(late).await;
        }
        // Other tasks end without a release.
        if !self.task.once_in(6) {
            let sent = now_us();
            let reply = self.ask(&["LOCK.RELEASE", &name, &owner, "LEVEL", "1"]).await;
            if let Ok(Reply::Number(0)) = reply {
                self.task.write(Line::ToldHeld { sent, at: now_us(), key, who });
            }
            let answer = match reply {
                Ok(Reply::Number(0)) => "Released through an agent",
                Ok(Reply::Null) if is_lost => "AlreadyExpired through an agent",
                Ok(Reply::Null) => "taken away, through an agent",
                Ok(_) | Err(_) => "not told by an agent",
            };
            self.task.write(Line::Released { at: now_us(), answer: answer.to_owned() });
        }
        Ok(())
    }

    /// Works under the lock, and extends it, until the work is done or the lock is lost.
    async fn hold(&mut self, mut held: Held, name: &str, owner: &str) -> Held {
        let part = self.task.dice.random_range(0.0_f64..1.0).powi(if self.task.once_in(3) { 1 } else { 5 });
        let end = now_us() + (3.0 * held.ttl_ms as f64 * part * 1_000.0) as u64;
        while now_us() < end && now_us() < held.until && !self.task.is_to_finish() {
            match self.task.dice.random_range(0..10) {
                0..5 => self.work(&held).await,
                5..7 if !self.extend(&mut held, name, owner).await => break,
                _ => {}
            }
            sleep(self.task.ms(2, 60)).await;
        }
        held
    }

    async fn work(&mut self, held: &Held) {
        let Held { key, who, mode, token, until, .. } = *held;
        let access = |write| Access { key, who, token, mode, write };
        let Some(number) = self.task.access(access(None)).await else { return };
        if self.task.once_in(3) {
            sleep(self.task.ms(0, 60)).await;
        }
        if now_us() < until && mode != HeldAs::Shared {
            self.task.access(access(Some(number + 1))).await;
        }
    }

    /// Extends the lock. Returns true if the task still holds the lock as far as it knows.
    async fn extend(&mut self, held: &mut Held, name: &str, owner: &str) -> bool {
        let sent = now_us();
        let ttl = held.ttl_ms.to_string();
        let Ok(reply) = self.ask(&["LOCK.EXTEND", name, owner, &ttl]).await else { return true };
        let Reply::Number(token) = reply else { return false };
        let at = now_us();
        if token < held.token {
            let what = format!("{} had token {} of key {}, and was told {token}", held.who, held.token, held.key);
            self.task.write(Line::Wrong { at, what });
        }
        // An answer that arrives after the end of the lease may concern a later lease, so the task stops.
        if at >= held.until {
            return false;
        }
        (held.until, held.token) = (held.until.max(valid_until(sent, 0, held.ttl_ms)), token);
        let what = Occurrence::Extended { until: held.until, token };
        self.task.write(Line::Event(Event { at, key: held.key, who: held.who, what }));
        true
    }
}
