//! Nodes that speak TLS, and what the program says of one that it cannot trust.

use nix::sys::signal::Signal;

use crate::fixture::{Ended, Nodes, Running, run};
use crate::harness::{Setup, has_tls, make_certificate, not_here, wait_until, with_tls};

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
