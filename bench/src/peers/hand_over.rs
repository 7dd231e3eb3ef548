//! Hand-over: from a release to the next holder's answer, by every way to wait for a lock.
//!
//! One client holds the lock and all others wait for it; then it goes round. Measured is from right before the release is
//! sent to when the next holder has its answer. Whoever gives it back queues again only when the next one has it: a way
//! that lets the last holder overtake those who wait is not punished for it here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use rand::RngExt;
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use serde_json::json;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::etcd::Etcd;
use super::process::{Peer, numbers};
use super::waiters::{Backend, Waiter, Way};
use super::{Installed, Measured, crate_version};
use crate::results::{Axis, Form, Line, Outcome, Plot, Table};
use crate::server::{Server, cpu_of_process};

/// How long the lock is held, at least: whoever queues again has asked once more by then, and found it taken. In less, a
/// client that just comes back would overtake those who sleep, and the lock would go to and fro between two of them.
const HOLD_MIN: Duration = Duration::from_millis(1);

/// Up to so many waiters, it is held for longer. More of them are out of step by themselves.
const FEW: usize = 10;

/// How long it is held at most then, drawn anew each time: the interval of the polling clients. Were it held for less, a
/// client would poll only right after it was taken, and always wait for a whole interval.
const HOLD_MAX: Duration = Duration::from_millis(100);

/// How much longer than asked for it is measured with many waiters: a millisecond or two for each turn of each.
const LENGTH_A_WAITER: Duration = Duration::from_millis(4);

/// But not longer than this.
const LENGTH_MAX: Duration = Duration::from_secs(4);

/// How long the server's CPU time is measured while all wait.
const WAITING: Duration = Duration::from_millis(500);

/// All clients of a way that is not seen in the server have tried once after so long.
const SETTLED: Duration = Duration::from_millis(500);

/// etcd has set up its waiters when it uses less than this share of a CPU.
const CALM: f64 = 0.3;

/// But nobody waits for that longer than this.
const CALM_MAX: Duration = Duration::from_secs(10);

/// Connections that are made at once.
const CONNECTING: usize = 64;

/// Fairness is told when each client had as many turns, on average. With fewer it tells who happened to be first.
const TURNS_MIN: u64 = 2;

#[derive(clap::Args)]
pub struct Options {
    /// How many wait.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000")]
    waiters: Vec<usize>,

    /// Rounds: in each one, every way of waiting has its turn.
    #[arg(long, default_value_t = 2)]
    rounds: usize,

    /// How long the lock goes round in each turn, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    length_ms: u64,

    #[command(flatten)]
    installed: Installed,
}

/// A way to wait, as it is measured.
struct Subject {
    name: &'static str,
    how: How,
    /// With more waiters than this it is not measured.
    waiters_max: usize,
    is_plotted: bool,
}

enum How {
    Redis(Way),
    /// Which of the clusters.
    Etcd(usize),
    /// redis-py's Lock: how long it sleeps between tries.
    RedisPy {
        sleep_s: f64,
    },
}

