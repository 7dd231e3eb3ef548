//! `palisade agent`, as systemd, containers and people run it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::fixture::{Nodes, PALISADE, Running, apart, palisade_at, run};
use crate::harness::{Client, Setup, int, null, wait_until};

/// Starts an agent of these nodes that listens on this socket.
fn agent(nodes: &Nodes, options: &str, socket: &Path) -> Running {
    let agent = Running::start(nodes.palisade(&format!("agent --listen {} {options}", socket.display())));
    wait_until("the agent listens", || UnixStream::connect(socket).is_ok());
    agent
}

fn client(socket: &Path) -> Client {
    Client::connect(socket, false)
}

fn socket(nodes: &Nodes) -> PathBuf {
    nodes.file("agent.sock")
}

#[test]
fn it_ends_by_a_signal_and_takes_its_socket_along() {
    let nodes = Nodes::start(3);
    let socket = socket(&nodes);
    let agent = agent(&nodes, "--socket-mode 0620", &socket);
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o620);
    let mut me = client(&socket);
    assert!(me.outlast_outage("LOCK.ACQUIRE k me 60000").as_int() > 0);
    let mut waiting = client(&socket);
    waiting.ask("LOCK.ACQUIRE k you 60000 WAIT 60000");
    wait_until("it waits", || me.info_field("blocked_clients") == 1);
    agent.signal(Signal::SIGTERM);
    assert!(waiting.hear().is_error("CLOSING"));
    let ended = agent.end();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(ended.err().starts_with("palisade: agent of 3 nodes listens on unix:///"), "{ended:?}");
    assert!(!socket.exists());
    assert_eq!(nodes.holding("k"), 3, "locks are left to their leases");
}

/// An agent is no node: it would be checked as one, and what it lacks would be called a fault.
#[test]
fn an_agents_address_is_not_taken_for_a_nodes() {
    let nodes = Nodes::start(3);
    let socket = socket(&nodes);
    let agent = agent(&nodes, "", &socket);
    for line in ["doctor", "why k", "ls", "nodes", "try k"] {
        let ended = run(palisade_at(&format!("unix://{}", socket.display()), line));
        assert_ne!(ended.code(), Some(0), "{line}: {ended:?}");
        assert!(ended.all().contains("no node is there, but an agent"), "{line}: {ended:?}");
        assert!(!ended.all().contains("state file"), "{line}: {ended:?}");
    }
    drop(agent);
}

/// SIGHUP neither ends an agent nor changes its list: the agent reports the nodes that it works with.
#[test]
fn it_follows_the_set_and_has_no_reload_of_its_list() {
    let setup = || Setup::new().module_arguments(&["max-ttl", "60000"]);
    let mut nodes = Nodes::start(0);
    nodes.servers.extend((0..3).map(|_| setup().start()));
    let socket = socket(&nodes);
    let mut command = nodes.palisade(&format!("agent --listen {}", socket.display()));
    command.stderr(fs::File::create(nodes.file("said")).unwrap());
    let agent = Running::start(command);
    wait_until("the agent listens", || UnixStream::connect(&socket).is_ok());
    let mut me = client(&socket);
    assert!(me.outlast_outage("LOCK.ACQUIRE k me 60000 KEEPALIVE 60000").as_int() > 0);
    let said = |text: &str| {
        agent.signal(Signal::SIGHUP);
        wait_until(text, || fs::read_to_string(nodes.file("said")).unwrap().lines().last().unwrap().contains(text));
    };
    said("no node knows a set: a restart takes another list");
    let added = setup().start();
    let all = format!("{},{}", nodes.addresses(), added.address());
    let set = run(nodes.palisade(&format!("members set {all} --yes")));
    assert_eq!(set.code(), Some(0), "{set:?}");
    said("version 2: ");
    said("its own list is another one");
    wait_until("the lock is on the node that was added", || added.info("held") == 1);
    assert!(me.outlast_outage("LOCK.EXTEND k me 60000").as_int() > 0, "the connection stayed");
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.end().code(), Some(0));
}

#[test]
fn locks_are_given_back_if_it_is_told_so() {
    let nodes = Nodes::start(3);
    let socket = socket(&nodes);
    let agent = agent(&nodes, "--on-end release", &socket);
    assert!(client(&socket).outlast_outage("LOCK.ACQUIRE k me 60000").as_int() > 0);
    agent.signal(Signal::SIGINT);
    assert_eq!(agent.end().code(), Some(0));
    assert_eq!(nodes.holding("k"), 0);
}

/// After kill -9 another process continues with the locks that the first one granted.
#[test]
fn another_process_goes_on_after_kill_9() {
    let nodes = Nodes::start(5);
    let socket = socket(&nodes);
    let first = agent(&nodes, "", &socket);
    let mut me = client(&socket);
    let token = me.outlast_outage("LOCK.ACQUIRE repeated me 60000").as_int();
    for key in ["extended", "released"] {
        me.outlast_outage(&format!("LOCK.ACQUIRE {key} me 60000"));
    }
    first.signal(Signal::SIGKILL);
    assert_eq!(first.end().code(), None);
    assert!(socket.exists(), "nobody took it away");
    let _second = agent(&nodes, "", &socket);
    let mut me = client(&socket);
    assert_eq!(me.outlast_outage("LOCK.ACQUIRE repeated you 60000"), null());
    assert!(me.outlast_outage("LOCK.ACQUIRE repeated me 60000 RETRY").as_int() >= token);
    assert!(me.outlast_outage("LOCK.EXTEND extended me 60000").as_int() > 0);
    assert_eq!(me.outlast_outage("LOCK.RELEASE released me"), int(0));
    assert_eq!(nodes.holding("released"), 0);
    assert_eq!(me.outlast_outage("LOCK.RELEASE extended you"), null());
}

