//! The setting of a hand-over measurement: servers, their counters, and the moment from which all waiters wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use serde_json::json;

use super::etcd::Etcd;
use super::installed::Installed;
use super::process::{Peer, numbers};
use super::round::{HOLD_MIN, Round};
use super::turns::{Cpu, Turns};
use super::waiters::{Backend, Way};
use crate::server::{Server, cpu_of_process};

/// The time for which the server's CPU time is measured while all clients wait.
const WAITING: Duration = Duration::from_millis(500);

/// The time after which every client has tried once. It is used if the server does not show how many clients wait.
const SETTLED: Duration = Duration::from_millis(500);

/// Once etcd uses less than this share of a CPU, its waiters are set up.
const CALM: f64 = 0.3;

/// The longest wait until etcd uses less than [`CALM`].
const CALM_MAX: Duration = Duration::from_secs(10);

/// A way to wait for a lock, and the server on which clients wait.
pub enum WaitMethod {
    Redis(Way),
    /// The etcd cluster with this index.
    Etcd(usize),
    /// redis-py's Lock, and its sleep between tries.
    RedisPy {
        sleep_s: f64,
    },
}

/// The servers and programs of a measurement.
pub struct Place<'a> {
    pub server: &'a Server,
    pub etcds: &'a [(&'static str, Etcd)],
    pub installed: &'a Installed,
    pub control: MultiplexedConnection,
}

/// The counters before clients take the lock in turns.
struct Before {
    requests: f64,
    bytes: f64,
    fsyncs: f64,
    /// The number of requests that reading the counters added.
    own_requests: f64,
    own_bytes: f64,
}

