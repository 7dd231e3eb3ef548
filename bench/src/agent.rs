//! A lock on a majority through `palisade agent`, compared with one that the client takes itself.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use palisade_client::Client;
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use tokio::task::JoinSet;

use crate::quorum::follows_its_clock;
use crate::results::{Budget, Outcome, Table};
use crate::server::{Server, cpu_of_process, switches_of_process};

/// The number of nodes.
const NODES: usize = 5;

/// The number of locks of each kind in one round of the comparison.
const BATCH: usize = 200;

/// The lease of a lock, in milliseconds.
const TTL_MS: u32 = 10_000;

#[derive(clap::Args)]
pub struct Options {
    /// The program, built with --release.
    #[arg(long, env = "PALISADE_PROGRAM", default_value = "target/release/palisade")]
    program: PathBuf,

    /// The number of rounds, of 200 locks of each kind.
    #[arg(long, default_value_t = 20)]
    rounds: usize,

    /// The numbers of tasks that take locks at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    tasks: Vec<usize>,

    /// The time for which each number of tasks is measured, in seconds.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// An agent that lives as long as this value.
struct Agent {
    process: Child,
    folder: tempfile::TempDir,
}

impl Agent {
    fn start(program: &PathBuf, ports: &[u16]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let nodes: Vec<_> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
        let socket = format!("unix://{}", folder.path().join("agent").display());
        let process = Command::new(program)
            .args(["agent", "--listen", &socket, "--nodes", &nodes.join(",")])
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|why| panic!("{}: {why}", program.display()));
        Self { process, folder }
    }

