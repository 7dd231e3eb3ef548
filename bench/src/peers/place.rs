//! The setting of a hand-over measurement: servers, their counters, and the moment from which all waiters wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use serde_json::json;

use super::cluster::Cluster;
use super::installed::{Installed, Language};
use super::process::{Peer, numbers};
use super::programs::Program;
use super::round::{HOLD_MIN, Round};
use super::turns::{Cpu, Done, Turns};
use super::waiters::{TTL_MS, Way};
use crate::server::{Server, cpu_of_process};

/// The time for which the server's CPU time is measured while all clients wait.
const WAITING: Duration = Duration::from_millis(500);

/// The time after which every client has tried once. It is used if the server does not show how many clients wait.
const SETTLED: Duration = Duration::from_millis(500);

/// Once the servers use less than this share of a CPU, all clients of a lock without polling are taken to be waiting.
const CALM: f64 = 0.3;

/// The longest wait until the servers use less than [`CALM`].
const CALM_MAX: Duration = Duration::from_secs(10);

/// The clients that wait.
#[derive(Clone, Copy)]
pub enum WaitMethod {
    /// In this process.
    Here(Way),
    /// In a process of their own.
    Program(Program),
}

/// The servers on which clients wait.
#[derive(Clone, Copy)]
pub enum On {
    /// The first of the Redis servers, as many as this.
    Servers(usize),
    /// The cluster with this index.
    Cluster(usize),
}

/// The servers and programs of a measurement.
pub struct Place<'a> {
    pub servers: &'a [Server],
    /// A connection to each server.
    pub controls: Vec<MultiplexedConnection>,
    pub clusters: &'a [Cluster],
    pub installed: &'a Installed,
    /// Programs that took long to warm up, by the name of what they measure.
    pub kept: HashMap<&'static str, Peer>,
}

/// The counters before clients take the lock in turns.
struct Before {
    counters: Done,
    /// The part that reading the counters added.
    own: Done,
    servers_cpu: Duration,
    clients_cpu: Duration,
}

impl WaitMethod {
    fn polls(self) -> bool {
        match self {
            Self::Here(way) => matches!(way, Way::Polling { .. } | Way::Rslock { .. }),
            Self::Program(program) => program.language != Language::Java && program.client != "etcd",
        }
    }
}

