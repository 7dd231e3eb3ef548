//! Programs do 500 jobs, each under a lock of its own, while some of them are killed or stopped, and two of five nodes
//! are killed. Each job has a row in a table behind a gate: `TOKEN begun` and `TOKEN done`.

use std::process::{Child, Command, Stdio};

use palisade_client::{Client, ErrorKind, GateError, Guard, Options};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Commands, Connection, FromRedisValue};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{Nodes, connected, ms};
use crate::harness::{Server, Setup, patience, wait_until};

const TASKS: usize = 4;
const KILLED: [&str; 2] = ["of a killed one", "of another killed one"];
const STOPPED: [&str; 2] = ["of a stopped one", "of another stopped one"];
const ORDINARY: usize = 496;

/// A task of a worker. It does what a paused program does: after its work it writes without checking its lock again.
#[derive(Clone)]
struct Worker {
    locks: Client,
    table: MultiplexedConnection,
}

impl Worker {
    async fn do_open_jobs(mut self) {
        while let Some(job) = self.table.srandmember::<_, Option<String>>("open").await.unwrap() {
            self.take(&job, false).await;
        }
    }

    /// Does a job, unless its lock cannot be taken in time. If `is_slow`, holds the lock until another worker has done
    /// the job.
    async fn take(&mut self, job: &str, is_slow: bool) {
        let options = Options::new().ttl(ms(1_500)).wait(ms(3_000)).node_timeout(ms(1_000));
        let guard = match self.locks.with(&options).lock(format!("lock:{job}")).await {
            Ok(guard) => guard,
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::NoQuorum | ErrorKind::Expired) => {
                return;
            }
            Err(error) => panic!("{job}: {error}"),
        };
        match self.write(&guard, job, is_slow).await {
            Ok(()) => self.table.srem("open", job).await.unwrap(),
            Err(GateError::Fenced { .. }) => {
                assert!(!guard.is_valid(), "two locks of one job: {job}");
                self.table.sadd("refused", job).await.unwrap()
            }
            Err(error) => panic!("{job}: {error}"),
        }
        guard.release().await;
    }

    async fn write(&mut self, guard: &Guard, job: &str, is_slow: bool) -> Result<(), GateError> {
        let (row, token) = (format!("row:{job}"), guard.token());
        // This shuts out all earlier holders.
        let last: Option<String> = self.pass(guard, job, "LINDEX", "-1").await?;
        if last.is_some_and(|last| last.ends_with("done")) {
            return Ok(());
        }
        let _: u64 = self.pass(guard, job, "RPUSH", &format!("{token} begun")).await?;
        if is_slow {
            let () = self.table.sadd("open", job).await?;
            while !self.table.lindex::<_, String>(&row, -1).await?.ends_with("done") {
                tokio::time::sleep(ms(5)).await;
            }
        } else {
            tokio::time::sleep(ms(20)).await;
        }
        let _: u64 = self.pass(guard, job, "RPUSH", &format!("{token} done")).await?;
        Ok(())
    }

    /// Performs a command on a job's row, through the job's gate.
    async fn pass<T: FromRedisValue>(
        &mut self,
        guard: &Guard,
        job: &str,
        name: &str,
        last: &str,
    ) -> Result<T, GateError> {
        let mut command = guard.gate(format!("gate:{job}")).cmd(name);
        Ok(command.arg(format!("row:{job}")).arg(last).query_async(&mut self.table).await?)
    }
}

/// Works in a child process. It is a test only so that the parent can start it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test below"]
async fn worker_runs_in_a_child_process() {
    let Ok(nodes) = std::env::var("POOL_NODES") else { return };
    let locks = Client::new(nodes.split(',')).unwrap();
    connected(&locks).await;
    let table = redis::Client::open(std::env::var("POOL_TABLE").unwrap()).unwrap();
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(patience()));
    let worker = Worker { locks, table: table.get_multiplexed_async_connection_with_config(&patient).await.unwrap() };
    let mut tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(worker.clone().do_open_jobs())).collect();
    if let Ok(job) = std::env::var("POOL_JOB") {
        let mut worker = worker.clone();
        tasks.push(tokio::spawn(async move { worker.take(&job, true).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Worker processes, which end with the pool.
struct Pool {
    nodes: Nodes,
    server: Server,
    table: Connection,
    workers: Vec<Child>,
}

impl Pool {
    /// Starts a worker process and returns its index. If `job` is given, the worker also begins that job, and finishes
    /// it only after another worker has done it.
    fn start(&mut self, job: Option<&str>) -> usize {
        let worker = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "pool::worker_runs_in_a_child_process", "--ignored", "--nocapture"])
            .env("POOL_NODES", self.nodes.addresses().join(","))
            .env("POOL_TABLE", self.server.address())
            .envs(job.map(|job| ("POOL_JOB", job)))
            .stdout(Stdio::null())
            .spawn();
        self.workers.push(worker.unwrap());
        self.workers.len() - 1
    }

    fn signal(&self, places: &[usize], signal: Signal) {
        for &place in places {
            kill_process(Pid::from_child(&self.workers[place]), signal).unwrap();
        }
    }

    fn open(&mut self) -> usize {
        self.table.scard("open").unwrap()
    }

    /// Waits until at most `number` jobs are open, as long as one job after the other is done.
    fn await_open(&mut self, number: usize) {
        let mut before = self.open();
        while before > number {
            wait_until("another job is done", || self.open() < before);
            before = self.open();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn assert_done_once(job: &str, row: &[String]) {
    let mut tokens: Vec<u64> = row.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let mut expected: Vec<_> = tokens.iter().map(|token| format!("{token} begun")).collect();
    expected.extend(tokens.last().map(|last| format!("{last} done")));
    assert!(!row.is_empty() && row == expected, "{job}: {row:?}");
}

#[test]
fn no_job_is_done_twice_though_workers_and_nodes_fail() {
    let (nodes, server) = (Nodes::start(5), Setup::new().start());
    let table = redis::Client::open(server.address()).unwrap().get_connection().unwrap();
    let mut pool = Pool { nodes, server, table, workers: Vec::new() };
    let mut jobs: Vec<_> = (0..ORDINARY).map(|number| format!("job {number}")).collect();
    let () = pool.table.sadd("open", &jobs).unwrap();
    let (killed, stopped) = (KILLED.map(|job| pool.start(Some(job))), STOPPED.map(|job| pool.start(Some(job))));
    for job in KILLED.into_iter().chain(STOPPED) {
        wait_until("each has begun its job", || pool.table.sismember("open", job).unwrap());
        jobs.push(job.to_owned());
    }
    pool.signal(&killed, Signal::KILL);
    let third = pool.start(None);
    pool.signal(&stopped, Signal::STOP);
    pool.await_open(jobs.len() / 2);
    pool.nodes.0[..2].iter_mut().for_each(Server::kill);
    let fourth = pool.start(None);
    pool.await_open(0);
    pool.signal(&stopped, Signal::CONT);
    for place in stopped.into_iter().chain([third, fourth]) {
        assert!(pool.workers[place].wait().unwrap().success());
    }

    for job in STOPPED {
        assert!(pool.table.sismember::<_, _, bool>("refused", job).unwrap(), "its late write passed: {job}");
    }
    for job in jobs {
        assert_done_once(&job, &pool.table.lrange::<_, Vec<String>>(format!("row:{job}"), 0, -1).unwrap());
    }
}