    async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(format!("unix://{}", self.folder.path().join("agent").display())).unwrap();
        loop {
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => return connection,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client that takes locks itself, or through the agent.
#[derive(Clone)]
enum Taker {
    Client(Client),
    Agent(MultiplexedConnection),
    /// Takes no locks: sends the agent a PING in place of each request, to show what a process in between costs by
    /// itself.
    Ping(MultiplexedConnection),
}

impl Taker {
    /// Takes a lock and releases it. Returns how long each took.
    async fn pair(&mut self, key: &str) -> Option<(Duration, Duration)> {
        let start = Instant::now();
        match self {
            Self::Client(client) => {
                let guard = client.try_lock(key).await.ok()?;
                let took = start.elapsed();
                let start = Instant::now();
                guard.release().await;
                Some((took, start.elapsed()))
            }
            Self::Agent(connection) => {
                let owner = format!("{:032x}", rand::random::<u128>());
                let mut acquire = cmd("LOCK.ACQUIRE");
                let reply: Value = acquire.arg(key).arg(&owner).arg(TTL_MS).query_async(connection).await.ok()?;
                let took = start.elapsed();
                let Value::Int(_) = reply else { return None };
                let start = Instant::now();
                let left: Value = cmd("LOCK.RELEASE").arg(key).arg(&owner).query_async(connection).await.ok()?;
                (left == Value::Int(0)).then(|| (took, start.elapsed()))
            }
            Self::Ping(connection) => {
                let _: Value = cmd("PING").query_async(connection).await.ok()?;
                let took = start.elapsed();
                let start = Instant::now();
                let _: Value = cmd("PING").query_async(connection).await.ok()?;
                Some((took, start.elapsed()))
            }
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).unwrap()
}

/// Returns a quantile in microseconds.
fn of(histogram: &Histogram<u64>, share: f64) -> f64 {
    histogram.value_at_quantile(share) as f64 / 1_000.0
}

pub async fn run(start: impl Fn() -> Server, options: &Options) -> Outcome {
    let nodes: Vec<Server> = (0..NODES).map(|_| start()).collect();
    let ports: Vec<u16> = nodes.iter().map(Server::port).collect();
    let client = Client::new(ports.iter().map(|port| format!("redis://127.0.0.1:{port}"))).unwrap();
    let agent = Agent::start(&options.program, &ports);
    for node in &nodes {
        follows_its_clock(node).await;
    }
    let client = Taker::Client(client);
    let through = Taker::Agent(agent.connect().await);
    let ping = Taker::Ping(agent.connect().await);
    for taker in [&client, &through] {
        let mut taker = taker.clone();
        while taker.pair("warm").await.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let (latencies, added) = latency([client.clone(), through, ping], options.rounds).await;
    let ([throughput, costs], share) = throughput(client, &agent, &nodes, options).await;
    let mut budgets = vec![Budget::at_most("a lock through the agent, what it adds at p50, us", added, 40.0)];
    budgets.extend(
        share.map(|share| Budget::at_least("locks a second through the agent / by the client, 64 tasks", share, 0.9)),
    );
    Outcome { title: "Agent".to_owned(), tables: vec![latencies, throughput, costs], plots: vec![], budgets }
}

/// Measures one lock after another. Returns the table, and the time that the agent adds to taking a lock at p50.
async fn latency(mut takers: [Taker; 3], rounds: usize) -> (Table, f64) {
    // The measurement runs on the runtime's own threads, like an application's tasks.
    let measured = tokio::spawn(async move {
        let mut times = [(); 6].map(|()| histogram());
        let mut failed = [0_u64; 3];
        for round in 0..rounds {
            for (kind, taker) in takers.iter_mut().enumerate() {
                for n in 0..BATCH {
                    match taker.pair(&format!("latency-{round}-{kind}-{n}")).await {
                        Some((took, gave_back)) => {
                            times[2 * kind].record(took.as_nanos() as u64).unwrap();
                            times[2 * kind + 1].record(gave_back.as_nanos() as u64).unwrap();
                        }
                        None => failed[kind] += 1,
                    }
                }
                // Releases that are still running in the background must not count for the next kind.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        (times, failed)
    });
    let (times, failed) = measured.await.unwrap();
    let mut table = Table::new("latency", format!("A lock on a majority of {NODES} nodes, one after the other"))
        .words("taken by")
        .numbers("acquire p50", "us", 0)
        .numbers("acquire p99", "us", 0)
        .numbers("release p50", "us", 0)
        .numbers("release p99", "us", 0)
        .numbers("not got", "", 0);
    table.note(
        "The agent: LOCK.ACQUIRE and LOCK.RELEASE over its Unix socket, in RESP2. The three kinds alternate. No lease is \
     extended. The agent answers a PING itself, so its time is what any process between costs.",
    );
    let names = ["the client in the process", "redis-rs through the agent", "nobody: two PINGs to the agent"];
    for (kind, name) in names.into_iter().enumerate() {
        let (acquires, releases) = (&times[2 * kind], &times[2 * kind + 1]);
        table.row([
            name.into(),
            of(acquires, 0.5).into(),
            of(acquires, 0.99).into(),
            of(releases, 0.5).into(),
            of(releases, 0.99).into(),
            failed[kind].into(),
        ]);
    }
    (table, of(&times[2], 0.5) - of(&times[0], 0.5))
}

/// Measures many tasks at a time. Returns the tables and, with 64 tasks, the number of locks that are taken through the
/// agent while the client takes one.
async fn throughput(client: Taker, agent: &Agent, nodes: &[Server], options: &Options) -> ([Table; 2], Option<f64>) {
    let mut table = Table::new("throughput", format!("Taken and given back in a second, {NODES} nodes"))
        .numbers("tasks", "", 0)
        .numbers("client", "1/s", 0)
        .numbers("p50", "us", 0)
        .numbers("agent", "1/s", 0)
        .numbers("agent p50", "us", 0)
        .numbers("agent, one connection", "1/s", 0)
        .numbers("agent / client", "times", 2)
        .numbers("one connection / client", "times", 2);
    table.note(
        "Each task has a key of its own and repeats without a pause, over a connection of its own or one for all. All \
     processes share the machine's cores.",
    );
    let mut costs = Table::new("cpu", "CPU of a lock and its release, all processes".to_owned())
        .numbers("tasks", "", 0)
        .words("taken by")
        .numbers("caller", "us", 1)
        .numbers("agent", "us", 1)
        .numbers("nodes", "us", 1)
        .numbers("all", "us", 1)
        .numbers("cores busy", "", 2)
        .numbers("switches of caller and agent", "", 2);
    costs.note("Nodes: all of them together. The client runs in the caller.");
    let mut share = None;
    let length = Duration::from_secs(options.seconds);
    let processes = Processes { agent: agent.process.id(), nodes };
    for &count in &options.tasks {
        let (mut apart, mut pings) = (vec![], vec![]);
        for _ in 0..count {
            apart.push(Taker::Agent(agent.connect().await));
            pings.push(Taker::Ping(agent.connect().await));
        }
        let one = vec![Taker::Agent(agent.connect().await); count];
        let by_client = together(vec![client.clone(); count], length, &processes).await;
        let by_agent = together(apart, length, &processes).await;
        let over_one = together(one, length, &processes).await;
        let pinged = together(pings, length, &processes).await;
        let ratio = by_agent.rate() / by_client.rate();
        table.row([
            count.into(),
            by_client.rate().into(),
            of(&by_client.times, 0.5).into(),
            by_agent.rate().into(),
            of(&by_agent.times, 0.5).into(),
            over_one.rate().into(),
            ratio.into(),
            (over_one.rate() / by_client.rate()).into(),
        ]);
        let all = [
            ("client", by_client),
            ("agent", by_agent),
            ("agent, one connection", over_one),
            ("nobody: two PINGs to the agent", pinged),
        ];
        for (name, measured) in all {
            let [caller, agent, nodes] = measured.cpu.map(|cpu| measured.of_a_pair(cpu.as_secs_f64() * 1e6));
            let all = caller + agent + nodes;
            costs.row([
                count.into(),
                name.into(),
                caller.into(),
                agent.into(),
                nodes.into(),
                all.into(),
                (all * measured.rate() / 1e6).into(),
                measured.of_a_pair(measured.switches as f64).into(),
            ]);
        }
        if count == 64 {
            share = Some(ratio);
        }
    }
    ([table, costs], share)
}

/// The processes whose CPU counts, beside this one.
struct Processes<'a> {
    agent: u32,
    nodes: &'a [Server],
}

impl Processes<'_> {
    /// Returns the CPU time that this process, the agent and the nodes have used so far.
    fn cpu(&self) -> [Duration; 3] {
        let nodes = self.nodes.iter().map(Server::cpu_of_all_threads).sum();
        [cpu_of_process(std::process::id()), cpu_of_process(self.agent), nodes]
    }

    /// Returns the context switches of this process and the agent so far.
    fn switches(&self) -> u64 {
        switches_of_process(std::process::id()) + switches_of_process(self.agent)
    }
}

/// The result of many tasks at a time.
struct Measured {
    /// The time of taking each lock.
    times: Histogram<u64>,
    took: Duration,
    /// The CPU time of the caller, the agent and the nodes.
    cpu: [Duration; 3],
    switches: u64,
}

impl Measured {
    /// Returns the locks that were taken and released per second.
    fn rate(&self) -> f64 {
        self.times.len() as f64 / self.took.as_secs_f64()
    }

    /// Returns the part of `all` that one lock and its release used.
    fn of_a_pair(&self, all: f64) -> f64 {
        all / self.times.len() as f64
    }
}

/// Makes each taker take and release a lock of its own repeatedly, for `length`.
async fn together(takers: Vec<Taker>, length: Duration, processes: &Processes<'_>) -> Measured {
    let mut tasks = JoinSet::new();
    let (cpu, switches, start) = (processes.cpu(), processes.switches(), Instant::now());
    for (n, mut taker) in takers.into_iter().enumerate() {
        tasks.spawn(async move {
            let mut times = histogram();
            while start.elapsed() < length {
                if let Some((took, _)) = taker.pair(&format!("throughput-{n}")).await {
                    times.record(took.as_nanos() as u64).unwrap();
                }
            }
            times
        });
    }
    let mut times = histogram();
    while let Some(of_one) = tasks.join_next().await {
        times.add(of_one.unwrap()).unwrap();
    }
    let (took, now) = (start.elapsed(), processes.cpu());
    // The times of threads that have ended are missing, so the difference could be negative.
    let cpu = std::array::from_fn(|n| now[n].saturating_sub(cpu[n]));
    Measured { times, took, cpu, switches: processes.switches().saturating_sub(switches) }
}
