//! Elections: the time without a leader when one dies or resigns, and the time until others know, compared with etcd's
//! elections.
//!
//! The leader that dies is a separate process, killed with SIGKILL at a random moment of its lease. The next leader and
//! an observer are in this process. Also measured: the time until a holder knows that an operator broke its lock.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use palisade_client::{Changes, Client, Election, Options as ClientOptions};
use rand::RngExt;
use tokio::time::sleep;

use super::cluster::Cluster;
use super::etcd::{Etcd, Leader};
use super::installed::{Installed, Measured};
use super::killed;
use super::leader::{TTL_S, client, client_options, start_leader};
use crate::quorum::SlowLink;
use crate::raw::Raw;
use crate::results::{Budget, Outcome, Table};
use crate::server::Server;

/// The number of Palisade's nodes; etcd has three.
const NODES: usize = 5;

/// The time for the next candidate to join the queue, and for the observer to learn of the leader.
const SETTLED: Duration = Duration::from_millis(500);

/// The delay of each message while a lock is broken; the timers of the links are accurate to a millisecond.
const LINK: Duration = Duration::from_millis(5);

#[derive(clap::Args)]
pub struct Options {
    /// The number of leaders that are killed, and of those that resign.
    #[arg(long, default_value_t = 20)]
    leaders: usize,

    /// The number of holders of each client that are killed.
    #[arg(long, default_value_t = 5)]
    holders: usize,

    /// The number of locks that are broken.
    #[arg(long, default_value_t = 100)]
    broken: usize,

    #[command(flatten)]
    installed: Installed,
}

/// The times of elections with Palisade or with one setup of etcd, in microseconds.
struct Times {
    name: String,
    /// The times from the end of a leader to the next one's report that it leads.
    killed: Histogram<u64>,
    resigned: Histogram<u64>,
    /// The times from the new leader's report that it leads until an observer knew of it; zero if the observer knew
    /// before.
    observed: Histogram<u64>,
}

impl Times {
    fn new(name: &str) -> Self {
        let new = || Histogram::new(3).unwrap();
        Self { name: name.to_owned(), killed: new(), resigned: new(), observed: new() }
    }

    fn observed(&mut self, leads: Instant, told: Instant) {
        self.observed.record(told.saturating_duration_since(leads).as_micros() as u64).unwrap();
    }
}

pub async fn run(start: impl Fn() -> Server, options: &Options) -> Measured {
    let nodes: Vec<Server> = (0..NODES).map(|_| start()).collect();
    let ports: Vec<u16> = nodes.iter().map(Server::port).collect();
    ports.iter().for_each(|&port| drop(Raw::connect(port)));
    let clusters = options.installed.clusters().await;
    let mut all = vec![of_palisade(&ports, options.leaders).await];
    for cluster in &clusters {
        if let Cluster::Etcd(name, etcd) = cluster {
            all.push(of_etcd(name, etcd, options.leaders).await);
        }
    }
    let mut table = Table::new("election", format!("Leaders with leases of {TTL_S} s that are killed or resign"))
        .words("")
        .numbers("leaders", "each", 0)
        .numbers("killed to next p50", "ms", 0)
        .numbers("killed to next max", "ms", 0)
        .numbers("resigned to next p50", "ms", 2)
        .numbers("resigned to next max", "ms", 2)
        .numbers("observer later p50", "ms", 2)
        .numbers("observer later max", "ms", 2);
    let ms = |us: u64| us as f64 / 1_000.0;
    for Times { name, killed, resigned, observed } in &all {
        let [kill, resign, observe] =
            [killed, resigned, observed].map(|times| (ms(times.value_at_quantile(0.5)), ms(times.max())));
        table.row([
            name.as_str().into(),
            (options.leaders as u64).into(),
            kill.0.into(),
            kill.1.into(),
            resign.0.into(),
            resign.1.into(),
            observe.0.into(),
            observe.1.into(),
        ]);
    }
    table.note(format!(
        "Palisade on {NODES} nodes, etcd on three, all on one machine. The leader is killed (SIGKILL) at a random \
         moment, when between two thirds and all of its lease are left. The time runs until the next leader, which \
         has waited for its turn, may say that it leads (a majority has its proclamation; etcd's Campaign returns)."
    ));
    table.note(
        "The observer's delay is the time from the next leader's election to the observer's report; 0: the observer \
         is as early as the leader itself. Palisade's observer watches every node and believes a majority; etcd's asks \
         the cluster (Observe).",
    );
    options.installed.note_missing(&mut table);
    let (killed, versions) = killed::run(&ports, &clusters, &options.installed, options.holders).await;
    let (broken, round_trip, lost) = broken(&ports, options.broken).await;
    let worst = ms(all[0].killed.max());
    let budgets = vec![
        Budget::at_most(
            "leader killed to next leader proclaimed, ms over the lease".to_owned(),
            worst - (TTL_S * 1_000) as f64,
            2.0 * round_trip_of(&ports),
        ),
        Budget::at_most("BREAK of a lock held over 5 nodes to lost, round trips".to_owned(), lost / round_trip, 2.0),
    ];
    let outcome = Outcome {
        title: "Elections and killed holders beside peers, and how soon a loss is known".to_owned(),
        tables: vec![table, killed, broken],
        plots: Vec::new(),
        budgets,
    };
    (outcome, options.installed.cluster_versions().into_iter().chain(versions).collect())
}

