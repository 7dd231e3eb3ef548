//! Nodes that speak TLS, and what the program says of one that it cannot trust.

use nix::sys::signal::Signal;

use crate::fixture::{Ended, Nodes, Running, run};
use crate::harness::{
    Setup, has_tls, int, issue, make_authority, make_certificate, not_here, wait_until, with_mutual_tls, with_tls,
};

#[test]
fn locks_over_tls_with_a_certificate_that_is_trusted_and_no_other() {
    if !has_tls() {
        return not_here("this server was built without TLS");
    }
    let dir = tempfile::tempdir().unwrap();
    make_certificate(dir.path());
    let (server, port) = with_tls(Setup::new().module_arguments(&["max-ttl", "86400000"]), dir.path());
    let nodes = Nodes::start(0);
    let command = |script: &str, trusted: &str| {
        let mut command = nodes.exec("--ttl 1day --grace 1s job", script);
        command.env("PALISADE_NODES", format!("rediss://127.0.0.1:{port}"));
        command.env("SSL_CERT_FILE", dir.path().join(trusted));
        command
    };
    let exec = |script: &str, trusted: &str| -> Ended { run(command(script, trusted)) };
    let ended = exec("echo under the lock", "cert.pem");
    assert_eq!((ended.code(), ended.out().as_str()), (Some(0), "under the lock\n"), "{ended:?}");
    assert_eq!(server.info("grants"), 1);
    // The watchdog trusts the same certificates.
    let killed = Running::start(command("echo > held; sleep 1000", "cert.pem"));
    nodes.wait_file("held");
    killed.signal(Signal::SIGKILL);
    wait_until("its lock is given back", || server.info("held") == 0);
    let ended = exec("echo never", "key.pem");
    assert!(ended.code() != Some(0) && ended.out().is_empty(), "{ended:?}");
    assert!(ended.err().contains("certificate"), "{ended:?}");
    assert_eq!(server.info("grants"), 2);
}

/// Certificates and credentials are named once, by paths of the folder where the command is run; the watchdog, in another folder, has them too.
#[test]
fn locks_of_nodes_that_ask_for_a_certificate_and_a_password() {
    if !has_tls() {
        return not_here("this server was built without TLS");
    }
    let dir = tempfile::tempdir().unwrap();
    make_authority(dir.path());
    issue(dir.path(), "server", "DNS:locks.example");
    issue(dir.path(), "app", "DNS:app");
    let (server, port) = with_mutual_tls(Setup::new().module_arguments(&["max-ttl", "86400000"]), dir.path());
    server.client().say("ACL SETUSER app on >secret ~* +@all");
    server.client().say("CONFIG SET requirepass other");
    let admin = || {
        let mut client = server.client();
        client.say("AUTH other");
        client
    };
    std::fs::write(dir.path().join("credentials"), "app:secret\n").unwrap();
    let nodes = Nodes::start(0);
    let command = |script: &str| {
        let mut command = nodes.exec("--ttl 1day --grace 1s job", script);
        command.current_dir(dir.path()).env("PALISADE_NODES", format!("rediss://127.0.0.1:{port}"));
        command.env("PALISADE_TLS_CA", "ca.pem").env("PALISADE_TLS_CERT", "app.pem").env("PALISADE_TLS_KEY", "app.key");
        command.env("PALISADE_TLS_SERVER_NAME", "locks.example").env("PALISADE_CREDENTIALS", "credentials");
        command
    };
    let ended = run(command("echo under the lock"));
    assert_eq!((ended.code(), ended.out().as_str()), (Some(0), "under the lock\n"), "{ended:?}");
    let killed = Running::start(command("echo > held; sleep 1000"));
    wait_until("the lock is held", || dir.path().join("held").exists());
    killed.signal(Signal::SIGKILL);
    wait_until("its lock is given back", || admin().say("EXISTS job") == int(0));

    let mut without = command("echo never");
    without.env_remove("PALISADE_TLS_CERT");
    let ended = run(without);
    assert_eq!(ended.code(), Some(193), "{ended:?}");
    assert!(ended.err().contains("--tls-cert"), "{ended:?}");
    let mut other = command("echo never");
    other.env_remove("PALISADE_CREDENTIALS");
    let ended = run(other);
    assert_eq!(ended.code(), Some(193), "{ended:?}");
    assert!(ended.err().contains("NOAUTH"), "{ended:?}");
}