impl Place<'_> {
    /// Measures `how` with `waiters` waiters for `length`: the lock passes from one to the next, and each holds it for
    /// up to `hold_max`.
    pub async fn measure(&mut self, how: &WaitMethod, waiters: usize, hold_max: Duration, length: Duration) -> Turns {
        let key = format!("hand-over-{:016x}", rand::random::<u64>());
        if let WaitMethod::RedisPy { sleep_s } = how {
            return self.measure_redis_py(how, &key, waiters, *sleep_s, hold_max, length).await;
        }
        let backend = match how {
            WaitMethod::Redis(way) => Backend::Redis(*way, self.server.port()),
            WaitMethod::Etcd(n) => Backend::Etcd(self.etcds[*n].1.client().await.repeating()),
            WaitMethod::RedisPy { .. } => unreachable!("it is done above"),
        };
        let round = Round::start(&backend, &key, waiters, hold_max).await;
        self.settle(how, &key, waiters).await;
        let waiting_cpu = self.cpu_for(WAITING, how, std::process::id()).await;
        let before = self.before(how).await;
        round.go.send_replace(true);
        tokio::time::sleep(length).await;
        let mut turns = self.since(how, before).await;
        (turns.delays_ns, turns.turns) = round.stop().await;
        turns.waiting_cpu = waiting_cpu;
        self.delete(&key).await;
        turns
    }

    /// Starts a new process of redis-py. Returns it with its version.
    pub async fn redis_py(&self) -> Option<(Peer, String)> {
        let command = self.installed.python("hand_over_redis_py.py")?;
        Some(Peer::start(command, json!({ "do": "hello", "port": self.server.port() })).await)
    }

    async fn measure_redis_py(
        &mut self,
        how: &WaitMethod,
        key: &str,
        waiters: usize,
        sleep_s: f64,
        hold_max: Duration,
        length: Duration,
    ) -> Turns {
        let (mut peer, _) = self.redis_py().await.expect("it is only measured if it is here");
        let hold_s = [HOLD_MIN.as_secs_f64(), hold_max.as_secs_f64()];
        let start = json!({ "do": "start", "name": key, "waiters": waiters, "sleep_s": sleep_s, "hold_s": hold_s });
        peer.ask(start).await;
        self.settle(how, key, waiters).await;
        let waiting_cpu = self.cpu_for(WAITING, how, peer.pid()).await;
        let before = self.before(how).await;
        peer.ask(json!({ "do": "go" })).await;
        tokio::time::sleep(length).await;
        let mut turns = self.since(how, before).await;
        let answer = peer.ask(json!({ "do": "result" })).await;
        drop(peer);
        self.delete(key).await;
        turns.delays_ns = numbers(&answer, "delays_ns");
        turns.delays_ns.sort_unstable();
        turns.turns = numbers(&answer, "turns");
        turns.waiting_cpu = waiting_cpu;
        turns
    }

    async fn delete(&mut self, key: &str) {
        let _: Value = cmd("DEL").arg(key).query_async(&mut self.control).await.unwrap();
    }

    /// Waits until `waiters` clients wait for `key`.
    async fn settle(&mut self, how: &WaitMethod, key: &str, waiters: usize) {
        loop {
            let waiting = match how {
                WaitMethod::Redis(Way::Palisade | Way::PalisadeClient) => {
                    let info = cmd("LOCK.INFO").arg(key).to_owned();
                    let mut lock: HashMap<String, Value> = info.query_async(&mut self.control).await.unwrap();
                    redis::from_redis_value(lock.remove("waiters").unwrap()).unwrap()
                }
                WaitMethod::Redis(Way::PubSub) => {
                    let count = cmd("PUBSUB").arg("NUMSUB").arg(format!("channel-of-{key}")).to_owned();
                    let (_, count): (String, u64) = count.query_async(&mut self.control).await.unwrap();
                    count
                }
                WaitMethod::Etcd(n) => {
                    let queue = self.etcds[*n].1.client().await.repeating().queue(key).await.unwrap();
                    // The holder is in etcd's queue too, and is not counted.
                    queue.max(1) as u64 - 1
                }
                WaitMethod::Redis(Way::Polling { .. } | Way::Rslock { .. }) | WaitMethod::RedisPy { .. } => {
                    return tokio::time::sleep(SETTLED).await;
                }
            };
            if waiting >= waiters as u64 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let since = Instant::now();
        while matches!(how, WaitMethod::Etcd(_)) && since.elapsed() < CALM_MAX {
            if self.cpu_for(SETTLED, how, std::process::id()).await.servers < CALM {
                break;
            }
        }
    }

    fn cpu_of_servers(&self, how: &WaitMethod) -> Duration {
        match how {
            WaitMethod::Etcd(n) => self.etcds[*n].1.cpu(),
            _ => self.server.cpu_of_all_threads(),
        }
    }

    /// Returns the shares of a CPU that the servers and the process `clients` use now.
    async fn cpu_for(&self, length: Duration, how: &WaitMethod, clients: u32) -> Cpu {
        let (servers, of_clients, since) = (self.cpu_of_servers(how), cpu_of_process(clients), Instant::now());
        tokio::time::sleep(length).await;
        let share = |used: Duration| used.as_secs_f64() / since.elapsed().as_secs_f64();
        Cpu { servers: share(self.cpu_of_servers(how) - servers), clients: share(cpu_of_process(clients) - of_clients) }
    }

    /// Returns the number of requests, bytes and fsyncs so far, of the server or of the etcd cluster. Fsyncs are
    /// counted only for etcd.
    async fn counters(&mut self, how: &WaitMethod) -> (f64, f64, f64) {
        if let WaitMethod::Etcd(n) = how {
            let done = self.etcds[*n].1.done().await;
            return (done.requests, done.bytes, done.fsyncs);
        }
        let stats: String = cmd("INFO").arg("stats").query_async(&mut self.control).await.unwrap();
        let field = |name: &str| -> f64 {
            let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_else(|| panic!("no {name} in INFO")).parse().unwrap()
        };
        let bytes = field("total_net_input_bytes") + field("total_net_output_bytes");
        (field("total_commands_processed"), bytes, 0.0)
    }

    async fn before(&mut self, how: &WaitMethod) -> Before {
        let (requests, bytes, _) = self.counters(how).await;
        let own = self.counters(how).await;
        Before {
            requests: own.0,
            bytes: own.1,
            fsyncs: own.2,
            own_requests: own.0 - requests,
            own_bytes: own.1 - bytes,
        }
    }

    async fn since(&mut self, how: &WaitMethod, before: Before) -> Turns {
        let (requests, bytes, fsyncs) = self.counters(how).await;
        Turns {
            requests: requests - before.requests - before.own_requests,
            bytes: bytes - before.bytes - before.own_bytes,
            fsyncs: matches!(how, WaitMethod::Etcd(_)).then_some(fsyncs - before.fsyncs),
            ..Turns::default()
        }
    }
}
