//! Leaders and holders in processes of their own, so that they can be killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use palisade_client::{Client, Options};
use tokio::time::sleep;

use super::etcd;

/// The length of a leader's lease, in seconds: etcd accepts no shorter one with its defaults.
pub const TTL_S: u64 = 2;

/// A leader or a holder in a process of its own, which reports that it leads, and leads until it is killed.
#[derive(clap::Args)]
pub struct LeaderOptions {
    /// The ports of the nodes.
    #[arg(long, value_delimiter = ',')]
    ports: Vec<u16>,

    /// True if the nodes are etcd's.
    #[arg(long)]
    etcd: bool,

    /// The length of the lease of a lock that the process holds, in seconds; without it, the process leads.
    #[arg(long)]
    lock_s: Option<u64>,

    #[arg(long)]
    name: String,
}

/// The line that a process prints once it leads, or has the lock.
const LEADS: &str = "leads";

pub fn client_options() -> Options {
    Options::new().ttl(Duration::from_secs(TTL_S))
}

pub fn client(ports: &[u16]) -> Client {
    Client::new(ports.iter().map(|port| format!("redis://127.0.0.1:{port}"))).unwrap()
}

/// Leads until this process is killed.
pub async fn lead(options: &LeaderOptions) {
    if options.etcd {
        let mut client = etcd::Client::to(&options.ports[..1]).await.unwrap();
        let session = client.session_of(TTL_S as i64).await.unwrap();
        let _leader = client.campaign(&options.name, session, b"killed").await.unwrap();
        println!("{LEADS}");
        loop {
            // Extends as often as our client does.
            sleep(Duration::from_secs(TTL_S) / 3).await;
            client.keep_alive(session).await.unwrap();
        }
    }
    let client = client(&options.ports);
    client.connect().await.unwrap();
    if let Some(ttl) = options.lock_s.map(Duration::from_secs) {
        let _guard = client.with(&Options::new().ttl(ttl)).lock(&options.name).await.unwrap();
        println!("{LEADS}");
        std::future::pending::<()>().await;
    }
    let _leadership = client.with(&client_options()).election(&options.name).campaign("killed").await.unwrap();
    println!("{LEADS}");
    std::future::pending::<()>().await;
}

/// Starts the process of a leader of etcd's or of ours, and returns it once it leads.
pub fn start_leader(ports: &[u16], is_etcd: bool, name: &str) -> Child {
    let etcd = if is_etcd { vec!["--etcd".to_owned()] } else { Vec::new() };
    start_process(ports, name, &etcd)
}

/// Starts the process of a holder, and returns it once it has the lock.
pub fn start_holder(ports: &[u16], ttl: Duration, name: &str) -> Child {
    start_process(ports, name, &["--lock-s".to_owned(), ttl.as_secs().to_string()])
}

fn start_process(ports: &[u16], name: &str, more: &[String]) -> Child {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    // Of the options of all benchmarks, only the required paths are passed on; they are not used.
    command.args(std::env::args_os().skip(1).take_while(|word| word != "peers-election"));
    command.args(["peers-leader", "--name", name, "--ports", &ports.join(",")]).args(more);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some(LEADS), "the leader leads");
    child
}
