//! A server that is too old for the module refuses to start with it, and says why in one line.

use std::path::PathBuf;

use crate::harness::{Setup, not_here};

/// Returns the path of an old server: `PALISADE_OLD_SERVER`, or the one that `make setup-servers` installs.
fn old_server() -> Option<PathBuf> {
    if let Some(server) = std::env::var_os("PALISADE_OLD_SERVER") {
        return Some(server.into());
    }
    let server = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/servers/bin/redis-6.2");
    server.exists().then_some(server)
}

#[test]
fn a_server_below_the_floor_is_told_plainly() {
    let Some(server) = old_server() else { return not_here("no old server: make setup-servers brings one") };
    let log = Setup::bare().server(&server).refused();
    let ours: Vec<&str> = log.lines().filter_map(|line| line.split("<lock> ").nth(1)).collect();
    let why = "the lock module was not loaded: it needs Redis 7.0 or Valkey 8.0 at least, this server speaks 6.2: upgrade \
               the server";
    assert_eq!(ours, [why]);
}