/// Returns the median round trip to a node, in milliseconds.
fn round_trip_of(ports: &[u16]) -> f64 {
    let mut node = Raw::connect(ports[0]);
    let mut times = Histogram::<u64>::new(3).unwrap();
    for _ in 0..1_000 {
        let sent = Instant::now();
        node.ask("PING");
        times.record(sent.elapsed().as_micros() as u64).unwrap();
    }
    times.value_at_quantile(0.5) as f64 / 1_000.0
}

/// Waits for [`SETTLED`], and then for a random time of up to a third of the lease, so that a leader is killed at any
/// time after its last extension.
async fn some_moment() {
    sleep(SETTLED + Duration::from_secs(TTL_S).mul_f64(rand::rng().random_range(0.0..1.0 / 3.0))).await;
}

async fn of_palisade(ports: &[u16], leaders: usize) -> Times {
    let mut times = Times::new("Palisade");
    let (candidate, watcher) = (client(ports), client(ports));
    candidate.connect().await.unwrap();
    watcher.connect().await.unwrap();
    let options = client_options();
    let election = |client: &Client| -> Election { client.with(&options).election("election") };
    let mut observer = election(&watcher).observe().unwrap();
    for n in 1..=leaders {
        eprintln!("peers-election: Palisade, leader {n} of {leaders}");
        let mut killed = start_leader(ports, false, "election");
        let next = tokio::spawn({
            let election = election(&candidate);
            async move { (election.campaign("next").await.unwrap(), Instant::now()) }
        });
        some_moment().await;
        let ended = Instant::now();
        killed.kill().unwrap();
        let told = told(&mut observer, b"next");
        let (next, told) = tokio::join!(next, told);
        let (leadership, leads) = next.unwrap();
        times.killed.record((leads - ended).as_micros() as u64).unwrap();
        times.observed(leads, told);
        killed.wait().unwrap();
        let heir = tokio::spawn({
            let election = election(&watcher);
            async move { (election.campaign("heir").await.unwrap(), Instant::now()) }
        });
        sleep(SETTLED).await;
        let ended = Instant::now();
        let (_, heir, told) = tokio::join!(leadership.resign(), heir, self::told(&mut observer, b"heir"));
        let (leadership, leads) = heir.unwrap();
        times.resigned.record((leads - ended).as_micros() as u64).unwrap();
        times.observed(leads, told);
        leadership.resign().await;
    }
    times
}

/// Returns when the observer learned that this candidate leads.
async fn told(observer: &mut Changes<Option<palisade_client::Leader>>, value: &[u8]) -> Instant {
    while observer.changed().await.unwrap().is_none_or(|leader| leader.value != value) {}
    Instant::now()
}

