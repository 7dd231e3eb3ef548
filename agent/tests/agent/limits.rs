//! Tests of the limits on how much of the agent one client can use.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use palisade_agent::limits::HTTP_TIME;
use palisade_agent::{Config, Password};

use crate::fixture::{Nodes, Raw, Running, nowhere, packed};
use crate::harness::wait_until;

#[test]
fn one_connection_more_than_may_be() {
    let agent = Running::start(&nowhere(), |config| Config { connections_max: 3, ..config });
    let mut open: Vec<Raw> = (0..3).map(|_| agent.raw()).collect();
    for raw in &mut open {
        assert_eq!(raw.say("PING"), "+PONG\r\n");
    }
    let said = agent.raw().rest();
    assert!(said.starts_with("-ERR max number of clients reached: this agent takes 3 connections"), "{said}");
    assert!(open[0].say("INFO stats").contains("rejected_connections:1\r\n"));
    open.pop();
    wait_until("there is room again", || {
        let mut raw = agent.raw();
        raw.send(&packed("QUIT"));
        raw.rest() == "+OK\r\n"
    });
}

/// Clients connect and send nothing, or too little. When all places are taken, the oldest of these connections is
/// closed for the next client. A connection that has given the password stays.
#[test]
fn connections_without_the_password_give_way() {
    let password = Password::new(b"secret").unwrap();
    let agent = Running::start(&nowhere(), |config| Config { connections_max: 3, password: Some(password), ..config });
    let mut known = agent.raw();
    assert_eq!(known.say("AUTH secret"), "+OK\r\n");
    let mut refused = agent.raw();
    assert!(refused.say("PING").starts_with("-NOAUTH"));
    let mut silent: Vec<Raw> = (0..20).map(|_| agent.raw()).collect();
    let mut late = agent.raw();
    assert_eq!(late.say("AUTH secret"), "+OK\r\n");
    for gone in [&mut refused, &mut silent[0]] {
        let said = gone.rest();
        assert!(said.starts_with("-ERR max number of clients reached"), "{said}");
    }
    assert_eq!((known.say("PING"), late.say("PING")), ("+PONG\r\n".to_owned(), "+PONG\r\n".to_owned()));
    assert_eq!(silent[19].say("AUTH secret"), "+OK\r\n", "the youngest has its place still");
    let said = agent.raw().rest();
    assert!(said.starts_with("-ERR max number of clients reached"), "{said}");
    let info = known.say("INFO");
    assert!(info.contains("connected_clients:3\r\n") && info.contains("rejected_connections:1\r\n"), "{info}");
}

#[test]
fn where_no_password_is_needed_connections_without_a_request_give_way() {
    let agent = Running::start(&nowhere(), |config| Config { connections_max: 2, ..config });
    let mut known = agent.raw();
    assert_eq!(known.say("PING"), "+PONG\r\n");
    let mut half = agent.raw();
    half.send(b"*1\r\n$4\r\nPI");
    let mut late = agent.raw();
    assert_eq!((late.say("PING"), known.say("PING")), ("+PONG\r\n".to_owned(), "+PONG\r\n".to_owned()));
    assert!(half.rest().starts_with("-ERR max number of clients reached"));
}

/// A client for which there is no place sends its first request before it reads. It must be able to read the reason,
/// and not get a reset.
#[test]
fn who_is_turned_away_reads_why() {
    let agent = Running::start(&nowhere(), |config| Config { connections_max: 1, ..config });
    assert_eq!(agent.raw().say("PING"), "+PONG\r\n");
    let mut only = agent.raw();
    wait_until("it has the place", || {
        only = agent.raw();
        only.say("PING") == "+PONG\r\n"
    });
    for _ in 0..20 {
        let mut stream = UnixStream::connect(agent.socket()).unwrap();
        stream.write_all(&packed("PING")).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("no reset");
        assert!(said.starts_with("-ERR max number of clients reached"), "{said}");
    }
}

/// A thousand connections are open, as a smaller version of the default of ten thousand. All are served.
#[test]
fn a_thousand_connections_are_served() {
    let agent = Running::start(&nowhere(), |config| config);
    let mut open: Vec<Raw> = (0..1_000).map(|_| agent.raw()).collect();
    for raw in &mut open {
        raw.send(&packed("PING"));
    }
    for raw in &mut open {
        assert_eq!(raw.hear(), "+PONG\r\n");
    }
    assert!(open[500].say("INFO clients").contains("connected_clients:1000\r\n"));
    drop(open);
    wait_until("all are gone", || agent.info("connected_clients") == 1);
}

#[test]
fn answers_of_pipelined_requests_come_in_order() {
    let nodes = Nodes::start(3);
    let agent = nodes.agent();
    let mut me = agent.raw();
    let mut sent = vec![];
    for n in 0..50 {
        sent.extend(packed(&format!("ECHO {n}")));
        sent.extend(packed(&format!("LOCK.ACQUIRE k{n} me 60000")));
        sent.extend(packed(&format!("LOCK.RELEASE k{n} me")));
    }
    me.send(&sent);
    for n in 0..50 {
        assert!(me.hear().ends_with(&format!("\r\n{n}\r\n")));
        assert!(me.hear().starts_with(':'));
        assert_eq!(me.hear(), ":0\r\n");
    }
}

