//! `make nodes`: starts several servers and an agent with one command.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::fixture::{PALISADE, Running, apart, palisade_at, run};
use crate::harness;

/// The script that `make nodes` runs prints addresses that work, and leaves nothing behind.
#[test]
fn they_serve_until_they_are_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/nodes");
    let mut command = apart(script);
    command.arg("3").env("SERVER", harness::server_binary()).env("CLI", "redis-cli");
    command.env("MODULE", harness::module()).env("PALISADE", PALISADE).env("TMPDIR", folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut nodes = Running::start(command);
    let mut lines = BufReader::new(nodes.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut after = |start: &str| lines.find_map(|line| Some(line.trim().strip_prefix(start)?.to_owned())).unwrap();
    let addresses = after("export PALISADE_NODES=");
    let through_agent = after("redis-cli ");
    let told = run(palisade_at(&addresses, "doctor"));
    assert_eq!(told.code(), Some(0), "{told:?}");
    let ended = run(palisade_at(&addresses, "exec orders:7 -- echo held"));
    assert_eq!(ended.out(), "held\n", "{ended:?}");
    let mut client = apart("redis-cli");
    client.args(through_agent.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    let token = run(client);
    assert!(token.out().trim().parse::<u64>().is_ok(), "{token:?}");
    nodes.signal(Signal::SIGINT);
    assert_eq!(nodes.end().code(), Some(130));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
