//! Masters and replicas that are in step.

use super::{Client, Server, Setup, int, text, wait_until};

/// A master and its replica, in step.
pub fn pair() -> (Server, Server) {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    follow(&replica, &master);
    (master, replica)
}

/// `replica` becomes one of `master`, and is in step.
pub fn follow(replica: &Server, master: &Server) {
    assert_eq!(replica.client().say(&format!("REPLICAOF 127.0.0.1 {}", master.port())), text("OK"));
    // The stream runs only from the replica's first acknowledgement on, up to a second later.
    let mut client = master.client();
    wait_until("the replica is known", || client.say("INFO replication").as_text().contains("connected_slaves:1"));
    client.say("SET stream runs");
    client.say("DEL stream");
    in_step(&mut client);
}

/// Waits until the replica has seen all that the master has done.
pub fn in_step(master: &mut Client) {
    assert_eq!(master.say("WAIT 1 60000"), int(1));
}