async fn of_etcd(name: &str, etcd: &Etcd, leaders: usize) -> Times {
    let mut times = Times::new(name);
    let (client, election) = (etcd.client().await, name.replace(' ', "-"));
    // etcd answers an observer only once somebody leads.
    let mut observing = None;
    let campaign = |value: &'static [u8]| {
        let (client, election) = (client.clone(), election.clone());
        tokio::spawn(async move {
            let mut client = client;
            let session = client.session().await.unwrap();
            let leader: Leader = client.campaign(&election, session, value).await.unwrap();
            (leader, Instant::now())
        })
    };
    for n in 1..=leaders {
        eprintln!("peers-election: {name}, leader {n} of {leaders}");
        let mut killed = start_leader(&etcd.ports(), true, &election);
        let observer = match &mut observing {
            Some(observer) => observer,
            None => observing.insert(client.clone().observe(&election).await.unwrap()),
        };
        let next = campaign(b"next");
        some_moment().await;
        let ended = Instant::now();
        killed.kill().unwrap();
        let (next, told) = tokio::join!(next, observer.told(b"next"));
        let (leader, leads) = next.unwrap();
        times.killed.record((leads - ended).as_micros() as u64).unwrap();
        times.observed(leads, told);
        killed.wait().unwrap();
        let heir = campaign(b"heir");
        sleep(SETTLED).await;
        let ended = Instant::now();
        let mut resigning = client.clone();
        let (_, heir, told) = tokio::join!(resigning.resign(leader), heir, observer.told(b"heir"));
        let (leader, leads) = heir.unwrap();
        times.resigned.record((leads - ended).as_micros() as u64).unwrap();
        times.observed(leads, told);
        client.clone().resign(leader).await.unwrap();
    }
    times
}

/// Measures when a holder behind slow links learns that its lock was broken on all nodes. Returns the table, and two
/// medians in milliseconds: of a round trip over the links, and of the time until the holder knows.
async fn broken(ports: &[u16], times: usize) -> (Table, f64, f64) {
    let links: Vec<u16> = ports.iter().map(|&port| SlowLink::to(port, LINK).port()).collect();
    let round_trip = round_trip_of(&links);
    let client = client(&links);
    client.connect().await.unwrap();
    let mut operators: Vec<Raw> = ports.iter().map(|&port| Raw::connect(port)).collect();
    let mut lost = Histogram::<u64>::new(3).unwrap();
    for n in 0..times {
        let key = format!("broken-{n}");
        let guard = client.with(&ClientOptions::new().ttl(Duration::from_secs(30))).lock(&key).await.unwrap();
        // Gives the holder the time to ask its nodes to notify it.
        sleep(SETTLED).await;
        let began = Instant::now();
        operators.iter_mut().for_each(|node| drop(node.ask(&format!("LOCK.BREAK {key}"))));
        guard.lost().await;
        lost.record(began.elapsed().as_micros() as u64).unwrap();
    }
    let ms = |us: u64| us as f64 / 1_000.0;
    let mut table = Table::new("broken", format!("From LOCK.BREAK on {NODES} nodes to lost"))
        .numbers("locks", "", 0)
        .numbers("round trip", "ms", 1)
        .numbers("lost p50", "ms", 1)
        .numbers("lost p99", "ms", 1)
        .numbers("round trips p50", "", 2)
        .numbers("round trips p99", "", 2);
    let (p50, p99) = (ms(lost.value_at_quantile(0.5)), ms(lost.value_at_quantile(0.99)));
    table.row([
        (times as u64).into(),
        round_trip.into(),
        p50.into(),
        p99.into(),
        (p50 / round_trip).into(),
        (p99 / round_trip).into(),
    ]);
    table.note(format!(
        "The holder is behind links that take {} ms each way; the client that breaks the lock is not. Time runs from \
         right before the first LOCK.BREAK is sent. The lock was held for {} ms, its leases have 30 s.",
        LINK.as_millis(),
        SETTLED.as_millis()
    ));
    (table, round_trip, p50)
}
