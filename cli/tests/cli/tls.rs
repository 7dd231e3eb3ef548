//! Nodes that use TLS, and the program's message about a node that it cannot trust.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::fixture::{Ended, Nodes, Running, palisade_at, run};
use crate::harness::{
    self, Client, Setup, certificates, free_port, has_tls, int, joined_with, not_here, wait_until, with_mutual_tls,
    with_tls,
};

#[test]
fn locks_over_tls_with_a_certificate_that_is_trusted_and_no_other() {
    let Some(dir) = harness::own_certificate() else { return };
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
    // The program does not wait for a certificate to become trusted.
    assert!(ended.code() == Some(193) && ended.out().is_empty(), "{ended:?}");
    assert!(ended.err().contains("certificate"), "{ended:?}");
    assert_eq!(server.info("grants"), 2);
}

/// Certificates and credentials are given once, by paths relative to the folder of the command; the watchdog, in
/// another folder, uses the same.
#[test]
fn locks_of_nodes_that_ask_for_a_certificate_and_a_password() {
    let Some(dir) = certificates("DNS:locks.example") else { return };
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

/// Each fault of TLS is reported with the state, the cause and what to do, however a node is used: by a command to each
/// node, by taking a lock, and by the agent.
#[test]
fn each_fault_of_tls_has_its_sentence() {
    let Some(dir) = certificates("DNS:locks.example") else { return };
    for (from, to) in [("server.pem", "cert.pem"), ("server.key", "key.pem")] {
        std::fs::rename(dir.path().join(from), dir.path().join(to)).unwrap();
    }
    let (_server, encrypted) = with_tls(Setup::new(), dir.path());
    let plain = Setup::new().replication().start();
    let nodes = Nodes::start(0);
    let of_another = own_certificate("cert.pem");
    let (another, own) = (of_another.display(), dir.path().join("ca.pem"));
    for (address, trusts, sentence) in [
        (
            format!("rediss://127.0.0.1:{encrypted}"),
            another.to_string(),
            "its certificate is not trusted: it is signed by no authority that is trusted here: give the certificate of its authority (--tls-ca",
        ),
        (
            format!("rediss://127.0.0.1:{encrypted}"),
            own.display().to_string(),
            "its certificate is not for 127.0.0.1, but for locks.example: correct the address, or give the name that it has (--tls-server-name",
        ),
        (
            format!("rediss://127.0.0.1:{}", plain.port()),
            own.display().to_string(),
            "the server there speaks no TLS, and its address says that it does (rediss://): give its address as redis://",
        ),
        (
            format!("redis://127.0.0.1:{encrypted}"),
            own.display().to_string(),
            "the server there speaks TLS, and its address does not say so (redis://): give its address as rediss://",
        ),
    ] {
        for line in ["nodes", "try k"] {
            let mut ended = None;
            // A server that is slow at first counts as one that does not answer, so this is repeated.
            wait_until(sentence, || {
                let tried = run(palisade_at(&address, &format!("{line} --tls-ca {trusts}")));
                let is_said = tried.err().contains(sentence);
                ended = Some(tried);
                is_said
            });
            assert_eq!(ended.unwrap().code(), Some(193), "{line}: {sentence}");
        }
        let socket = nodes.file("agent.sock");
        let agent =
            Running::start(palisade_at(&address, &format!("agent --listen {} --tls-ca {trusts}", socket.display())));
        wait_until("the agent listens", || UnixStream::connect(&socket).is_ok());
        let mut client = Client::connect(&socket, false);
        wait_until(sentence, || {
            let answer = client.say("LOCK.ACQUIRE k me 1000");
            answer.is_error("NOQUORUM") && format!("{answer:?}").replace('\\', "").contains(sentence)
        });
        agent.signal(Signal::SIGTERM);
        agent.end();
    }
}

/// Returns the path of a certificate for this host, for servers without a folder of their own.
fn own_certificate(name: &str) -> PathBuf {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| harness::own_certificate().expect("it has TLS"));
    made.path().join(name)
}

/// Sets a TLS port in addition to the plain one, but announces the plain one, as a misconfigured server does.
fn announces_plain_ports(setup: Setup) -> Setup {
    let path = |name: &str| own_certificate(name).to_str().unwrap().to_owned();
    let setup = setup.option("tls-port", &free_port().to_string()).option("tls-auth-clients", "no");
    let setup = setup.option("tls-cert-file", &path("cert.pem")).option("tls-key-file", &path("key.pem"));
    setup.option("tls-ca-cert-file", &path("cert.pem"))
}

/// A cluster announces ports without TLS to clients that use TLS. The program does not hang, and `doctor` says which
/// settings to change.
#[test]
fn a_cluster_that_announces_ports_without_tls() {
    if !has_tls() {
        return not_here("this server was built without TLS");
    }
    let [member] = joined_with(["0 16383"], announces_plain_ports);
    let port = member.client().say("CONFIG GET tls-port").field("tls-port").as_text();
    let on_it = |line: &str| {
        let mut command = palisade_at(&format!("rediss+cluster://127.0.0.1:{port}"), line);
        command.env("SSL_CERT_FILE", own_certificate("cert.pem"));
        run(command)
    };
    let plain = member.server.port();
    let text = format!(
        "FAIL    cluster of 127.0.0.1:{port}: to clients with TLS it announces ports without TLS: 127.0.0.1:{plain}"
    );
    let taken = on_it("try k --node-timeout 500ms");
    if taken.code() == Some(0) {
        return not_here("this server names the port that a client can use, whatever tls-cluster says");
    }
    // A server that is slow at first is reported as one that does not answer, so this is repeated.
    wait_until("the doctor finds it, and says what to set", || {
        let doctor = on_it("doctor").out();
        doctor.contains(&text) && doctor.contains("tls-cluster yes")
    });
    wait_until("it is said which port speaks no TLS, and does not pass by itself", || {
        let taken = on_it("try k");
        let text = format!("127.0.0.1:{plain}: the server there speaks no TLS");
        taken.code() == Some(193) && taken.err().contains(&text)
    });
}

/// If a certificate file cannot be used, every command names the file and ends, before it connects to any server.
#[test]
fn a_file_that_is_no_certificate_is_named_by_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let (blank, socket) = (dir.path().join("blank.pem"), dir.path().join("agent.sock"));
    std::fs::write(&blank, "").unwrap();
    let listen = format!("agent --listen {}", socket.display());
    for line in ["nodes", "try k", "exec k -- true", "doctor", "top --once", "members", &listen] {
        for option in ["--tls-ca FILE", "--tls-cert FILE --tls-key FILE"] {
            let options = option.replace("FILE", blank.to_str().unwrap());
            let ended = run(palisade_at("rediss://127.0.0.1:1", &format!("{options} {line}")));
            let said = format!("in {} cannot be used: the file is empty", blank.display());
            assert!(ended.err().contains(&said) && !socket.exists(), "{line}: {ended:?}");
            assert_eq!(ended.code(), Some(193), "{line}: {ended:?}");
        }
    }
}