#[test]
fn it_does_not_take_the_place_of_another() {
    let nodes = Nodes::start(1);
    let socket = socket(&nodes);
    let _agent = agent(&nodes, "", &socket);
    let line = format!("agent --listen {}", socket.display());
    run(nodes.palisade(&line)).assert_refused(193, "an agent listens on");
    assert!(client(&socket).say("PING") == crate::harness::text("PONG"));
    fs::write(nodes.file("file"), "data").unwrap();
    let line = format!("agent --listen {}", nodes.file("file").display());
    run(nodes.palisade(&line)).assert_refused(193, "is there and is no socket");
    assert_eq!(fs::read_to_string(nodes.file("file")).unwrap(), "data");
}

#[test]
fn what_is_wrong_with_its_arguments() {
    let nodes = Nodes::start(1);
    for (line, why) in [
        ("agent", "where to listen?"),
        ("agent --listen agent.sock", "is no place to listen"),
        ("agent --listen 0.0.0.0:0", "can be reached from other machines"),
        ("agent --listen 127.0.0.1:0 --password-file nothing", "cannot be read"),
        ("agent --listen 127.0.0.1:0 --password-file /dev/null", "the password is empty"),
        ("agent --listen 127.0.0.1:0 --socket-mode 9", "is no mode"),
        ("agent --health", "which agent?"),
    ] {
        run(nodes.palisade(line)).assert_refused(193, why);
    }
}

#[test]
fn health_follows_the_majority() {
    let mut nodes = Nodes::start(3);
    let (socket, password) = (socket(&nodes), nodes.file("password"));
    let asks = |nodes: &Nodes| {
        run(nodes.palisade(&format!("agent --health --listen {} --password-file password", socket.display())))
    };
    assert_eq!(asks(&nodes).code(), Some(193), "there is no password yet");
    fs::write(&password, "secret\n").unwrap();
    asks(&nodes).assert_refused(1, "agent.sock");
    let _agent = agent(&nodes, "--password-file password", &socket);
    wait_until("it is well", || asks(&nodes).code() == Some(0));
    assert!(asks(&nodes).out().contains("serving, 3 of 3 nodes serve, 2 are needed"));
    let line = format!("agent --health --listen {}", socket.display());
    assert_eq!(run(nodes.palisade(&line)).code(), Some(1), "it needs the password");
    nodes.servers[0].kill();
    nodes.servers[2].kill();
    wait_until("it is not well", || asks(&nodes).code() == Some(1));
}

/// As with systemd: the socket exists before the agent, and outlives it.
#[test]
fn a_socket_is_handed_over() {
    const ACTIVATE: &str = "systemd-socket-activate";
    if Command::new(ACTIVATE).arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("not here: {ACTIVATE}");
        return;
    }
    let nodes = Nodes::start(3);
    let socket = socket(&nodes);
    let mut command = apart(ACTIVATE);
    command.arg("-l").arg(&socket).args(["-E", "PALISADE_NODES", "-E", "PALISADE_NODE_TIMEOUT", PALISADE, "agent"]);
    command.envs(nodes.environment()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let agent = Running::start(command);
    wait_until("the socket is there", || socket.exists());
    let mut me = None;
    wait_until("it is listened on", || {
        me = Client::try_connect(&socket, false);
        me.is_some()
    });
    let mut me = me.unwrap();
    assert!(me.outlast_outage("LOCK.ACQUIRE k me 60000").as_int() > 0);
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.end().code(), Some(0));
    assert!(socket.exists(), "it belongs to who made it");
}

/// systemd learns that the agent is ready, its status, and that it ends.
#[test]
fn systemd_is_told() {
    let nodes = Nodes::start(3);
    let socket = socket(&nodes);
    let told = nodes.file("notify");
    let heard = std::os::unix::net::UnixDatagram::bind(&told).unwrap();
    heard.set_read_timeout(Some(crate::harness::patience())).unwrap();
    let mut command = nodes.palisade(&format!("agent --listen {}", socket.display()));
    command.env("NOTIFY_SOCKET", &told);
    let agent = Running::start(command);
    let next = || {
        let mut bytes = [0; 1_024];
        let count = heard.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    assert!(next().starts_with("READY=1\n"));
    let status = next();
    assert!(status.starts_with("STATUS=") && status.contains("of 3 nodes serve, 2 are needed"), "{status}");
    agent.signal(Signal::SIGTERM);
    assert_eq!(next().trim(), "STOPPING=1");
    assert_eq!(agent.end().code(), Some(0));
}
