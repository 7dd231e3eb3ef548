//! The CPU cost of a lock on clusters with a growing number of masters: sharding pays if the cost stays the same.
//!
//! Short turns of all clusters alternate, with Palisade's client and with that of redis-rs, so that disturbances of the
//! machine affect them alike. The figures are CPU time of servers and client per lock, so they do not depend on the
//! number of cores.

use std::path::Path;
use std::time::{Duration, Instant};

use palisade_client::Client;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{Value, cmd};
use tokio::task::JoinSet;

use crate::quantiles;
use crate::results::{Axis, Budget, Form, Line, Outcome, Plot, Table};
use crate::server::{Server, connect, cpu_of_process, info};

/// The number of slots of a cluster.
const SLOTS: usize = 16_384;

/// The lease of a lock, in milliseconds.
const TTL_MS: u32 = 10_000;

/// The longest time for a cluster on this machine to form.
const PATIENCE: Duration = Duration::from_secs(60);

/// The largest ratio of a lock's cost on several masters to that on one.
const CONSTANT: f64 = 1.1;

#[derive(clap::Args)]
pub struct Options {
    /// The numbers of masters, one for each cluster.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    masters: Vec<usize>,

    /// The number of rounds, in each of which every cluster has its turns.
    #[arg(long, default_value_t = 15)]
    rounds: usize,

    /// The number of tasks that take locks at a time, for each master.
    #[arg(long, default_value_t = 64)]
    tasks: usize,

    /// The length of a turn, in milliseconds.
    #[arg(long, default_value_t = 300)]
    turn_ms: u64,
}

/// A client that takes locks on a cluster: Palisade's or redis-rs.
#[derive(Clone)]
enum Taker {
    Locks(Client),
    Sets(ClusterConnection),
}

impl Taker {
    /// Takes a lock and releases it. Returns true if it was granted.
    async fn pair(&mut self, key: &str) -> bool {
        match self {
            Self::Locks(client) => {
                let Ok(guard) = client.try_lock(key).await else { return false };
                guard.release().await;
                true
            }
            Self::Sets(connection) => {
                let mut set = cmd("SET");
                set.arg(key).arg("owner-of-20-bytes-xx").arg("NX").arg("PX").arg(TTL_MS);
                let Ok(Value::Okay) = set.query_async(connection).await else { return false };
                cmd("DEL").arg(key).query_async::<u64>(connection).await.is_ok()
            }
        }
    }
}

/// One turn (a slice of time) of one client on one cluster. CPU time is per lock, minus what the same processes use in
/// that time without requests.
#[derive(Clone, Copy)]
struct Turn {
    servers_us: f64,
    client_us: f64,
    per_second: f64,
    /// The average number of requests that a server reads at a time.
    batch: f64,
}

/// A kind of turn: the client that is measured, and how its number of tasks is set.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// True for the Palisade client, false for redis-rs with SET and DEL.
    is_ours: bool,
    /// True if the number of tasks is per master, false if it is in total.
    is_for_each: bool,
}

const KINDS: [Kind; 4] = [
    Kind { is_ours: true, is_for_each: true },
    Kind { is_ours: false, is_for_each: true },
    Kind { is_ours: true, is_for_each: false },
    Kind { is_ours: false, is_for_each: false },
];

/// A cluster, its clients, and the measurements on it by kind.
struct Sharded {
    servers: Vec<Server>,
    takers: [Taker; 2],
    turns: [Vec<Turn>; KINDS.len()],
    /// The idle use of each round.
    idle: Vec<Idle>,
}

/// The CPU use without requests for locks, as a share of a core.
#[derive(Clone, Copy, Default)]
struct Idle {
    servers: f64,
    client: f64,
}

/// Measures on clusters of `server` with `module`.
pub async fn run(server: &Path, module: &Path, options: &Options) -> Outcome {
    let mut clusters = vec![];
    for &masters in &options.masters {
        clusters.push(Sharded::start(server, module, masters).await);
    }
    for round in 0..options.rounds {
        eprintln!("cluster: round {} of {}", round + 1, options.rounds);
        for cluster in &mut clusters {
            let idle = cluster.idle(Duration::from_millis(options.turn_ms)).await;
            cluster.idle.push(idle);
        }
        for n in 0..clusters.len() * KINDS.len() {
            // Each round begins with a different cluster.
            let n = n + round;
            let kind = n / clusters.len() % KINDS.len();
            let at = n % clusters.len();
            let turn = clusters[at].turn(KINDS[kind], options).await;
            clusters[at].turns[kind].push(turn);
        }
    }
    outcome(&clusters, options)
}

