//! Terraform's state locks from `palisade agent --http`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use nix::sys::signal::Signal;

use crate::fixture::{Nodes, Running, run};
use crate::harness::{Client, free_port, grants, patience, wait_until};

/// Starts an agent that serves Terraform at this port, and waits until it listens.
fn agent(nodes: &Nodes, port: u16) -> Running {
    let agent = Running::start(nodes.palisade(&format!("agent --http 127.0.0.1:{port} --http-locks locks")));
    wait_until("the agent listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    agent
}

/// Sends a request with the lock info of the run `ann`, and returns the status and the body.
fn ask(port: u16, method: &str) -> (u16, String) {
    let info = r#"{"ID":"ann","Operation":"OperationTypePlan","Who":"ann@web-1"}"#;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    write!(stream, "{method} /shop HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{info}", info.len()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// After kill -9 the next agent extends the lock before any request arrives, and an UNLOCK sent to it succeeds.
#[test]
fn the_next_agent_continues_after_kill_9() {
    let nodes = Nodes::start(5);
    let port = free_port();
    let first = agent(&nodes, port);
    wait_until("it is locked", || ask(port, "LOCK") == (200, String::new()));
    let listed = run(nodes.palisade("ls terraform:*"));
    assert!(listed.out().contains("terraform:shop") && listed.out().contains("ann@web-1"), "{listed:?}");
    first.signal(Signal::SIGKILL);
    assert_eq!(first.end().code(), None);
    let age = |field: &str| grants(&mut nodes.servers[0].client(), "terraform:shop")[0].field(field).as_int();
    wait_until("the lease is some time old", || age("extended") > 500);
    let second = agent(&nodes, port);
    wait_until("the next agent extends it", || age("extended") < age("held") - 500);
    assert_eq!(ask(port, "UNLOCK"), (200, String::new()));
    assert_eq!(ask(port, "UNLOCK").0, 409);
    assert_eq!(nodes.holding("terraform:shop"), 0);
    second.signal(Signal::SIGTERM);
    let ended = second.end();
    assert_eq!(ended.code(), Some(0));
    assert!(ended.err().contains(&format!("Terraform's locks are at http://127.0.0.1:{port}/")), "{ended:?}");
}

/// An agent that releases its locks when it ends leaves those of Terraform, which the next agent with the file continues.
#[test]
fn the_next_agent_continues_after_an_agent_that_releases_its_locks() {
    let nodes = Nodes::start(3);
    let (port, socket) = (free_port(), nodes.file("agent.sock"));
    let listen = format!("--listen {} --http 127.0.0.1:{port}", socket.display());
    let first = Running::start(nodes.palisade(&format!("agent {listen} --http-locks locks --on-end release")));
    wait_until("the agent listens", || socket.exists() && TcpStream::connect(("127.0.0.1", port)).is_ok());
    wait_until("it is locked", || ask(port, "LOCK") == (200, String::new()));
    let mut others = Client::connect(&socket, false);
    for of_another in ["k me", "terraform:other ann"] {
        assert!(others.outlast_outage(&format!("LOCK.ACQUIRE {of_another} 60000")).as_int() > 0);
    }
    wait_until("all nodes have it", || nodes.holding("terraform:shop") == 3);
    first.signal(Signal::SIGTERM);
    let ended = first.end();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let left = ["terraform:shop", "k", "terraform:other"].map(|key| nodes.holding(key));
    assert_eq!(left, [3, 0, 0], "only Terraform's lock stays");
    let _second = agent(&nodes, port);
    assert_eq!(ask(port, "UNLOCK"), (200, String::new()));
}

/// If the file cannot be written any longer, no lock is granted that the next agent would not know.
#[test]
fn a_file_that_cannot_be_written() {
    let nodes = Nodes::start(1);
    let port = free_port();
    let _agent = agent(&nodes, port);
    wait_until("the agent has made its file", || fs::remove_file(nodes.file("locks")).is_ok());
    fs::create_dir(nodes.file("locks")).unwrap();
    wait_until("the lock is refused", || {
        let (status, text) = ask(port, "LOCK");
        status == 500 && text.starts_with("nothing is locked: locks cannot be written: ")
    });
    wait_until("nothing is locked", || nodes.holding("terraform:shop") == 0);
}

#[test]
fn what_is_wrong_with_its_arguments() {
    let nodes = Nodes::start(1);
    fs::write(nodes.file("garbage"), "[").unwrap();
    fs::write(nodes.file("name"), "ann\n").unwrap();
    for (options, why) in [
        ("", "--http-locks <FILE>"),
        ("--http-locks /nowhere/locks", "--http-locks /nowhere/locks: No such file"),
        ("--http-locks garbage", "no list of locks"),
        ("--http-locks locks --http-credentials name", "write name:password"),
        ("--http-locks locks --http-credentials nothing", "cannot be read"),
    ] {
        let ended = run(nodes.palisade(&format!("agent --http 127.0.0.1:0 {options}")));
        assert!(ended.code() == Some(193) && ended.err().contains(why), "{options}: {ended:?}");
    }
    run(nodes.palisade("agent --http 0.0.0.0:0 --http-locks locks"))
        .assert_refused(193, "can be reached from other machines");
    run(nodes.palisade("agent --http-locks locks")).assert_refused(193, "--http");
}
