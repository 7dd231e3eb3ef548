//! A server that listens only with TLS. Certificates are made by openssl for the test.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::{Setup, certificates, int, null, own_certificate, read, wait_until, with_mutual_tls, with_tls};

/// Starts redis-cli over TLS, in a process of its own.
fn over_tls(certificates: &Path, port: u16, line: &str, out: &Path) -> Child {
    let mut cli = Command::new("redis-cli");
    cli.args(["-h", "127.0.0.1", "-p", &port.to_string(), "--tls", "--cacert"]);
    if certificates.join("ca.pem").exists() {
        cli.arg(certificates.join("ca.pem"));
        cli.arg("--cert").arg(certificates.join("app.pem")).arg("--key").arg(certificates.join("app.key"));
    } else {
        cli.arg(certificates.join("cert.pem"));
    }
    cli.args(line.split(' ')).stdin(Stdio::null()).stdout(File::create(out).unwrap());
    cli.spawn().expect("redis-cli is installed: make setup")
}

/// Runs redis-cli over TLS. Returns the answer.
fn ask(certificates: &Path, port: u16, line: &str) -> String {
    let out = certificates.join("answer");
    assert!(over_tls(certificates, port, line, &out).wait().unwrap().success(), "{line}");
    fs::read_to_string(out).unwrap().trim().to_owned()
}

/// The server has its default for TLS: it requires client certificates.
#[test]
fn locks_and_hand_overs_over_tls() {
    let Some(dir) = certificates("IP:127.0.0.1") else { return };
    let (server, port) = with_mutual_tls(Setup::new(), dir.path());
    let token: i64 = ask(dir.path(), port, "LOCK.ACQUIRE k me 60000").parse().unwrap();
    let outs = [dir.path().join("a"), dir.path().join("b")];
    let mut waiters = vec![];
    for (n, out) in outs.iter().enumerate() {
        waiters.push(over_tls(dir.path(), port, &format!("LOCK.ACQUIRE k w{n} 60000 WAIT 60000"), out));
        wait_until("it waits", || server.info("waiters") == n as u64 + 1);
    }
    // One waiter is handed the lock by a client without TLS, the other by one with TLS.
    let mut me = server.client();
    assert_eq!(me.say("LOCK.RELEASE k me"), int(0));
    assert!(waiters[0].wait().unwrap().success());
    assert_eq!(ask(dir.path(), port, "LOCK.RELEASE k w0"), "0");
    assert!(waiters[1].wait().unwrap().success());
    let mut last = token;
    for out in &outs {
        let newer: i64 = read(out.clone()).lines().next().unwrap().parse().unwrap();
        assert!(newer > last);
        last = newer;
    }
    // A client that waited over TLS and has disconnected is granted nothing.
    let mut gone = over_tls(dir.path(), port, "LOCK.ACQUIRE k gone 60000 WAIT 60000", &outs[0]);
    wait_until("it waits", || server.info("waiters") == 1);
    gone.kill().unwrap();
    gone.wait().unwrap();
    wait_until("it is gone", || server.info("waiters") == 0);
    assert_eq!(me.say("LOCK.RELEASE k w1"), int(0));
    assert_eq!(me.say("LOCK.INFO k"), null());
}

#[test]
fn a_node_without_another_port_is_named_after_its_tls_port() {
    let Some(dir) = own_certificate() else { return };
    let (mut server, port) = with_tls(Setup::new().aof(), dir.path());
    let state = server.dir().join(format!("lock-node-{port}.state"));
    let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
    assert!(read(state.clone()).starts_with("palisade-node "));
    server.kill();
    server.start_again();
    assert_eq!(server.client().say("LOCK.EXTEND k me 60000"), int(token), "it has found its state again");
    assert!(read(state).contains("incarnation 2\n"));
}

/// The link of a replica is a TLS connection, too.
#[test]
fn a_replica_over_tls_keeps_the_same_locks() {
    let Some(dir) = own_certificate() else { return };
    let tls = || Setup::new().option("tls-replication", "yes").option("repl-diskless-sync-delay", "0");
    let ((master, port), (replica, _)) = (with_tls(tls(), dir.path()), with_tls(tls(), dir.path()));
    replica.client().say(&format!("REPLICAOF 127.0.0.1 {port}"));
    let mut client = master.client();
    let token = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    let mut copy = replica.client();
    wait_until("the lock is there", || copy.say("LOCK.INFO k") != null());
    assert_eq!(copy.say("LOCK.INFO k").field("token"), int(token));
    assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
    wait_until("the lock is gone", || copy.say("EXISTS k") == int(0));
}