impl Sharded {
    /// Starts this number of masters, each with its part of the slots.
    async fn start(server: &Path, module: &Path, masters: usize) -> Self {
        let mut servers = vec![];
        let mut connections = vec![];
        for n in 0..masters {
            let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
            let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            let server = Server::start_as(&[], server, module, &settings);
            let mut connection = connect(server.port()).await;
            let (first, last) = (n * SLOTS / masters, (n + 1) * SLOTS / masters - 1);
            let mut give = cmd("CLUSTER");
            give.arg("ADDSLOTSRANGE").arg(first).arg(last).query_async::<()>(&mut connection).await.unwrap();
            if let Some(first) = connections.first_mut() {
                let mut meet = cmd("CLUSTER");
                meet.arg("MEET").arg("127.0.0.1").arg(server.port()).arg(&bus);
                meet.query_async::<()>(first).await.unwrap();
            }
            servers.push(server);
            connections.push(connection);
        }
        let begun = Instant::now();
        let expected = ["cluster_state:ok", "cluster_slots_assigned:16384", &format!("cluster_known_nodes:{masters}")];
        for connection in &mut connections {
            loop {
                let told: String = cmd("CLUSTER").arg("INFO").query_async(connection).await.unwrap();
                if expected.iter().all(|line| told.contains(line)) {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "a cluster of {masters} does not come about: {told}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // The cluster is new, so no lock is held in it.
            cmd("LOCK.GUARD").arg("LIFT").query_async::<Value>(connection).await.unwrap();
        }
        let address = format!("127.0.0.1:{}", servers[0].port());
        let client = Client::builder().cluster([&address]).build().unwrap();
        client.connect().await.unwrap();
        // The Palisade client sets the same option.
        let nodelay = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let sets = ClusterClient::builder([format!("redis://{address}")]).tcp_settings(nodelay).build().unwrap();
        let sets = sets.get_async_connection().await.unwrap();
        Self { servers, takers: [Taker::Locks(client), Taker::Sets(sets)], turns: Default::default(), idle: vec![] }
    }

    fn cpu(&self) -> [Duration; 2] {
        let servers = self.servers.iter().map(Server::cpu_of_all_threads).sum();
        [servers, cpu_of_process(std::process::id())]
    }

    async fn idle(&self, length: Duration) -> Idle {
        let (before, start) = (self.cpu(), Instant::now());
        tokio::time::sleep(length).await;
        let (after, took) = (self.cpu(), start.elapsed());
        let [servers, client] = [0, 1].map(|n| (after[n] - before[n]).as_secs_f64() / took.as_secs_f64());
        Idle { servers, client }
    }

    async fn turn(&self, kind: Kind, options: &Options) -> Turn {
        let taker = &self.takers[usize::from(!kind.is_ours)];
        let tasks = options.tasks * if kind.is_for_each { self.servers.len() } else { 1 };
        let length = Duration::from_millis(options.turn_ms);
        // This first run makes the connections and the table of tasks, so that the measurement does not include them.
        together(taker, tasks, length / 10).await;
        let (requests, reads) = self.requests_and_reads().await;
        let (before, start) = (self.cpu(), Instant::now());
        let pairs = together(taker, tasks, length).await;
        let (after, took) = (self.cpu(), start.elapsed());
        let (requests_after, reads_after) = self.requests_and_reads().await;
        assert!(pairs > 0, "no lock was to be had on {} masters", self.servers.len());
        let idle = self.idle.last().copied().unwrap_or_default();
        let of_each = |n: usize, idle: f64| {
            ((after[n] - before[n]).as_secs_f64() - idle * took.as_secs_f64()) * 1e6 / pairs as f64
        };
        Turn {
            servers_us: of_each(0, idle.servers),
            client_us: of_each(1, idle.client),
            per_second: pairs as f64 / took.as_secs_f64(),
            batch: (requests_after - requests) as f64 / (reads_after - reads) as f64,
        }
    }

    async fn requests_and_reads(&self) -> (u64, u64) {
        let (mut requests, mut reads) = (0, 0);
        for server in &self.servers {
            let mut connection = server.connect().await;
            requests += info(&mut connection, "total_commands_processed").await;
            reads += info(&mut connection, "total_reads_processed").await;
        }
        (requests, reads)
    }
}

/// Runs tasks that repeatedly take and release locks of their own. Returns the number of locks.
async fn together(taker: &Taker, tasks: usize, length: Duration) -> u64 {
    let mut running = JoinSet::new();
    let start = Instant::now();
    for n in 0..tasks {
        let mut taker = taker.clone();
        running.spawn(async move {
            let key = format!("sharded-{n}");
            let mut had = 0;
            while start.elapsed() < length {
                had += u64::from(taker.pair(&key).await);
            }
            had
        });
    }
    running.join_all().await.into_iter().sum()
}

/// Returns the name in tables.
fn name(kind: Kind) -> &'static str {
    if kind.is_ours { "lock + release" } else { "SET NX PX + DEL, redis-rs" }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantiles::median(&values.collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

/// Returns the median, over the rounds, of the figure of this cluster divided by that of the first.
fn beside_first(clusters: &[Sharded], at: usize, kind: usize, of: impl Fn(&Turn) -> f64) -> f64 {
    let pairs = clusters[at].turns[kind].iter().zip(&clusters[0].turns[kind]);
    median(pairs.map(|(turn, first)| of(turn) / of(first)))
}

fn outcome(clusters: &[Sharded], options: &Options) -> Outcome {
    let tasks = options.tasks;
    let (mut tables, mut plots, mut budgets) = (vec![], vec![], vec![]);
    for is_for_each in [true, false] {
        let (id, title) = match is_for_each {
            true => ("for-each", format!("{tasks} tasks for each master")),
            false => ("in-all", format!("{tasks} tasks in all: each master has its share of them")),
        };
        let mut table = Table::new(id, &title)
            .words("what")
            .numbers("masters", "", 0)
            .numbers("servers' CPU for each", "us", 1)
            .numbers("servers' beside one master", "times", 2)
            .numbers("client's CPU for each", "us", 1)
            .numbers("client's beside one master", "times", 2)
            .numbers("requests read at a time", "", 1)
            .numbers("in a second", "", 0);
        for (kind, _) in KINDS.iter().enumerate().filter(|(_, kind)| kind.is_for_each == is_for_each) {
            for (at, cluster) in clusters.iter().enumerate() {
                let of = |of: fn(&Turn) -> f64| median(cluster.turns[kind].iter().map(of));
                let servers = beside_first(clusters, at, kind, |turn| turn.servers_us);
                let client = beside_first(clusters, at, kind, |turn| turn.client_us);
                let masters = cluster.servers.len();
                table.row([
                    name(KINDS[kind]).into(),
                    masters.into(),
                    of(|turn| turn.servers_us).into(),
                    servers.into(),
                    of(|turn| turn.client_us).into(),
                    client.into(),
                    of(|turn| turn.batch).into(),
                    of(|turn| turn.per_second).into(),
                ]);
                if at > 0 && KINDS[kind].is_ours && is_for_each {
                    let what = |whose| {
                        format!("CPU of {whose} for each lock, {masters} masters / {}", clusters[0].servers.len())
                    };
                    budgets.push(Budget::at_most(what("servers"), servers, CONSTANT));
                    budgets.push(Budget::at_most(what("the client"), client, CONSTANT));
                }
            }
        }
        table.note(format!(
            "Medians of {} rounds, in each of which every row has a turn of {} ms. Ratios to one master are medians \
             of the ratios within a round. One client process; each task has a key of its own and repeats without a \
             pause.",
            options.rounds, options.turn_ms
        ));
        let idle = clusters.iter().map(|cluster| {
            let share = median(cluster.idle.iter().map(|idle| idle.servers));
            format!("{} masters {:.2} %", cluster.servers.len(), share * 100.0)
        });
        table.note(format!(
            "What idle servers use is measured in each round and deducted; in shares of a core: {}.",
            idle.collect::<Vec<_>>().join(", ")
        ));
        table.note(
            "CPU: of all threads, with the kernel's work for them. Rates per second are of this machine, whose cores \
             clients and servers share.",
        );
        tables.push(table);
        let lines =
            KINDS.iter().enumerate().filter(|(_, kind)| kind.is_for_each == is_for_each).flat_map(|(kind, of)| {
                let line = |whose: &str, figure: fn(&Turn) -> f64| {
                    let points = clusters
                        .iter()
                        .map(|cluster| (cluster.servers.len() as f64, median(cluster.turns[kind].iter().map(figure))));
                    Line { name: format!("{}, {whose}", name(*of)), points: points.collect() }
                };
                [line("servers", |turn| turn.servers_us), line("client", |turn| turn.client_us)]
            });
        let form = Form::Lines {
            x: Axis::linear("masters"),
            y: Axis::linear("CPU for each, us (less is better)"),
            lines: lines.collect(),
        };
        plots.push(Plot { name: id.to_owned(), title, form });
    }
    Outcome { title: "Cluster".to_owned(), tables, plots, budgets }
}