/// A client sends further requests while a command waits, more than the agent reads ahead. They are answered in order
/// after the command.
#[test]
fn who_waits_is_read_ahead_within_bounds() {
    let nodes = Nodes::start(3);
    let agent = nodes.agent();
    let (mut holder, mut me) = (agent.raw(), agent.raw());
    assert!(holder.insist("LOCK.ACQUIRE k holder 60000").starts_with(':'));
    me.send(&packed("PING"));
    me.send(&packed("LOCK.ACQUIRE k me 60000 WAIT 60000"));
    assert_eq!(me.hear(), "+PONG\r\n", "an answer is not kept back by a command that waits");
    wait_until("it waits", || agent.info("blocked_clients") == 1);
    const MANY: usize = 20_000;
    let behind = packed(&format!("ECHO {}", "x".repeat(100))).repeat(MANY);
    std::thread::scope(|scope| {
        let mut writing = me.try_clone();
        scope.spawn(move || writing.send(&behind));
        assert_eq!(holder.say("LOCK.RELEASE k holder"), ":0\r\n");
        assert!(me.hear().starts_with("*2\r\n:"));
        for _ in 0..MANY {
            assert!(me.hear().starts_with("$100\r\n"));
        }
    });
}

/// A client sends requests and does not read the answers. The agent stops reading from it, and goes on serving others.
#[test]
fn who_does_not_read_is_not_read_from() {
    let agent = Running::start(&nowhere(), |config| config);
    let deaf = agent.raw();
    deaf.set_nonblocking();
    let request = packed(&format!("ECHO {}", "x".repeat(100_000)));
    let mut sent = 0;
    wait_until("nothing is taken from it any more", || {
        let before = sent;
        while deaf.try_send(&request) {
            sent += 1;
        }
        std::thread::yield_now();
        assert!(sent < 1_000, "the agent keeps its answers for ever");
        sent == before
    });
    assert_eq!(agent.raw().say("PING"), "+PONG\r\n");
}

#[test]
fn metrics_and_health() {
    let nodes = Nodes::start(3);
    let agent = nodes.agent_with(|config| Config { metrics: Some(([127, 0, 0, 1], 0).into()), ..config });
    agent.client().say("LOCK.ACQUIRE k me 60000");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(agent.metrics()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    };
    let said = get("/metrics");
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    for line in [
        "palisade_agent_up 1\n",
        "palisade_agent_nodes_serving 3\n",
        "palisade_agent_held 1\n",
        "palisade_agent_commands_total{command=\"lock.acquire\"} 1\n",
        "palisade_agent_closed_total{why=\"garbage\"} 0\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(get("/health").ends_with("serving: 3 of 3 nodes serve\n"));
    assert!(get("/other").starts_with("HTTP/1.1 404"));
    let mut garbage = TcpStream::connect(agent.metrics()).unwrap();
    garbage.write_all(b"\0\0\0\0\r\n\r\n").unwrap();
    drop(garbage);
    assert!(get("/health").starts_with("HTTP/1.1 200"));
}

/// Regression: silent connections to the metrics' address kept a health check waiting for a minute, because each was
/// closed only after ten seconds, sixteen at a time. Now the check is answered.
#[test]
fn silent_connections_keep_no_probe_waiting() {
    let nodes = Nodes::start(1);
    let agent = nodes.agent_with(|config| Config { metrics: Some(([127, 0, 0, 1], 0).into()), ..config });
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(agent.metrics()).unwrap()).collect();
    let mut probe = TcpStream::connect(agent.metrics()).unwrap();
    probe.set_read_timeout(Some(HTTP_TIME)).unwrap();
    write!(probe, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut said = String::new();
    probe.read_to_string(&mut said).expect("it is answered before a silent connection is given up");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    drop(silent);
}

/// The lines for operators that the agent has written.
static TOLD: Mutex<Vec<String>> = Mutex::new(vec![]);

#[test]
fn nodes_that_come_and_go_are_told() {
    let mut nodes = Nodes::start(3);
    let tell = |line: &str| TOLD.lock().unwrap().push(line.to_owned());
    let _agent = nodes.agent_with(|config| Config { tell, ..config });
    let is_told = |text: &str| TOLD.lock().unwrap().iter().any(|line| line.contains(text));
    nodes.0[..2].iter_mut().for_each(crate::harness::Server::kill);
    wait_until("that they are away is told", || {
        TOLD.lock().unwrap().iter().filter(|line| line.contains(" is away: it cannot be reached")).count() == 2
    });
    wait_until("that no majority is left is told", || is_told("NOQUORUM begins: 1 of 3 nodes can be asked"));
    nodes.0[..2].iter_mut().for_each(crate::harness::Server::start_again);
    wait_until("that it ended is told", || is_told("NOQUORUM ends after"));
    wait_until("that they are back is told", || is_told(" is back after"));
}