impl Place<'_> {
    /// Measures `how` with `waiters` waiters for `length`: the lock passes from one to the next, and each holds it for
    /// up to `hold_max`.
    pub async fn measure(
        &mut self,
        (name, how, on): (&'static str, WaitMethod, On),
        waiters: usize,
        hold_max: Duration,
        length: Duration,
    ) -> Turns {
        let key = format!("hand-over-{:016x}", rand::random::<u64>());
        let turns = match how {
            WaitMethod::Here(way) => {
                let round = Round::start(way, &self.ports(on), &key, waiters, hold_max).await;
                let waiting_cpu = self.settle(how, on, &key, waiters, std::process::id()).await;
                let before = self.before(on, std::process::id()).await;
                round.go.send_replace(true);
                tokio::time::sleep(length).await;
                let mut turns = Turns { waiting_cpu, ..self.since(on, std::process::id(), before).await };
                (turns.delays_ns, turns.turns) = round.stop().await;
                turns
            }
            WaitMethod::Program(program) => {
                let mut peer = match self.kept.remove(name) {
                    Some(peer) => peer,
                    None => self.start(program, on).await.expect("it is only measured if it is here").0,
                };
                let hold_s = [HOLD_MIN.as_secs_f64(), hold_max.as_secs_f64()];
                peer.ask(json!({ "do": "start", "name": key, "waiters": waiters, "hold_s": hold_s })).await;
                let waiting_cpu = self.settle(how, on, &key, waiters, peer.pid()).await;
                let before = self.before(on, peer.pid()).await;
                peer.ask(json!({ "do": "go" })).await;
                tokio::time::sleep(length).await;
                let mut turns = Turns { waiting_cpu, ..self.since(on, peer.pid(), before).await };
                let answer = peer.ask(json!({ "do": "result" })).await;
                turns.delays_ns = numbers(&answer, "delays_ns");
                turns.delays_ns.sort_unstable();
                turns.turns = numbers(&answer, "turns");
                turns.repeated = answer["repeated"].as_u64().unwrap_or(0);
                if program.language == Language::Java {
                    self.kept.insert(name, peer);
                }
                turns
            }
        };
        self.delete(&key).await;
        turns
    }

    /// Starts a program for measurements of hand-over. Returns it with its version.
    pub async fn start(&self, program: Program, on: On) -> Option<(Peer, String)> {
        program.start(self.installed, &self.ports(on), Duration::from_millis(TTL_MS)).await
    }

    fn ports(&self, on: On) -> Vec<u16> {
        match on {
            On::Servers(count) => self.servers[..count].iter().map(Server::port).collect(),
            On::Cluster(n) => self.clusters[n].ports(),
        }
    }

    async fn delete(&mut self, key: &str) {
        for node in &mut self.controls {
            let _: Value = cmd("DEL").arg(key).query_async(node).await.unwrap();
        }
    }

    /// Waits until `waiters` clients of the process `clients` wait for `key`. Returns the use of CPU while they do.
    async fn settle(&mut self, how: WaitMethod, on: On, key: &str, waiters: usize, clients: u32) -> Cpu {
        match (how, on) {
            (WaitMethod::Here(Way::Palisade | Way::PalisadeClient), On::Servers(1)) => {
                while self.waiting(key).await < waiters as u64 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            _ if how.polls() => tokio::time::sleep(SETTLED).await,
            _ => {
                let since = Instant::now();
                let is_calm = |cpu: Cpu| cpu.servers.max(cpu.clients) < CALM;
                while !is_calm(self.cpu_for(SETTLED, on, clients).await) && since.elapsed() < CALM_MAX {}
            }
        }
        self.cpu_for(WAITING, on, clients).await
    }

    /// Returns the length of Palisade's queue on the first server.
    async fn waiting(&mut self, key: &str) -> u64 {
        let info = cmd("LOCK.INFO").arg(key).to_owned();
        let mut lock: HashMap<String, Value> = info.query_async(&mut self.controls[0]).await.unwrap();
        redis::from_redis_value(lock.remove("waiters").unwrap()).unwrap()
    }

    fn cpu_of_servers(&self, on: On) -> Duration {
        match on {
            On::Servers(count) => self.servers[..count].iter().map(Server::cpu_of_all_threads).sum(),
            On::Cluster(n) => self.clusters[n].cpu(),
        }
    }

    /// Returns the shares of a CPU that the servers and the process `clients` use now.
    async fn cpu_for(&self, length: Duration, on: On, clients: u32) -> Cpu {
        let (servers, of_clients, since) = (self.cpu_of_servers(on), cpu_of_process(clients), Instant::now());
        tokio::time::sleep(length).await;
        let share = |used: Duration| used.as_secs_f64() / since.elapsed().as_secs_f64();
        Cpu {
            servers: share(self.cpu_of_servers(on).saturating_sub(servers)),
            clients: share(cpu_of_process(clients).saturating_sub(of_clients)),
        }
    }

    /// Returns the counters of the servers so far. Fsyncs are counted only for clusters.
    async fn counters(&mut self, on: On) -> Done {
        let count = match on {
            On::Servers(count) => count,
            On::Cluster(n) => return self.clusters[n].done().await,
        };
        let mut done = Done { bytes: Some(0.0), ..Done::default() };
        for node in &mut self.controls[..count] {
            let stats: String = cmd("INFO").arg("stats").query_async(node).await.unwrap();
            let field = |name: &str| -> f64 {
                let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.unwrap_or_else(|| panic!("no {name} in INFO")).parse().unwrap()
            };
            done.requests += field("total_commands_processed");
            let bytes = field("total_net_input_bytes") + field("total_net_output_bytes");
            done.bytes = done.bytes.map(|before| before + bytes);
        }
        done
    }

    async fn before(&mut self, on: On, clients: u32) -> Before {
        let first = self.counters(on).await;
        let counters = self.counters(on).await;
        Before {
            counters,
            own: counters.since(first),
            servers_cpu: self.cpu_of_servers(on),
            clients_cpu: cpu_of_process(clients),
        }
    }

    async fn since(&mut self, on: On, clients: u32, before: Before) -> Turns {
        let seconds = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
        let cpu = Cpu {
            servers: seconds(self.cpu_of_servers(on), before.servers_cpu),
            clients: seconds(cpu_of_process(clients), before.clients_cpu),
        };
        let done = self.counters(on).await.since(before.counters).since(before.own);
        Turns {
            requests: done.requests,
            bytes: done.bytes,
            fsyncs: matches!(on, On::Cluster(_)).then_some(done.fsyncs),
            cpu,
            ..Turns::default()
        }
    }
}