/// Every way. The bounds of waiters: more of them would need more than the time of a run to come to wait (our client, etcd),
/// or ask more often than one process can (rslock, redis-py). A busy client's times are those of its process, not its lock's.
fn subjects(installed: &Installed, etcds: &[(&'static str, Etcd)]) -> Vec<Subject> {
    let ms = Duration::from_millis;
    let new = |name, how, waiters_max, is_plotted| Subject { name, how, waiters_max, is_plotted };
    let mut all = vec![
        new("Palisade", How::Redis(Way::Palisade), usize::MAX, true),
        new("Palisade, Rust client", How::Redis(Way::PalisadeClient), 1_000, true),
        new("SET NX every 100 ms", How::Redis(Way::Polling { every: ms(100) }), usize::MAX, true),
        new("pub/sub, as Redisson", How::Redis(Way::PubSub), usize::MAX, true),
        new("rslock", How::Redis(Way::Rslock { every: None }), 1_000, true),
        new("rslock, about every 10 ms", How::Redis(Way::Rslock { every: Some(ms(10)) }), 100, false),
    ];
    if installed.python("").is_some() {
        all.push(new("redis-py", How::RedisPy { sleep_s: 0.1 }, 100, true));
        all.push(new("redis-py, every 10 ms", How::RedisPy { sleep_s: 0.01 }, 10, false));
    }
    all.extend(etcds.iter().enumerate().map(|(n, (name, _))| new(name, How::Etcd(n), 1_000, true)));
    all
}

pub async fn run(server: &Server, options: &Options) -> Measured {
    let etcds = options.installed.etcds().await;
    let mut versions = vec![crate_version("rslock")];
    versions.extend(options.installed.etcd_version());
    let mut place = Place { server, etcds: &etcds, installed: &options.installed, control: server.connect().await };
    versions.extend(place.redis_py().await.map(|(_, version)| version));
    let subjects = subjects(&options.installed, &etcds);
    let mut table = table();
    let mut lines: Vec<(Line, Line)> = subjects.iter().map(|subject| (line(subject), line(subject))).collect();
    for &waiters in &options.waiters {
        let for_all = LENGTH_MAX.min(LENGTH_A_WAITER * waiters as u32);
        let length = Duration::from_millis(options.length_ms).max(for_all);
        let mut all: Vec<Vec<Turns>> = subjects.iter().map(|_| Vec::new()).collect();
        for round in 1..=options.rounds {
            for (subject, turns) in subjects.iter().zip(&mut all).filter(|(subject, _)| waiters <= subject.waiters_max)
            {
                eprintln!("peers-hand-over: {waiters} waiters, round {round} of {}: {}", options.rounds, subject.name);
                turns.push(place.measure(&subject.how, waiters, length).await);
            }
        }
        for ((subject, turns), (p50s, requests)) in subjects.iter().zip(&all).zip(&mut lines) {
            let Some(of_all) = Turns::together(turns) else { continue };
            add_row(&mut table, waiters, subject.name, turns, &all[0], &of_all);
            if let Some(p50) = of_all.quantile(0.5) {
                p50s.points.push((waiters as f64, p50));
                requests.points.push((waiters as f64, of_all.a_hand_over(of_all.requests)));
            }
        }
    }
    options.installed.note_missing(&mut table);
    let (p50s, requests): (Vec<Line>, Vec<Line>) = lines
        .into_iter()
        .zip(&subjects)
        .filter(|((p50s, _), subject)| subject.is_plotted && !p50s.points.is_empty())
        .map(|(lines, _)| lines)
        .unzip();
    let plot = |name: &str, title: &str, y: &str, lines| Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        form: Form::Lines { x: Axis::logarithmic("clients that wait"), y: Axis::logarithmic(y), lines },
    };
    let plots = vec![
        plot("p50", "Hand-over, beside peers", "p50 from release to the next holder, us", p50s),
        plot("requests", "What a hand-over costs, beside peers", "commands a hand-over", requests),
    ];
    (Outcome { title: "Hand-over, beside peers".to_owned(), tables: vec![table], plots, budgets: Vec::new() }, versions)
}

fn line(subject: &Subject) -> Line {
    Line { name: subject.name.to_owned(), points: Vec::new() }
}

fn table() -> Table {
    let mut table = Table::new("hand-over", "From a release to the next holder's answer")
        .numbers("waiters", "", 0)
        .words("client")
        .numbers("p50", "us", 0)
        .numbers("p99", "us", 0)
        .numbers("p50", "times Palisade's", 1)
        .numbers("commands", "a hand-over", 1)
        .numbers("to and from servers", "bytes a hand-over", 0)
        .numbers("fsyncs", "a hand-over", 1)
        .numbers("CPU of servers while all wait", "%", 1)
        .numbers("CPU of clients then", "%", 1)
        .numbers("fairness (Jain)", "", 3)
        .numbers("hand-overs", "", 0);
    table.note(format!(
        "The lock is held for {} to {} ms with up to {FEW} waiters, and for {0} ms with more.",
        HOLD_MIN.as_millis(),
        HOLD_MAX.as_millis()
    ));
    table.note(
        "Every client but redis-py's is in one process, each with its own connection; redis-py's are in another.",
    );
    table.note(format!(
        "Fairness: Jain's index of the turns that each client got; 1 is equal shares. If each turn goes to anybody, it is \
         about m / (m + 1) for m turns a client. Left out below {TURNS_MIN} turns a client."
    ));
    table.note("Commands: all that the server ran, those that scripts called included.");
    table.note(
        "etcd: requests of clients alone, bytes with those between nodes but without the headers of gRPC, fsyncs of the \
         logs and CPU time of all three nodes. The Redis server has no persistence here, and etcd always has.",
    );
    table.note(
        "A client without a line for as many waiters is not measured with them: bench/src/peers/hand_over.rs says why.",
    );
    table
}

fn add_row(table: &mut Table, waiters: usize, name: &str, turns: &[Turns], ours: &[Turns], of_all: &Turns) {
    let ratio = |(theirs, ours): (&Turns, &Turns)| Some(theirs.quantile(0.5)? / ours.quantile(0.5)?);
    let mut ratios: Vec<f64> = turns.iter().zip(ours).filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let fairness: Vec<f64> = turns.iter().filter_map(Turns::fairness).collect();
    let fairness = (!fairness.is_empty()).then(|| fairness.iter().sum::<f64>() / fairness.len() as f64);
    table.row([
        waiters.into(),
        name.into(),
        of_all.quantile(0.5).into(),
        of_all.quantile(0.99).into(),
        ratios.get(ratios.len() / 2).copied().into(),
        of_all.a_hand_over(of_all.requests).into(),
        of_all.a_hand_over(of_all.bytes).into(),
        of_all.fsyncs.map(|fsyncs| of_all.a_hand_over(fsyncs)).into(),
        (of_all.waiting_cpu.servers * 100.0).into(),
        (of_all.waiting_cpu.clients * 100.0).into(),
        fairness.into(),
        of_all.delays_ns.len().into(),
    ]);
}

/// What one way came to in one turn.
#[derive(Clone, Default)]
struct Turns {
    /// From a release to the next holder's answer, sorted.
    delays_ns: Vec<u64>,
    /// Of each client.
    turns: Vec<u64>,
    requests: f64,
    bytes: f64,
    /// Where data is kept.
    fsyncs: Option<f64>,
    /// While all waited.
    waiting_cpu: Cpu,
}

/// Shares of one CPU.
#[derive(Clone, Copy, Default)]
struct Cpu {
    servers: f64,
    clients: f64,
}

impl Turns {
    /// Those of all rounds, without the turns of each client; or nothing if there was none.
    fn together(rounds: &[Turns]) -> Option<Turns> {
        let mut all = rounds.first()?.clone();
        for more in &rounds[1..] {
            all.delays_ns.extend(&more.delays_ns);
            all.requests += more.requests;
            all.bytes += more.bytes;
            all.fsyncs = all.fsyncs.zip(more.fsyncs).map(|(all, more)| all + more);
            all.waiting_cpu.servers += more.waiting_cpu.servers;
            all.waiting_cpu.clients += more.waiting_cpu.clients;
        }
        all.waiting_cpu.servers /= rounds.len() as f64;
        all.waiting_cpu.clients /= rounds.len() as f64;
        all.delays_ns.sort_unstable();
        Some(all)
    }

    /// In microseconds.
    fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.delays_ns.len().checked_sub(1)?;
        Some(self.delays_ns[(last as f64 * share).round() as usize] as f64 / 1_000.0)
    }

    fn a_hand_over(&self, sum: f64) -> f64 {
        sum / self.delays_ns.len() as f64
    }

    /// Jain's index: the square of the sum over the number times the sum of squares.
    fn fairness(&self) -> Option<f64> {
        let (sum, clients) = (self.turns.iter().sum::<u64>(), self.turns.len() as u64);
        let squares: u64 = self.turns.iter().map(|turns| turns * turns).sum();
        (sum >= TURNS_MIN * clients).then(|| (sum * sum) as f64 / (clients * squares) as f64)
    }
}

