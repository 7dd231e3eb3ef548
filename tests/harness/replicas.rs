//! Masters and replicas in step with each other.

use super::{Client, Server, Setup, int, text, wait_until};

/// Returns a master and its replica, in step.
pub fn pair() -> (Server, Server) {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    follow(&replica, &master);
    (master, replica)
}

/// The longest possible lease, which a replica assumes until its master reports one, in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// Waits until the master has reported to the replica how long its leases may be.
pub fn has_heard(replica: &Server) {
    wait_until("the replica was told of its master's leases", || replica.info("outstanding_ttl_ms") < DAY_MS);
}

/// Makes `replica` a replica of `master`, and waits until it has all data and knows what it needs for a promotion.
pub fn follow(replica: &Server, master: &Server) {
    follow_in_step(replica, master);
    has_heard(replica);
}

/// Makes `replica` a replica of `master`, and waits until it has all data.
pub fn follow_in_step(replica: &Server, master: &Server) {
    assert_eq!(replica.client().say(&format!("REPLICAOF 127.0.0.1 {}", master.port())), text("OK"));
    // The stream starts only after the replica's first acknowledgement, up to a second later.
    let mut client = master.client();
    wait_until("the replica is known", || client.say("INFO replication").as_text().contains("connected_slaves:1"));
    client.say("SET stream runs");
    client.say("DEL stream");
    in_step(&mut client);
}

/// Waits until the replicas have everything that the master has done.
pub fn in_step(master: &mut Client) {
    assert_eq!(master.say("WAIT 1 60000"), int(1));
}