/// Where it is measured.
struct Place<'a> {
    server: &'a Server,
    etcds: &'a [(&'static str, Etcd)],
    installed: &'a Installed,
    control: MultiplexedConnection,
}

/// Counters before the lock goes round.
struct Before {
    requests: f64,
    bytes: f64,
    fsyncs: f64,
    /// What asking for them added to them.
    own_requests: f64,
    own_bytes: f64,
}

impl Place<'_> {
    async fn measure(&mut self, how: &How, waiters: usize, length: Duration) -> Turns {
        let key = format!("hand-over-{:016x}", rand::random::<u64>());
        let hold_max = if waiters <= FEW { HOLD_MAX } else { HOLD_MIN };
        if let How::RedisPy { sleep_s } = how {
            return self.measure_redis_py(how, &key, waiters, *sleep_s, hold_max, length).await;
        }
        let backend = match how {
            How::Redis(way) => Backend::Redis(*way, self.server.port()),
            How::Etcd(n) => Backend::Etcd(self.etcds[*n].1.client().await),
            How::RedisPy { .. } => unreachable!("it is done above"),
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

    /// A new process of redis-py, with its version.
    async fn redis_py(&self) -> Option<(Peer, String)> {
        let command = self.installed.python("hand_over_redis_py.py")?;
        Some(Peer::start(command, json!({ "do": "hello", "port": self.server.port() })).await)
    }

    async fn measure_redis_py(
        &mut self,
        how: &How,
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

    /// Returns when all wait.
    async fn settle(&mut self, how: &How, key: &str, waiters: usize) {
        loop {
            let waiting = match how {
                How::Redis(Way::Palisade | Way::PalisadeClient) => {
                    crate::server::info(&mut self.control, "lock_waiters").await
                }
                How::Redis(Way::PubSub) => {
                    let count = cmd("PUBSUB").arg("NUMSUB").arg(format!("channel-of-{key}")).to_owned();
                    let (_, count): (String, u64) = count.query_async(&mut self.control).await.unwrap();
                    count
                }
                How::Etcd(n) => {
                    let queue = self.etcds[*n].1.client().await.queue(key).await.unwrap();
                    // Its holder stands in it too.
                    queue as u64 - 1
                }
                How::Redis(Way::Polling { .. } | Way::Rslock { .. }) | How::RedisPy { .. } => {
                    return tokio::time::sleep(SETTLED).await;
                }
            };
            if waiting >= waiters as u64 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let since = Instant::now();
        while matches!(how, How::Etcd(_)) && since.elapsed() < CALM_MAX {
            if self.cpu_for(SETTLED, how, std::process::id()).await.servers < CALM {
                break;
            }
        }
    }

    fn cpu_of_servers(&self, how: &How) -> Duration {
        match how {
            How::Etcd(n) => self.etcds[*n].1.cpu(),
            _ => self.server.cpu_of_all_threads(),
        }
    }

    /// Shares of a CPU that servers, and the process `clients`, use now.
    async fn cpu_for(&self, length: Duration, how: &How, clients: u32) -> Cpu {
        let (servers, of_clients, since) = (self.cpu_of_servers(how), cpu_of_process(clients), Instant::now());
        tokio::time::sleep(length).await;
        let share = |used: Duration| used.as_secs_f64() / since.elapsed().as_secs_f64();
        Cpu { servers: share(self.cpu_of_servers(how) - servers), clients: share(cpu_of_process(clients) - of_clients) }
    }

    /// Requests, bytes and fsyncs so far.
    async fn counters(&mut self, how: &How) -> (f64, f64, f64) {
        if let How::Etcd(n) = how {
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

    async fn before(&mut self, how: &How) -> Before {
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

    async fn since(&mut self, how: &How, before: Before) -> Turns {
        let (requests, bytes, fsyncs) = self.counters(how).await;
        Turns {
            requests: requests - before.requests - before.own_requests,
            bytes: bytes - before.bytes - before.own_bytes,
            fsyncs: matches!(how, How::Etcd(_)).then_some(fsyncs - before.fsyncs),
            ..Turns::default()
        }
    }
}

/// Clients among which a lock goes round.
struct Round {
    go: Arc<watch::Sender<bool>>,
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    start: Instant,
    hold_max: Duration,
    /// When the lock was last given back, in nanoseconds since `start`; 0: not yet.
    released_ns: AtomicU64,
    /// How often it was taken.
    taken: watch::Sender<u64>,
    turns: Vec<AtomicU64>,
    delays_ns: Mutex<Vec<u64>>,
}

impl Round {
    /// One client more than wait: the first one holds the lock, until they go.
    async fn start(backend: &Backend, key: &str, waiters: usize, hold_max: Duration) -> Self {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            hold_max,
            released_ns: AtomicU64::new(0),
            taken: watch::Sender::new(0),
            turns: (0..=waiters).map(|_| AtomicU64::new(0)).collect(),
            delays_ns: Mutex::new(Vec::new()),
        });
        let go = Arc::new(watch::Sender::new(false));
        let connected: Vec<Waiter> =
            stream::iter(0..=waiters).map(|n| Waiter::new(backend, key, n)).buffered(CONNECTING).collect().await;
        let mut clients = Vec::new();
        for (n, waiter) in connected.into_iter().enumerate() {
            clients.push(tokio::spawn(client(waiter, n, Arc::clone(&shared), go.subscribe())));
            if n == 0 {
                shared.taken.subscribe().wait_for(|taken| *taken > 0).await.unwrap();
            }
        }
        Self { go, shared, clients }
    }

    /// Times from a release to the next holder's answer, sorted, and each client's turns.
    async fn stop(self) -> (Vec<u64>, Vec<u64>) {
        let mut delays = self.shared.delays_ns.lock().await.clone();
        let turns = self.shared.turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect();
        for client in &self.clients {
            client.abort();
        }
        for client in self.clients {
            if let Err(why) = client.await {
                assert!(why.is_cancelled(), "a client that waits has failed: {why}");
            }
        }
        delays.sort_unstable();
        (delays, turns)
    }
}

async fn client(mut waiter: Waiter, n: usize, shared: Arc<Shared>, mut go: watch::Receiver<bool>) {
    loop {
        waiter.acquire().await;
        let now = shared.start.elapsed().as_nanos() as u64;
        let released = shared.released_ns.load(Ordering::Relaxed);
        if released > 0 {
            shared.delays_ns.lock().await.push(now - released);
        }
        shared.turns[n].fetch_add(1, Ordering::Relaxed);
        let mut taken = shared.taken.subscribe();
        shared.taken.send_modify(|taken| *taken += 1);
        let mine = *taken.borrow_and_update();
        go.wait_for(|go| *go).await.unwrap();
        let hold = HOLD_MIN + (shared.hold_max - HOLD_MIN).mul_f64(rand::rng().random());
        tokio::time::sleep(hold).await;
        shared.released_ns.store(shared.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        waiter.release().await;
        taken.wait_for(|taken| *taken > mine).await.unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equal_shares_and_little_for_one_winner() {
        let fairness = |turns: &[u64]| Turns { turns: turns.to_vec(), ..Turns::default() }.fairness();
        assert_eq!(fairness(&[5, 5, 5, 5]), Some(1.0));
        assert_eq!(fairness(&[20, 0, 0, 0]), Some(0.25));
        assert_eq!(fairness(&[4, 0, 0, 3]), None, "fewer than two turns each");
    }

    #[test]
    fn rounds_add_up() {
        let round = |delays_ns: &[u64], requests| Turns { delays_ns: delays_ns.to_vec(), requests, ..Turns::default() };
        let all = Turns::together(&[round(&[4_000, 1_000], 6.0), round(&[2_000], 3.0)]).unwrap();
        assert_eq!(all.quantile(0.5), Some(2.0), "in microseconds");
        assert_eq!(all.a_hand_over(all.requests), 3.0);
        assert!(Turns::together(&[]).is_none());
        assert_eq!(round(&[], 0.0).quantile(0.5), None);
    }
}
